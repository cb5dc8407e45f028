"""Values in one line, with what they are made of, for somebody who looks at the tracer's stack and variables.

Nothing is read for it that the trace has not read: that would be guarded.
"""
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..sources.display_names import display_name
from ..variables.containers.lists import ListValue
from ..variables.containers.mappings import DictValue
from ..variables.containers.sequences import TupleValue
from ..variables.core.base import Value
from ..variables.python.cells import CellValue
from ..variables.python.symbolic_numbers import NumberValue
from ..variables.torch.tensor import TensorValue

SHOWN = 4
"""Items of a container that are shown."""
UNREAD = "an argument that was not read yet"


def value_text(value: Value) -> str:
    """A value: what the program calls it, with a tensor's dtype, sizes and node, and the first items of containers."""
    return _text(value, deep=True)


def _text(value: Value, deep: bool) -> str:
    for kind, describe in _KINDS.items():
        if isinstance(value, kind):
            return describe(value, deep)
    return value.describe()


def _tensor(value: TensorValue, deep: bool) -> str:
    fake = value.fake
    sizes = ", ".join(map(str, fake.shape))
    device = "" if fake.device.type == "cpu" else f" {fake.device}"
    grad = " requires_grad" if fake.requires_grad else ""
    if not deep:
        return value.node.name if value.source is None else display_name(value.source)
    node = f", node {value.node.name}" if value.source is None else ""  # that of an input is named after its source
    return f"{value.describe()}: {str(fake.dtype).removeprefix('torch.')}[{sizes}]{device}{grad}{node}"


def _number(value: NumberValue, deep: bool) -> str:
    return f"{value.describe()}: {value.symbol}"


def _list(value: ListValue, deep: bool) -> str:
    if value.real is None:
        return _sequence(value, value._items, deep)
    added = f"; {len(value.added)} appended" if value.added else ""
    return f"{value.describe()}, of which nothing was read{added}"


def _tuple(value: TupleValue, deep: bool) -> str:
    return _sequence(value, value.items, deep)


def _sequence(value: Value, items: Sequence[Value], deep: bool) -> str:
    return value.describe() + _items([_text(item, deep=False) for item in items[:SHOWN]], len(items), deep)


def _dict(value: DictValue, deep: bool) -> str:
    return value.describe() + _items([_key(key) for key in list(value.items)[:SHOWN]], len(value.items), deep)


def _key(key: Any) -> str:
    if isinstance(key, Value):
        return key.describe()
    return repr(key)[:40] if type(key) in _PLAIN else f"a {type(key).__name__}"


_PLAIN = (str, int, float, bool, type(None))
"""Types whose `repr` runs nothing of the program."""


def _cell(value: CellValue, deep: bool) -> str:
    held = f": {_text(value.content, deep=False)}" if value.content is not None else ""
    return value.describe() + held


def _items(shown: list[str], count: int, deep: bool) -> str:
    if not deep or not shown:
        return ""
    return f": {', '.join(shown)}{', ...' if count > len(shown) else ''}"


_KINDS: dict[type[Value], Callable[[Any, bool], str]] = {
    TensorValue: _tensor, NumberValue: _number, ListValue: _list, TupleValue: _tuple, DictValue: _dict,
    CellValue: _cell,
}
