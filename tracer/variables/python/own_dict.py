"""The real `__dict__` of an instance."""
from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...breaks.reasons import Reason
from ...breaks.unsupported import Unsupported
from ..core.base import Value

if TYPE_CHECKING:
    from ..core.base import Translator

NO_DICT: dict[str, Any] = {}


def own_dict(tx: Translator, owner: Value, real: Any, changes: bool = False) -> dict[str, Any]:
    """`real.__dict__`. Raises Unsupported where user code also holds it as a dict (since before a break, or because it
    shares it), and that has changed or is about to."""
    own = instance_dict(real)
    if changes and own is not real:
        tx.effects.own_dicts[id(own)] = own
    held = tx.trace.values_by_id.get(id(own))
    if held is not None and own is not real and (changes or tx.effects.has_changed(held)):
        raise Unsupported(
            Reason.ATTRIBUTE, detail=f"an attribute of {owner.describe()}, whose __dict__ the program holds"
        )
    return own


def instance_dict(real: Any) -> dict[str, Any]:
    """`real.__dict__`, bypassing overrides; empty for objects without one."""
    try:
        return object.__getattribute__(real, "__dict__")
    except AttributeError:
        return NO_DICT
