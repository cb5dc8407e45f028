"""What the frame lets go of, where the program sees it die (see `finalizers.py`)."""
from __future__ import annotations

from types import GeneratorType
from typing import TYPE_CHECKING

from ..breaks.reasons import Reason
from ..breaks.unsupported import Unsupported
from ..bytecode.resume_function import STACK_ARGUMENT
from ..sources.source import ItemSource, LocalSource, Source
from ..variables.containers.mappings import DictValue
from ..variables.containers.sequences import SequenceValue
from ..variables.core.base import Value
from ..variables.core.constant import BoundBuiltin
from ..variables.core.finalizers import ENDS_SOMETHING, has_finalizer, is_watched
from ..variables.python.builtin_functions import BuiltinValue
from ..variables.python.objects import ObjectValue
from ..variables.python.partials import MethodValue
from .generators import GeneratorValue

if TYPE_CHECKING:
    from .interpreter import Interpreter


def dies_visibly(tx: Interpreter, value: Value) -> bool:
    """Whether the program may see when this object dies: a generator that stands in the middle of a `try` or `with`
    (of one that an earlier part of the frame left, nobody knows where it stands), an object with a finalizer, one
    that the program has a weak reference to."""
    while isinstance(value, (BoundBuiltin, MethodValue)):  # a method holds its object
        value = value.owner
    if isinstance(value, GeneratorValue):
        return value.has_cleanup()
    if value in tx.trace.referents:
        return True
    if isinstance(value, ObjectValue) and (has_finalizer(value.python_type()) or is_watched(value.real)):
        return True
    source = value.source.base if isinstance(value.source, ItemSource) else value.source  # in the list it came in
    held = getattr(value, "real", None)
    if isinstance(value, BuiltinValue):
        held = getattr(value.function, "__self__", None)
    return isinstance(source, LocalSource) and type(held) in ENDS_SOMETHING


def let_go(tx: Interpreter, value: Value) -> None:
    """The frame drops a reference to `value`. Raises Unsupported where an object may die of that and the program sees
    it: what Python then runs is seen now, not where the frame ends."""
    if tx.parent is not None or value in tx.stack:
        return
    if isinstance(value, (SequenceValue, DictValue, ObjectValue)):
        _let_go_of_items(tx, value)
    if not dies_visibly(tx, value):
        return
    if all(other is not value or name.startswith(STACK_ARGUMENT) for name, other in tx.locals.items()):
        raise Unsupported(Reason.UNFINISHED_GENERATOR if _is_generator(value) else Reason.OBSERVABLE_FINALIZER, value)


def _let_go_of_items(tx: Interpreter, value: Value) -> None:
    """The frame drops a container or object of its own. Raises Unsupported where what dies with it is seen to die."""
    held = tx.locals.values()
    parts = [] if value in held else [value]
    for part in parts:
        if dies_visibly(tx, part):
            raise Unsupported(Reason.OBSERVABLE_FINALIZER, part)
        own = [item for item in _items(tx, part) if _is_own(item.source)]
        parts += [item for item in own if item not in held and item not in parts]


def _items(tx: Interpreter, value: Value) -> list[Value]:
    """What dies with a container that did not come from outside, or an object that the trace made."""
    if isinstance(value, ObjectValue) and tx.effects.is_new(value):
        return [held for held, _ in tx.effects.attributes.get(value, {}).values()]
    if value.source is not None and not isinstance(value.source, LocalSource):
        return []
    if isinstance(value, DictValue):
        return [item for item in value.items.values() if item is not None]
    return list(value.items) if isinstance(value, SequenceValue) else []


def _is_own(source: Source | None) -> bool:
    """Whether the frame alone holds what is read there: it has come over a break on the stack, or in a container."""
    if isinstance(source, ItemSource):
        return isinstance(source.base, LocalSource)
    return source is None or (isinstance(source, LocalSource) and source.name.startswith(STACK_ARGUMENT))


def _is_generator(value: Value) -> bool:
    return issubclass(value.python_type(), GeneratorType)
