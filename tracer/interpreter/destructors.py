"""References that the frame drops, where the object's death is observable (see `finalizers.py`)."""
from __future__ import annotations

from types import GeneratorType
from typing import TYPE_CHECKING

from ..breaks.reasons import Reason
from ..breaks.unsupported import Unsupported
from ..bytecode.resume_function import STACK_ARGUMENT
from ..sources.roots import LocalSource
from ..sources.source import ItemSource, Source
from ..variables.containers.mappings import DictValue
from ..variables.containers.sequences import SequenceValue
from ..variables.core.base import Value
from ..variables.core.constant import BoundBuiltin
from ..variables.core.finalizers import brings_visible_death, ends_something, has_finalizer, is_watched
from ..variables.python.builtin_functions import BuiltinValue
from ..variables.python.objects import ObjectValue
from ..variables.python.partials import MethodValue
from .generators import GeneratorValue

if TYPE_CHECKING:
    from .interpreter import Interpreter


def dies_visibly(tx: Interpreter, value: Value) -> bool:
    """Whether the death of this object may be observable: a generator suspended inside a `try` or `with` (the position
    of one from an earlier part of the frame is unknown), an object with a finalizer, or one with a weak reference to
    it."""
    value = _holder(value)
    if isinstance(value, GeneratorValue):
        return value.has_cleanup()
    if value in tx.trace.referents:
        return True
    if isinstance(value, ObjectValue) and (has_finalizer(value.python_type()) or is_watched(value.real)):
        return True
    source = value.source.base if isinstance(value.source, ItemSource) else value.source  # passed in a list
    held = getattr(value, "real", None)
    if isinstance(value, BuiltinValue):
        held = getattr(value.function, "__self__", None)
    if not isinstance(source, LocalSource):
        return False
    return brings_visible_death(held) if type(held) is GeneratorType else ends_something(held)


def may_die_visibly(tx: Interpreter, value: Value) -> bool:
    """Whether its death may be observable, now or after Python has used it."""
    value = _holder(value)
    return value.may_clean_up() if isinstance(value, GeneratorValue) else dies_visibly(tx, value)


def _holder(value: Value) -> Value:
    """The object that dies with `value`: a method holds its own."""
    while isinstance(value, (BoundBuiltin, MethodValue)):
        value = value.owner
    return value


def let_go(tx: Interpreter, value: Value) -> None:
    """The frame drops a reference to `value`. Raises Unsupported where an object may die of that observably: what
    Python runs then must run now, not at the end of the frame."""
    if tx.parent is not None or value in tx.stack:
        return
    if isinstance(value, (SequenceValue, DictValue, ObjectValue)):
        _let_go_of_items(tx, value)
    if not dies_visibly(tx, value):
        return
    if all(other is not value or name.startswith(STACK_ARGUMENT) for name, other in tx.locals.items()):
        raise death_of(value)


def death_of(value: Value) -> Unsupported:
    """The break where `value` dies observably."""
    return Unsupported(Reason.UNFINISHED_GENERATOR if _is_generator(value) else Reason.OBSERVABLE_FINALIZER, value)


def _let_go_of_items(tx: Interpreter, value: Value) -> None:
    """The frame drops a container or object that it owns. Raises Unsupported where something dies with it
    observably."""
    held = tx.locals.values()
    parts = [] if value in held else [value]
    for part in parts:
        if dies_visibly(tx, part):
            raise Unsupported(Reason.OBSERVABLE_FINALIZER, part)
        own = [item for item in _items(tx, part) if _is_own(item.source)]
        parts += [item for item in own if item not in held and item not in parts]


def _items(tx: Interpreter, value: Value) -> list[Value]:
    """What dies with a container that did not come from outside, or with an object that the trace made."""
    if isinstance(value, ObjectValue) and tx.effects.is_new(value):
        return [held for held, _ in tx.effects.attributes.get(value, {}).values()]
    if value.source is not None and not isinstance(value.source, LocalSource):
        return []
    if isinstance(value, DictValue):
        return [item for item in value.items.values() if item is not None]
    return list(value.items) if isinstance(value, SequenceValue) else []


def _is_own(source: Source | None) -> bool:
    """Whether only the frame holds the object: it was passed over a break on the stack, or in a container."""
    if isinstance(source, ItemSource):
        return isinstance(source.base, LocalSource)
    return source is None or (isinstance(source, LocalSource) and source.name.startswith(STACK_ARGUMENT))


def _is_generator(value: Value) -> bool:
    return issubclass(value.python_type(), GeneratorType)
