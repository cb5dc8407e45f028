"""`torch.Tensor(...)`, `torch.LongTensor(...)` and their kin, and `x.new(...)`: from data, or from sizes.

They distinguish the two as `legacy_tensor_generic_ctor_new` in torch/csrc/utils/tensor_new.cpp does: numbers and a
`torch.Size` are sizes, a list or tuple is data, and a tensor is aliased. They ignore the modes of torch: function modes
and the default device.
"""
from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch

from ...breaks.reasons import Reason
from ...breaks.unsupported import Unsupported
from ..containers.sequences import TupleValue
from ..core.base import Value
from ..core.constant import constant
from ..core.handlers import handles
from ..core.registry import from_python
from ..numpy.ndarrays import NdarrayValue
from .tensor import PLAIN_TYPES, TensorValue
from .tensor_methods import METHODS

if TYPE_CHECKING:
    from ..core.base import Translator

Args = Sequence[Value]
Kwargs = Mapping[str, Value]

_TYPES = [kind for kind in vars(torch).values() if type(kind) is type(torch.FloatTensor) and kind.__module__ == "torch"]


def _constructor(cls: Any) -> Callable[[Translator, Args, Kwargs], Value]:
    """The result of calling torch.Tensor, or a type that names a dtype."""

    def handler(tx: Translator, args: Args, kwargs: Kwargs) -> Value:
        dtype = torch.get_default_dtype() if cls is torch.Tensor else cls.dtype
        if not kwargs and len(args) == 1 and args[0].python_type() in PLAIN_TYPES:
            if cls is not torch.Tensor and args[0].fake.type() != f"torch.{cls.__name__}":  # type: ignore[attr-defined]
                raise Unsupported(Reason.UNSUPPORTED_CLASS, cls, detail="of a tensor of another type")
            return tx.graph.call(torch.ops.aten.alias.default, args, {}, tx)
        return _made(tx, args, kwargs, dtype, torch.device("cpu"), f"the class {cls.__name__}")

    return handler


for _cls in (torch.Tensor, *_TYPES):
    handles(_cls)(_constructor(_cls))


def _new(tx: Translator, self: TensorValue, args: Args, kwargs: Kwargs) -> Value:
    return _made(tx, args, kwargs, self.fake.dtype, self.fake.device, "Tensor.new")


METHODS["new"] = _new


def _made(tx: Translator, args: Args, kwargs: Kwargs, dtype: torch.dtype, device: torch.device, name: str) -> Value:
    """Uninitialized where sizes are given."""
    kinds = [arg.python_type() for arg in args]
    options = {"dtype": constant(dtype), "device": constant(device)}
    asked = kwargs["device"].as_constant() if "device" in kwargs else device
    if kwargs.keys() - {"device"} or (asked is not None and torch.device(asked) != device):
        raise Unsupported(Reason.UNSUPPORTED_ARGUMENT, detail=name)
    with tx.trace.overrides.set([], False):
        if kinds == [torch.Size] or all(kind is int for kind in kinds):
            sizes = args[0] if kinds == [torch.Size] else TupleValue(args or [constant(0)], tuple)
            return tx.graph.call(torch.empty, [sizes], options, tx)
        if len(args) == 1 and kinds[0] in (list, tuple, range):
            return from_python(tx, torch.tensor).call(tx, args, options)
        if len(args) == 1 and isinstance(args[0], NdarrayValue):
            return from_python(tx, torch.as_tensor).call(tx, args, options)
    raise Unsupported(Reason.UNSUPPORTED_ARGUMENT, detail=name)
