"""The hook tables of modules, and the ids under which hooks are stored in them.

The ids count all handles ever made, and differ in each run of a program that removes hooks and adds them again.
nn.Module's own code uses them only to find which hooks have options: where none has, guards check the hooks in their
order, and not their ids. A hook that the trace registers gets an id of its own, which its table must not contain when
the graph is run again.
"""
from __future__ import annotations

import weakref
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch.nn.modules import module as nn_module
from torch.utils.hooks import RemovableHandle

from ....sources.source import AttrSource, CallSource, ItemSource, Source
from ...containers.dicts import build_dict, fill_from_real
from ...containers.mappings import DictValue
from ...containers.sequences import make_tuple
from ...core.base import Value, with_arguments
from ...core.constant import constant
from ...core.handlers import handles
from ...core.registry import builds, from_python

if TYPE_CHECKING:
    from ...core.base import Translator

_OPTIONS: dict[str, tuple[str, ...]] = {
    "_forward_hooks": ("_forward_hooks_with_kwargs", "_forward_hooks_always_called"),
    "_forward_pre_hooks": ("_forward_pre_hooks_with_kwargs",),
    "_backward_hooks": (),
    "_backward_pre_hooks": (),
}
"""A module's hook tables that its call runs, and the tables of those that have options."""


class HookTable(DictValue):
    """One of the tables of `_OPTIONS`."""

    __slots__ = ()

    def guard_keys(self, tx: Translator) -> None:
        """nn.Module's own code has seen how many hooks there are, and in which order."""
        if not self.keys_guarded and tx.f_globals is vars(nn_module) and self._are_plain(tx):
            tx.guards.add(self.source, "LENGTH", len(self.real))
        else:
            super().guard_keys(tx)

    def _are_plain(self, tx: Translator) -> bool:
        """Whether no hook of the module has options, which is guarded then."""
        assert isinstance(self.source, AttrSource)
        if self.stored:
            return False
        owner, names = self.source.owner, _OPTIONS[self.source.name]
        tables = {AttrSource(owner, name): getattr(tx.guards.value(owner), name) for name in names}
        known = [tx.trace.values_by_id.get(id(table)) for table in tables.values()]
        if any(tables.values()) or any(value.items for value in known if isinstance(value, DictValue)):
            return False
        for source in tables:
            tx.guards.add(source, "LENGTH", 0)
        return True

    def find(self, tx: Translator, key: Value) -> Value | None:
        """The hook with an id, which only code other than nn.Module's looks up: the ids are then guarded too."""
        self.guard_keys(tx)
        return super().find(tx, key)

    def contains(self, tx: Translator, item: Value) -> bool:
        """Whether there is a hook with the id."""
        self.guard_keys(tx)
        return super().contains(tx, item)

    def _item_source(self, tx: Translator, key: Any) -> Source | None:
        if self.keys_guarded or self.source is None:
            return super()._item_source(tx, key)
        return ItemSource(CallSource(self.source, "values_of"), list(self.real).index(key))


@builds(OrderedDict)
def build_ordered_dict(tx: Translator, obj: OrderedDict[Any, Any], source: Source | None) -> Value:
    """A table of hooks, or another dict."""
    if type(obj) is not OrderedDict or not isinstance(source, AttrSource) or source.name not in _OPTIONS:
        return build_dict(tx, obj, source)
    if not isinstance(tx.guards.value(source.owner), torch.nn.Module):
        return build_dict(tx, obj, source)
    value = HookTable(OrderedDict, source)
    tx.guards.add(source, "TYPE_MATCH", OrderedDict)
    fill_from_real(tx, value, obj)
    return value


@handles(RemovableHandle.__init__)
def _init_handle(tx: Translator, args: Sequence[Value], kwargs: Mapping[str, Value]) -> Value:
    return with_arguments(_made_handle, tx, *args, **kwargs)


def _made_handle(tx: Translator, handle: Value, hooks_dict: Value, *, extra_dict: Value | None = None) -> Value:
    """RemovableHandle.__init__, as in torch/utils/hooks.py, except that the id is taken now, and not in each call."""
    number = RemovableHandle.next_id
    RemovableHandle.next_id += 1
    if isinstance(hooks_dict, DictValue):
        hooks_dict.guard_absent(tx, number)
    handle.setattr(tx, "hooks_dict_ref", _reference(tx, hooks_dict))
    handle.setattr(tx, "id", constant(number))
    kind = extra_dict.python_type() if extra_dict is not None else type(None)
    others: Sequence[Value] = ()
    if extra_dict is not None and issubclass(kind, (dict, list)):
        others = [extra_dict] if issubclass(kind, dict) else extra_dict.iterate(tx)
    handle.setattr(tx, "extra_dict_ref", make_tuple(tx, [_reference(tx, other) for other in others]))
    return constant(None)


def _reference(tx: Translator, value: Value) -> Value:
    return from_python(tx, weakref.ref).call(tx, [value], {})
