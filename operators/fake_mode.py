"""A fake tensor mode that answers as eager does: it refuses what eager refuses, and corrects what fake kernels say.

Capture makes its fake tensors with it. They carry their mode along, so that the engine functionalizes under the same.
"""
from __future__ import annotations

import contextlib
from functools import cached_property
from typing import Any, Self

import torch
from torch._subclasses.fake_tensor import DynamicOutputShapeException, FakeTensor, FakeTensorMode

from .checks import refuse, refuse_overflow
from .custom_ops import TORCHS
from .meta import captured_strides, returns_view, untraceable
from .traits import traits_of


class FaithfulFakeMode(FakeTensorMode):
    """A FakeTensorMode whose dispatch does not go through `torch._disable_dynamo`, which would import TorchDynamo.

    Where sizes are symbols, composite operators run in their Python form while the mode is on: the C++ forms of some
    (matmul in torch 2.11) read sizes as numbers, and so would turn the symbols into constants.
    """

    _in_fake_kernel = False
    """Whether the fake kernel of an operator that is not torch's runs: eager makes none of its calls."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if not self._in_fake_kernel:
            refuse(func, args, kwargs)
        if func.namespace not in TORCHS and not self._in_fake_kernel:
            self._in_fake_kernel = True
            try:
                return _fake_dispatch(self, func, types, args, kwargs)
            finally:
                self._in_fake_kernel = False
        traits = traits_of(func)
        if why := untraceable(func, args):
            raise DynamicOutputShapeException(func) if traits.sized_by_data else NotImplementedError(why)
        meta = traits.symbolic_meta
        if meta is not None and not kwargs and self._has_symbols() and isinstance(args[0], FakeTensor):
            return meta(*args)
        made: Any = _fake_dispatch(self, func, types, args, kwargs)
        if not self._in_fake_kernel:
            refuse_overflow(func, args, kwargs or {}, made)
        first = made[0] if isinstance(made, tuple) and made else made
        strides = captured_strides(func, args, first)
        if strides is None:
            return made
        first = self._laid_out(func, args[0], first, strides)
        return (first, *made[1:]) if isinstance(made, tuple) else first

    def _laid_out(self, func: Any, source: torch.Tensor, made: torch.Tensor, strides: tuple[int, ...]) -> Any:
        if returns_view(func):
            place = (source, made.shape, strides, made.storage_offset())
            return _fake_dispatch(self, torch.ops.aten.as_strided.default, (), place, {})
        options = {"dtype": made.dtype, "device": made.device}
        return _fake_dispatch(self, torch.ops.aten.empty_strided.default, (), (made.shape, strides), options)

    def __enter__(self) -> Self:
        super().__enter__()
        symbolic = self._has_symbols()
        self.cache_enabled = self.cache_enabled and not symbolic  # its keys and entries cost more than the operators
        python_form = torch._C._EnablePythonDispatcher() if symbolic else contextlib.nullcontext()
        python_form.__enter__()
        self._python_forms.append(python_form)
        return self

    def __exit__(self, *exception: Any) -> None:
        self._python_forms.pop().__exit__(*exception)
        super().__exit__(*exception)

    @cached_property
    def _python_forms(self) -> list[Any]:
        return []

    def _has_symbols(self) -> bool:
        return self.shape_env is not None and bool(self.shape_env.var_to_range)


_fake_dispatch = getattr(FakeTensorMode.__torch_dispatch__, "__wrapped__", FakeTensorMode.__torch_dispatch__)
