"""`str.format` and `%` of a constant template and values that may vary from call to call, part by part."""
from __future__ import annotations

import operator
import re
from _string import formatter_field_name_split
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from string import Formatter
from typing import TYPE_CHECKING, Any

from ...breaks.reasons import Reason
from ...breaks.unsupported import Unsupported
from ..containers.mappings import DictValue
from ..containers.sequences import TupleValue
from ..core.base import Value
from ..core.constant import constant, fold
from ..core.late import late
from ..python.builtins import format_value
from ..python.symbolic_numbers import NumberValue
from .strings import joined, number_text, string_of

if TYPE_CHECKING:
    from ..core.base import Translator


# ---- str.format ------------------------------------------------------------------------------------------------------
def _formatted(tx: Translator, template: str, args: Sequence[Value], kwargs: Mapping[str, Value]) -> Value:
    """template.format(*args, **kwargs). A template that does not fit the arguments is left to eager, which raises."""
    firsts = list(_firsts(template))
    if "" in firsts and any(isinstance(first, int) for first in firsts):  # numbered, and not
        raise Unsupported(Reason.UNSUPPORTED_ARGUMENT, str.format)
    return joined(tx, list(_fields(tx, template, args, kwargs, iter(range(len(args))))))


def _firsts(template: str) -> Iterator[int | str]:
    """The names in the fields, and in their formats."""
    try:
        parts = list(Formatter().parse(template))
    except ValueError as error:
        raise Unsupported(Reason.UNSUPPORTED_ARGUMENT, str.format) from error
    for _, field, spec, _ in parts:
        if field is not None:
            yield formatter_field_name_split(field)[0]
            yield from _firsts(spec or "")


def _fields(
    tx: Translator, template: str, args: Sequence[Value], kwargs: Mapping[str, Value], numbers: Iterator[int]
) -> Iterator[Value]:
    """The strings that the template's parts become. `numbers` counts the fields without a name."""
    for text, field, spec, conversion in Formatter().parse(template):
        yield constant(text)
        if field is None:
            continue
        value = _argument(tx, field, args, kwargs, numbers)
        inner = joined(tx, list(_fields(tx, spec, args, kwargs, numbers))) if spec else None
        if conversion not in (None, "s", "r", "a"):
            raise Unsupported(Reason.UNSUPPORTED_ARGUMENT, str.format)
        yield format_value(tx, value, conversion or "", inner)


def _argument(
    tx: Translator, field: str, args: Sequence[Value], kwargs: Mapping[str, Value], numbers: Iterator[int]
) -> Value:
    """The argument that a field names, or an attribute or item of one."""
    first, rest = formatter_field_name_split(field)
    if first == "":
        first = next(numbers, None)
    found = kwargs.get(first) if isinstance(first, str) else None
    if isinstance(first, int) and first < len(args):
        found = args[first]
    if found is None:
        raise Unsupported(Reason.UNSUPPORTED_ARGUMENT, str.format)
    for is_attribute, name in rest:
        found = found.getattr(tx, name) if is_attribute else found.getitem(tx, constant(name))
    return found


# ---- % ---------------------------------------------------------------------------------------------------------------
_CONVERSION = re.compile(r"%(?:\((?P<key>\w+)\))?(?P<flags>[#0\- +]*)(?P<width>\d*)(?P<rest>\.\d+)?(?P<kind>[a-zA-Z%])")

_ALIGNED = {"": "", "0": "0", "-": "<", "+": "+", " ": " "}
"""Flags of `%d`, as `format` writes them."""

_INTEGERS = {"d": "d", "i": "d", "u": "d", "x": "x", "X": "X", "o": "o"}
_TEXTS: dict[str, Callable[[Any], str]] = {"s": str, "r": repr, "a": ascii}


def _percent(tx: Translator, template: str, given: Value) -> Value:
    """template % given. What does not fit is left to eager, which raises."""
    refused = partial(Unsupported, Reason.FORMAT_STRING, given=(given,), detail=f"in {template!r}")
    pending = list(given.iterate(tx)) if isinstance(given, TupleValue) else [given]
    pieces: list[Value] = []
    end = keys = 0
    for match in _CONVERSION.finditer(template):
        if "%" in template[end : match.start()]:
            raise refused()
        pieces.append(constant(template[end : match.start()]))
        end = match.end()
        if match[0] == "%%":
            pieces.append(constant("%"))
        elif match["kind"] in "%hlL":  # the last three are length modifiers, which have no effect
            raise refused()
        elif match["key"] is not None:
            if not isinstance(given, DictValue):
                raise refused()
            keys += 1
            pieces.append(_converted(tx, match, given.getitem(tx, constant(match["key"]))))
        elif pending:
            pieces.append(_converted(tx, match, pending.pop(0)))
        else:
            raise refused()
    if "%" in template[end:] or (pending and not keys) or (keys and pending != [given]):
        raise refused()
    return joined(tx, [*pieces, constant(template[end:])])


def _converted(tx: Translator, match: re.Match[str], value: Value) -> Value:
    """One conversion."""
    kind, flags, width = match["kind"], match["flags"], match["width"]
    if kind in _TEXTS:
        text = string_of(tx, value, _TEXTS[kind])
        if not (flags or width or match["rest"]):
            return text
        return _folded(tx, f"%{flags}{width}{match['rest'] or ''}s", text)
    whole = isinstance(value, NumberValue) and value.python_type() is int
    if whole and kind in _INTEGERS and flags in _ALIGNED and not match["rest"]:
        assert isinstance(value, NumberValue)
        return number_text(tx, value, f"{_ALIGNED[flags]}{width}{_INTEGERS[kind]}")
    if isinstance(value, NumberValue):
        value = constant(value.specialize(tx))
    return _folded(tx, match[0].replace(f"({match['key']})", "", 1), value)


def _folded(tx: Translator, template: str, value: Value) -> Value:
    return fold(tx, operator.mod, [constant(template), constant((value.as_constant(),))])


late.format_string = _formatted
late.format_percent = _percent
