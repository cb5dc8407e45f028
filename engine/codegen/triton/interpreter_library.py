"""What Triton's interpreter lacks when it is entered directly: libdevice, and the jitted part of `tl`."""
from __future__ import annotations

from types import FunctionType, SimpleNamespace
from typing import Any

import numpy
import torch

_BY_TORCH = {
    **{
        name: getattr(torch, name)
        for name in (
            "sqrt", "rsqrt", "exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sin", "cos", "tan", "asin",
            "acos", "atan", "sinh", "cosh", "tanh", "asinh", "acosh", "atanh", "erf", "erfc", "erfinv", "lgamma",
            "floor", "ceil", "trunc", "atan2", "hypot", "copysign", "nextafter", "fmod", "pow",
        )
    },
    "nearbyint": torch.round,
}


class InterpretedLanguage:
    """`triton.language`, with its functions that are written in Triton (`tl.sum`, `tl.cdiv`) interpreted."""

    @staticmethod
    def device_assert(condition: Any, message: str) -> None:
        """Triton's own checks nothing unless the whole process is set to debug."""
        if not condition.handle.data.all():
            raise AssertionError(message)

    def __getattr__(self, name: str) -> Any:
        import triton.language as tl
        from triton.runtime.interpreter import InterpretedFunction
        from triton.runtime.jit import JITFunction

        value = getattr(tl, name)
        return InterpretedFunction(isolated(value.fn)) if isinstance(value, JITFunction) else value


def isolated(function: Any) -> Any:
    """A copy of `function` with globals of its own: the interpreter adds names to those of what it rewrites."""
    copy = FunctionType(function.__code__, dict(function.__globals__), function.__name__, function.__defaults__)
    copy.__kwdefaults__ = function.__kwdefaults__
    copy.__annotations__ = function.__annotations__
    return copy


def libdevice() -> SimpleNamespace:
    """An object with the functions of libdevice that generated kernels call, on the interpreter's tensors."""
    return SimpleNamespace(**{name: _interpreted(function) for name, function in _BY_TORCH.items()})


def _interpreted(function: Any) -> Any:
    import triton.language as tl
    from triton.runtime.interpreter import TensorHandle

    def call(first: Any, *rest: Any) -> Any:
        operands = [first, *rest]
        arrays = numpy.broadcast_arrays(*(x.handle.data for x in operands))
        with numpy.errstate(all="ignore"):
            result = function(*(torch.from_numpy(numpy.ascontiguousarray(a)) for a in arrays)).numpy()
        shape = max((x.type for x in operands), key=lambda t: len(getattr(t, "shape", ())))
        kind = first.dtype.scalar
        block = tl.block_type(kind, list(result.shape)) if hasattr(shape, "shape") and result.shape else kind
        return tl.core.tensor(TensorHandle(result, kind), block)

    return call
