"""torch.distributed.tensor: the placement of a DTensor is a constant, and a conversion between a DTensor and another
kind of tensor is one node, which runs torch's own Python. None of it is imported here."""
from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch

from ...breaks.reasons import Reason
from ...breaks.unsupported import Unsupported
from ...sources.source import Source
from ..containers.dicts import make_dict
from ..containers.sequences import make_tuple
from ..core.base import Value
from ..core.constant import ConstantValue, constant, fold
from ..core.handlers import NAMED
from ..core.late import late
from ..core.registry import BUILDERS_BY_NAME, from_python
from .pytree import flatten
from .tensor import TensorValue
from .wrapper_subclasses import WrapperValue

if TYPE_CHECKING:
    from ..core.base import Translator

Args = Sequence[Value]
Kwargs = Mapping[str, Value]
_API, _PLACEMENTS = "torch.distributed.tensor._api", "torch.distributed.tensor.placement_types"
_KINDS = ("Shard", "Replicate", "Partial", "_StridedShard")


class SpreadValue(ConstantValue):
    """A device mesh, the placement of a tensor on one, or a process group: its methods are called for real."""

    __slots__ = ()

    def getattr(self, tx: Translator, name: str) -> Value:
        """An attribute; that of a property, too."""
        found = getattr(self.value, name, None)
        if found is None or callable(found):
            return super().getattr(tx, name)
        return fold(tx, getattr, [self, ConstantValue(name)])

    def call_method(self, tx: Translator, name: str, args: Args, kwargs: Kwargs) -> Value:
        """A method that only reads."""
        if name not in _SAYING and not name.startswith("is_"):
            raise Unsupported(Reason.UNSUPPORTED_METHOD, type(self.value), name)
        return fold(tx, getattr(self.value, name), args, kwargs)


_SAYING = frozenset(
    "size rank name get_rank get_local_rank get_coordinate __getitem__ __eq__ __hash__ numel dim".split())


def build_by_identity(tx: Translator, obj: Any, source: Source | None) -> Value:
    """A device mesh or a process group: this one."""
    if source is not None:
        tx.guards.add(source, "ID_MATCH", obj)
    return SpreadValue(obj, source)


def build_by_value(tx: Translator, obj: Any, source: Source | None) -> Value:
    """A placement or a kind of reduction: an equal one."""
    if source is not None:
        tx.guards.add(source, "EQUALS_MATCH", obj)
    return SpreadValue(obj, source)


def _placement(name: str) -> Callable[[Translator, Args, Kwargs], Value]:
    def make(tx: Translator, args: Args, kwargs: Kwargs) -> Value:
        return fold(tx, getattr(sys.modules[_PLACEMENTS], name), args, kwargs)

    return make


def _as_node(find: Callable[[Any], Any]) -> Callable[[Translator, Args, Kwargs], Value]:
    """The call of a torch function as a node: of tensors; all other arguments are part of it."""

    def call(tx: Translator, args: Args, kwargs: Kwargs) -> Value:
        function = find(sys.modules["torch.distributed.tensor"])
        named = make_dict(tx, [constant(name) for name in kwargs], list(kwargs.values()))
        leaves, spec = flatten(tx, make_tuple(tx, [make_tuple(tx, args), named]))
        places = [i for i, leaf in enumerate(leaves) if isinstance(leaf, TensorValue)]
        known = [None if isinstance(leaf, TensorValue) else leaf.as_constant() for leaf in leaves]

        def with_constants(*tensors: torch.Tensor) -> Any:
            given = list(known)
            for i, tensor in zip(places, tensors):
                given[i] = tensor
            args, kwargs = spec.unflatten(given)
            return function(*args, **kwargs)

        with_constants.__name__ = with_constants.__qualname__ = function.__name__
        return tx.graph.call(with_constants, [leaves[i] for i in places], {}, tx)

    return call


def _layout_attribute(tx: Translator, value: WrapperValue, name: str) -> Value | None:
    """The placement of a DTensor, which its guard covers."""
    if value.kind.__module__ != "torch.distributed.tensor" or name not in ("placements", "device_mesh"):
        return None
    return from_python(tx, getattr(value.fake, name))


late.wrapper_attribute = _layout_attribute


for _name in _KINDS:
    BUILDERS_BY_NAME[_PLACEMENTS, _name] = build_by_value
    NAMED[_PLACEMENTS, _name] = _placement(_name)
BUILDERS_BY_NAME["torch.distributed.device_mesh", "DeviceMesh"] = build_by_identity
for _name in ("from_local", "to_local", "redistribute", "full_tensor"):
    NAMED[_API, _name] = _as_node(lambda module, name=_name: getattr(module.DTensor, name))  # type: ignore[misc]
