"""`with warnings.catch_warnings():`, its filters and the warnings inside, all within the trace.

The filters that the block sets are gone when it ends, so they stay in the trace: a warning that one of them matches is
ignored, raised, or appended to the block's list. What none of them matches would be shown, which only eager does.
"""
from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ...breaks.reasons import Reason
from ...breaks.unsupported import Unsupported
from ..containers.lists import ListValue
from ..core.base import Value, with_arguments
from ..core.constant import constant, is_none
from ..core.handlers import handles
from .exceptions import make_exception
from .instances import new_object

if TYPE_CHECKING:
    from ..core.base import Codegen, Translator

Args = Sequence[Value]
Kwargs = Mapping[str, Value]


class CaughtWarnings(Value):
    """warnings.catch_warnings(record=...). `filters` are those that the block set, the first one first; `log` is the
    list of caught warnings, `operations` how many the graph had when the block began."""

    __slots__ = ("filters", "log", "operations", "record")

    def __init__(self, record: bool) -> None:
        super().__init__()
        self.record = record
        self.filters: list[tuple[str, str, type[Warning]]] = []
        self.log: ListValue | None = None
        self.operations = 0

    def python_type(self) -> type:
        """The class."""
        return warnings.catch_warnings

    def truth(self, tx: Translator) -> bool:
        """It is true."""
        return True

    def getattr(self, tx: Translator, name: str) -> Value:
        """The methods that `with` calls."""
        if name == "__exit__":
            return _Leave(self)
        return super().getattr(tx, name)

    def call_method(self, tx: Translator, name: str, args: Args, kwargs: Kwargs) -> Value:
        """The block begins or ends."""
        if name == "__exit__":
            return self.leave(tx)
        if name != "__enter__" or self in tx.trace.caught_warnings:
            return super().call_method(tx, name, args, kwargs)
        tx.trace.caught_warnings.append(self)
        self.operations = tx.graph.operations
        if not self.record:
            return constant(None)
        self.log = ListValue([], list)
        return self.log

    def leave(self, tx: Translator) -> Value:
        """The block ends. Operators may have warned, too, which a list of warnings would contain."""
        if self.record and tx.graph.operations != self.operations:
            raise Unsupported(
                Reason.UNSUPPORTED_ARGUMENT, warnings.filterwarnings,
                detail="around operators, whose warnings are recorded",
            )
        tx.trace.caught_warnings.remove(self)
        return constant(None)

    def reconstruct(self, codegen: Codegen) -> None:
        """A new one that has not been entered."""
        if self.log is not None or self.filters:
            super().reconstruct(codegen)
        codegen.push_null()
        codegen.const(warnings.catch_warnings)
        codegen.const(self.record)
        codegen.call(1, ("record",))

    def describe(self) -> str:
        """For messages."""
        return "warnings.catch_warnings"


class _Leave(Value):
    """`__exit__` of the block."""

    __slots__ = ("owner",)

    def __init__(self, owner: CaughtWarnings) -> None:
        super().__init__()
        self.owner = owner

    def call(self, tx: Translator, args: Args, kwargs: Kwargs) -> Value:
        """The block ends."""
        return self.owner.leave(tx)


def _catch(tx: Translator, *, record: Value | None = None, **more: Value) -> Value:
    if more:
        raise Unsupported(Reason.UNSUPPORTED_ARGUMENT, warnings.catch_warnings, detail=f"with {', '.join(more)}")
    return CaughtWarnings(record is not None and record.truth(tx))


def _simple_filter(
    tx: Translator, action: Value, category: Value | None = None, lineno: Value | None = None,
    append: Value | None = None,
) -> Value:  # fmt: skip
    return _filter(tx, "simplefilter", action, constant(""), category, constant(""), lineno, append)


def _filter_warnings(
    tx: Translator, action: Value, message: Value | None = None, category: Value | None = None,
    module: Value | None = None, lineno: Value | None = None, append: Value | None = None,
) -> Value:  # fmt: skip
    return _filter(tx, "filterwarnings", action, message, category, module, lineno, append)


def _filter(tx: Translator, name: str, action: Value, message: Value | None, category: Value | None,
            module: Value | None, lineno: Value | None, append: Value | None) -> Value:  # fmt: skip
    open_blocks = tx.trace.caught_warnings
    pattern, where, line = (value.as_constant() if value is not None else "" for value in (message, module, lineno))
    kind = category.as_constant() if category is not None else Warning
    known = isinstance(kind, type) and issubclass(kind, Warning)
    if not open_blocks or not known or where or line or action.as_constant() not in ("ignore", "always", "error"):
        raise Unsupported(Reason.UNSUPPORTED_ARGUMENT, warnings, name)
    filters = open_blocks[-1].filters
    place = len(filters) if append is not None and append.truth(tx) else 0
    filters.insert(place, (action.as_constant(), pattern, kind))
    return constant(None)


def _warn(
    tx: Translator, message: Value, category: Value | None = None, stacklevel: Value | None = None,
    source: Value | None = None,
) -> Value:  # fmt: skip
    if not tx.trace.caught_warnings:
        raise Unsupported(Reason.UNSUPPORTED_ARGUMENT, warnings.warn)
    given = issubclass(message.python_type(), Warning)
    if category is None or is_none(category) or given:
        kind = message.python_type() if given else UserWarning
    else:
        kind = category.as_constant()
    warning = message if given else make_exception(tx, kind, [message])
    text = str(message.as_constant()) if not given else ""
    filters = [found for block in reversed(tx.trace.caught_warnings) for found in block.filters]
    action = next((action for action, pattern, of in filters if issubclass(kind, of)
                   and (not pattern or re.match(pattern, text, re.IGNORECASE))), "")  # fmt: skip
    if action == "error":
        tx.raise_value(warning)
    log = tx.trace.caught_warnings[-1].log
    near = stacklevel is None or stacklevel.as_constant() == 1
    if action == "ignore":
        return constant(None)
    if action != "always" or log is None or not near or (given and filters and any(p for _, p, _ in filters)):
        raise Unsupported(Reason.UNSUPPORTED_ARGUMENT, warnings.warn)
    tx.effects.mutated(log)
    log.items.append(_recorded(tx, warning, kind, source))
    return constant(None)


def _recorded(tx: Translator, warning: Value, kind: type, source: Value | None) -> Value:
    made, place = new_object(tx, warnings.WarningMessage), tx.info.location(tx.current)
    parts = {
        "message": warning, "category": constant(kind), "filename": constant(place.file),
        "lineno": constant(place.line), "file": constant(None), "line": constant(None),
        "source": source or constant(None),
        "_category_name": constant(kind.__name__),
    }  # fmt: skip
    for name, value in parts.items():
        made.generic_setattr(tx, name, value)
    return made


def _handled(function: Callable[..., Value], called: Any) -> None:
    @handles(called)
    def handler(tx: Translator, args: Args, kwargs: Kwargs) -> Value:
        result: Value = with_arguments(function, tx, *args, **kwargs)
        return result


for _function, _called in ((_catch, warnings.catch_warnings), (_simple_filter, warnings.simplefilter),
                           (_filter_warnings, warnings.filterwarnings), (_warn, warnings.warn)):  # fmt: skip
    _handled(_function, _called)
