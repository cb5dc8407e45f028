"""`__dict__` of an instance: the real dict, and the changes of traced code."""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MemberDescriptorType
from typing import TYPE_CHECKING, Any

from ...breaks.reasons import Reason
from ...breaks.unsupported import Unsupported
from ...sources.source import AttrSource
from ..containers.dicts import fill_from_real
from ..containers.mappings import DictValue
from ..core.attributes import lookup
from ..core.base import Value
from ..core.late import late
from .objects import ObjectValue
from .own_dict import instance_dict

if TYPE_CHECKING:
    from ..core.base import Codegen, Translator


class InstanceDict(DictValue):
    """`vars(owner)`: reads what the trace stored first, and writes attributes."""

    __slots__ = ("owner",)

    def __init__(self, tx: Translator, owner: ObjectValue) -> None:
        super().__init__(dict, AttrSource(owner.source, "__dict__") if owner.source is not None else None)
        self.owner = owner
        if owner.real is not None:
            fill_from_real(tx, self, instance_dict(owner.real))
        for name in tx.effects.attributes.get(owner, ()):
            if tx.effects.came_back(owner, name):
                self.follow(name, None)
            self.follow(name, tx.effects.load_attr(owner, name))
        tx.effects.instance_dicts[owner] = self

    def follow(self, name: str, new: Value | None) -> None:
        """The owner's attribute was stored, or deleted (None)."""
        if isinstance(lookup(self.owner.cls, name), MemberDescriptorType):
            return  # which is in a slot
        self.stored[name] = None  # the length depends on whether it was there
        self.changes += (name in self.items) != (new is not None)
        if new is not None:
            self.items[name] = new
        else:
            self.items.pop(name, None)

    def guard_absent(self, tx: Translator, key: Any) -> None:
        """An attribute that traced code has deleted may have existed."""
        if not tx.effects.has_pending(self.owner, key):
            super().guard_absent(tx, key)

    def changed(self, tx: Translator) -> None:
        """Changes are changes of the owner's attributes."""

    def setitem(self, tx: Translator, key: Value, value: Value) -> None:
        """Set an attribute, bypassing the class's `__setattr__`."""
        if key.python_type() is not str or isinstance(lookup(self.owner.cls, key.as_constant()), MemberDescriptorType):
            raise Unsupported(Reason.SET_ITEM, key, detail=f"of {self.owner.describe()}.__dict__")
        super().setitem(tx, key, value)
        tx.effects.store_attr(self.owner, key.as_constant(), value, raw=True)

    def remove(self, tx: Translator, key: Value, found: Value) -> None:
        """Delete an attribute."""
        if key.python_type() is not str:
            raise Unsupported(Reason.DELETE, key, detail=f"of {self.owner.describe()}.__dict__")
        super().remove(tx, key, found)
        tx.effects.delete_attr(self.owner, key.as_constant())

    def call_method(self, tx: Translator, name: str, args: Sequence[Value], kwargs: Mapping[str, Value]) -> Value:
        """As dicts; methods that change all items at once are left to eager."""
        if name in ("clear", "move_to_end", "__ior__"):
            raise Unsupported(Reason.UNSUPPORTED_ARGUMENT, detail=f"{name} of {self.owner.describe()}.__dict__")
        return super().call_method(tx, name, args, kwargs)

    def reconstruct(self, codegen: Codegen) -> None:
        """vars(owner)."""
        codegen(self.owner)
        codegen.load_attr("__dict__")


late.instance_dict = InstanceDict
