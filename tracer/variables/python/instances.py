"""Existing instances and new ones: the ObjectValue of each, with its items where it derives from a container."""
from __future__ import annotations

from collections import OrderedDict, defaultdict, deque
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ...breaks.reasons import Reason
from ...breaks.unsupported import Unsupported
from ...sources.source import Source
from ..containers.dicts import fill_from_real
from ..containers.lists import ListValue
from ..containers.mappings import DictValue
from ..containers.sequences import TupleValue, read_items
from ..containers.sets import SetValue, items_of_set
from ..core.attributes import is_python_method, lookup
from ..core.base import Value
from ..core.late import late
from ..core.registry import builds
from ..torch.tensor import TensorValue
from ..torch.torch_function_overrides import note_class
from .objects import ObjectValue

if TYPE_CHECKING:
    from ..core.base import Translator

_STORAGES = (defaultdict, OrderedDict, dict, list, set, frozenset, tuple, deque)


def storage_kind(cls: type) -> type | None:
    """The builtin container that `cls` derives from."""
    return next((kind for kind in _STORAGES if issubclass(cls, kind)), None)


def new_object(tx: Translator, cls: type, items: Sequence[Value] = ()) -> ObjectValue:
    """cls.__new__(cls), made in the trace."""
    value = ObjectValue(cls)
    note_class(tx, cls)
    kind = storage_kind(cls)
    if kind in (tuple, frozenset):
        value.storage = TupleValue(items, tuple) if kind is tuple else SetValue(frozenset).filled(tx, items)
        tx.effects.track_new(value, cls)
        return value
    if kind is not None:
        value.storage = _empty_storage(kind)
        tx.effects.mutated(value)
    tx.effects.track_new(value, cls)
    return value


def _empty_storage(kind: type) -> Value:
    if kind is list:
        return ListValue([], list)
    if kind is set:
        return SetValue(set)
    if issubclass(kind, dict):
        return DictValue(kind)
    raise Unsupported(Reason.UNSUPPORTED_ARGUMENT, detail=f"a new instance of a subclass of {kind.__name__}")


def build_object(tx: Translator, obj: Any, source: Source | None) -> ObjectValue:
    """An existing instance; its type is guarded, its attributes when they are read."""
    cls = type(obj)
    if source is not None:
        tx.guards.add(source, "TYPE_MATCH", cls)
    value = ObjectValue(cls, obj, source)
    note_class(tx, cls)
    kind = storage_kind(cls)
    if kind is not None:
        tx.trace.values_by_id[id(obj)] = value
        value.storage = _real_storage(tx, obj, kind, source)
    return value


def _real_storage(tx: Translator, obj: Any, kind: type, source: Source | None) -> Value:
    if issubclass(kind, dict):
        storage = DictValue(OrderedDict if kind is OrderedDict else dict, source)
        fill_from_real(tx, storage, obj)
        return storage
    if source is None or kind is deque:
        raise Unsupported(Reason.UNKNOWN_TYPE, type(obj))
    if kind in (set, frozenset):
        if any(is_python_method(lookup(type(obj), name)) for name in ("__iter__", "__len__", "__eq__", "__hash__")):
            raise Unsupported(Reason.UNKNOWN_TYPE, type(obj))
        return items_of_set(tx, obj, kind, source)
    if any(getattr(type(obj), name) is not getattr(kind, name) for name in ("__iter__", "__len__", "__getitem__")):
        raise Unsupported(Reason.UNKNOWN_TYPE, type(obj))  # the trace and its guards would ask the program
    items = read_items(tx, obj, source)
    return ListValue(items, list, source) if kind is list else TupleValue(items, tuple, source)


@builds(object)
def build_any(tx: Translator, obj: Any, source: Source | None) -> Value:
    """Every type without a builder of its own."""
    return build_object(tx, obj, source)


def _base_method(
    tx: Translator, owner: Value, function: Any, args: Sequence[Value], kwargs: Mapping[str, Value]
) -> Value:
    """A builtin's unbound method called on `owner`: `dict.update(d, ...)`, `torch.Tensor.add(x, y)`."""
    if isinstance(owner, (ObjectValue, TensorValue)):
        return owner.base_method(tx, function.__name__, args, kwargs)
    return owner.call_method(tx, function.__name__, args, kwargs)


late.build_object = build_object
late.base_method = _base_method
