"""What Triton's interpreter lacks when it is entered directly: libdevice, the jitted part of `tl`, and what
its builder does unlike a GPU."""
from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
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


_NARROW = {"bf16": torch.bfloat16, "fp8e4nv": torch.float8_e4m3fn, "fp8e5": torch.float8_e5m2}
"""Floats that NumPy has not, by Triton's names: the interpreter holds their bits as unsigned integers."""


@contextmanager
def as_on_a_device() -> Iterator[None]:
    """While it lasts, Triton's interpreter does some things as a GPU does them.

    What a comparison of two scalars says keeps its type where it becomes a block (Triton gives it that of the operands,
    which no mask can have); conversions to narrow floats round to nearest (not towards zero), whatever they come from;
    matrices of narrow floats are multiplied as numbers (not as the bits that hold them);
    reductions and scans combine whole blocks, as a tree (not element by element, which takes seconds).
    """
    from triton.runtime.interpreter import ReduceOps, ScanOps, interpreter_builder as builder

    own = {"create_splat": _splat(builder), "cast_impl": _cast(builder), "create_fp_to_fp": _cast_floats(builder),
           "create_dot": _dot}
    vars(builder).update(own)
    plain = ReduceOps.generic_reduce, ScanOps.generic_scan
    ReduceOps.generic_reduce, ScanOps.generic_scan = _reduced, _scanned
    try:
        yield
    finally:
        ReduceOps.generic_reduce, ScanOps.generic_scan = plain
        for name in own:
            vars(builder).pop(name, None)


def _reduced(self: Any, blocks: tuple[Any, ...]) -> list[Any]:
    """`ReduceOps.generic_reduce`: neighbours along the axis are combined until one is left (blocks are powers of 2)."""
    rank, whole = len(blocks[0].handle.data.shape), self.axis is None
    axis = 0 if whole else self.axis
    arrays = [b.handle.data.reshape(-1) if whole else numpy.moveaxis(b.handle.data, axis, 0) for b in blocks]
    while len(arrays[0]) > 1:
        arrays = _combined(self, blocks, [a[0::2] for a in arrays], [a[1::2] for a in arrays])
    arrays = [a[0] for a in arrays]
    if self.keep_dims:
        arrays = [a.reshape((1,) * rank) if whole else numpy.expand_dims(a, axis) for a in arrays]
    return [self.to_tensor(a if a.shape else a.item(), b.dtype) for a, b in zip(arrays, blocks)]


def _scanned(self: Any, blocks: tuple[Any, ...]) -> list[Any]:
    """`ScanOps.generic_scan` in steps of 1, 2, 4, ... (Hillis and Steele, 1986)."""
    arrays = [numpy.moveaxis(b.handle.data, self.axis, 0) for b in blocks]
    step = 1
    while step < len(arrays[0]):
        later = _combined(self, blocks, [a[:-step] for a in arrays], [a[step:] for a in arrays])
        arrays = [numpy.concatenate([a[:step], b]) for a, b in zip(arrays, later)]
        step *= 2
    return [self.to_tensor(numpy.moveaxis(a, 0, self.axis), b.dtype) for a, b in zip(arrays, blocks)]


def _combined(self: Any, blocks: tuple[Any, ...], first: list[Any], second: list[Any]) -> list[Any]:
    """What the combining function makes of two blocks of each operand, in the types of the operands."""
    operands = [self.to_tensor(array, block.dtype) for side in (first, second) for array, block in zip(side, blocks)]
    made = self.combine_fn.fn(*operands)
    results = made if isinstance(made, tuple) else (made,)
    return [numpy.broadcast_to(getattr(getattr(r, "handle", None), "data", r), a.shape).astype(a.dtype)
            for r, a in zip(results, first)]


def _splat(builder: Any) -> Any:
    from triton.runtime.interpreter import TensorHandle

    plain = type(builder).create_splat

    def create_splat(block: Any, scalar: Any) -> Any:
        if numpy.asarray(scalar.data).dtype != numpy.bool_:
            return plain(builder, block, scalar)
        import triton.language as tl

        return TensorHandle(numpy.full(block.shape, numpy.asarray(scalar.data).flat[0]), tl.int1)

    return create_splat


def _cast(builder: Any) -> Any:
    plain = type(builder).cast_impl

    def cast_impl(source: Any, target: Any) -> Any:
        made = _narrow_cast(source, target)
        return plain(builder, source, target) if made is None else made

    return cast_impl


def _cast_floats(builder: Any) -> Any:
    plain = type(builder).create_fp_to_fp

    def create_fp_to_fp(source: Any, target: Any, rounding: Any) -> Any:
        made = _narrow_cast(source, target)
        return plain(builder, source, target, rounding) if made is None else made

    return create_fp_to_fp


def _dot(a: Any, b: Any, d: Any, *precision: Any) -> Any:
    """`d + a @ b`, in the dtype of `d`."""
    from triton.runtime.interpreter import TensorHandle

    left, right = (_numbers(x) for x in (a, b))
    return TensorHandle(numpy.matmul(left, right, dtype=d.data.dtype) + d.data, d.dtype.scalar)


def _numbers(block: Any) -> Any:
    narrow = _NARROW.get(str(block.dtype.scalar))
    if narrow is None:
        return block.data
    bits = torch.from_numpy(numpy.ascontiguousarray(block.data)).view(_BITS[narrow.itemsize])
    return bits.view(narrow).float().numpy()


def _narrow_cast(source: Any, target: Any) -> Any:
    """The conversion by torch where one of the types is narrow; None for others."""
    from triton.runtime.interpreter import TensorHandle, _get_np_dtype

    old, new = (_NARROW.get(str(kind.scalar)) for kind in (source.dtype, target))
    if old is None and new is None:
        return None
    values = torch.from_numpy(numpy.ascontiguousarray(source.data))
    values = values if old is None else values.view(_BITS[old.itemsize]).view(old)
    if new is not None:
        made = values.to(new).view(_BITS[new.itemsize]).numpy()
    else:
        made = values.float().numpy().astype(_get_np_dtype(target))
    return TensorHandle(made.view(_get_np_dtype(target)), target.scalar)


_BITS = {1: torch.uint8, 2: torch.int16}


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
