"""Lists, and what makes them: sorting, a real list, a node with several results."""
from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch

from ...breaks.reasons import Reason
from ...breaks.unsupported import Unsupported
from ...sources.display_names import display_name
from ...sources.source import ItemSource, Source
from ..core.base import Value
from ..core.constant import constant
from ..core.finalizers import refuse_visible_deaths
from ..core.iteration import collected, each
from ..core.late import late
from ..core.operators import apply, equal
from ..core.registry import FRESH, RESULTS, build, builds, from_python, wrap_result
from ..python.operand_errors import call_method_with
from .sequences import SequenceValue, TupleValue, read_items
from .slices import as_index, position, sliced

if TYPE_CHECKING:
    from ..core.base import Codegen, Translator


class ListValue(SequenceValue):
    """A list. The items of an existing list are read, and guarded, when traced code reads any of them: until then
    `real` is the list, and `added` what was appended."""

    __slots__ = ("_items", "_tx", "added", "real")

    def __init__(self, items: Sequence[Value], kind: type, source: Source | None = None) -> None:
        self.added: list[Value] = []
        self.real: list[Any] | None = None
        super().__init__(items, kind, source)

    def exists_as(self, tx: Translator, real: list[Any]) -> None:
        """It represents the list `real`, of which nothing was read yet."""
        self._tx = tx
        self.real = real

    @property
    def items(self) -> list[Value]:
        """All items."""
        if self.real is not None:
            real, self.real = self.real, None
            assert self.source is not None
            self._items = [*read_items(self._tx, real, self.source), *self.added]
        return self._items

    @items.setter
    def items(self, items: list[Value]) -> None:
        self._items = items

    def add(self, item: Value) -> None:
        """Append an item without reading the others."""
        (self.items if self.real is None else self.added).append(item)

    def getitem(self, tx: Translator, key: Value) -> Value:
        """As for sequences; a single item of an existing list is read alone."""
        if self.real is not None and key.is_constant() and type(key.as_constant()) is int:
            index = key.as_constant()
            if index < 0 and index + len(self.added) >= 0:
                return self.added[index]
            index += len(self.added) if index < 0 else 0
            if -len(self.real) <= index < len(self.real):
                assert self.source is not None
                return build(tx, self.real[index], ItemSource(self.source, index))
        return super().getitem(tx, key)

    def length(self, tx: Translator) -> Value:
        """The number of items; only the length is guarded."""
        if self.real is None:
            return super().length(tx)
        tx.guards.add(self.source, "LENGTH", len(self.real))
        return constant(len(self.real) + len(self.added))

    def additions(self) -> Value | None:
        """What was appended to a list of which nothing was read."""
        return ListValue(self.added, list) if self.real is not None else None

    def describe(self) -> str:
        """The type and the number of items."""
        if self.real is None or self.source is None:
            return super().describe()
        return f"a list `{display_name(self.source)}`"

    def is_constant(self) -> bool:
        """Never: it may change."""
        return False

    def as_constant(self) -> list[Any]:
        """A list of the current items, for functions that only read it."""
        return [item.as_constant() for item in self.items]

    def like(self, items: Sequence[Value]) -> Value:
        """A new list."""
        return ListValue(items, list)

    def binary(self, tx: Translator, function: Callable[..., Any], left: Value, right: Value) -> Value | None:
        """As sequences; `+=` and `*=` change the list."""
        if left is self and function is operator.iadd and not _has_own_say(right, "__radd__"):
            self.call_method(tx, "extend", [right], {})
            return self
        if left is self and function is operator.imul and issubclass(right.python_type(), int):
            tx.effects.mutated(self)
            self.items[:] = self.items * as_index(tx, right)
            return self
        return super().binary(tx, function, left, right)

    def call_method(self, tx: Translator, name: str, args: Sequence[Value], kwargs: Mapping[str, Value]) -> Value:
        """Methods that change the list, from the table; others as sequences."""
        method = MUTATING.get(name)
        if method is None:
            return super().call_method(tx, name, args, kwargs)
        tx.effects.mutated(self)
        if name in _DROPPING:
            refuse_visible_deaths(self.items)
        result = call_method_with(method, name, tx, self, args, kwargs)
        return result if result is not None else constant(None)

    def setitem(self, tx: Translator, key: Value, value: Value) -> None:
        """Assign one item or a slice."""
        where = position(tx, key)
        if isinstance(where, int) and not -len(self.items) <= where < len(self.items):
            tx.raise_observed(IndexError, "list assignment index out of range")
        tx.effects.mutated(self)
        refuse_visible_deaths([self.items[where]] if isinstance(where, int) else sliced(tx, self.items, where))
        if isinstance(where, int):
            self.items[where] = value
            return
        items = list(value.iterate(tx))
        replaced = len(self.items[where])
        if where.step not in (None, 1) and replaced != len(items):
            what = f"sequence of size {len(items)} to extended slice of size {replaced}"
            tx.raise_observed(ValueError, f"attempt to assign {what}")
        self.items[where] = items

    def delitem(self, tx: Translator, key: Value) -> None:
        """Remove one item or a slice."""
        where = position(tx, key)
        if isinstance(where, int) and not -len(self.items) <= where < len(self.items):
            tx.raise_observed(IndexError, "list assignment index out of range")
        tx.effects.mutated(self)
        dropped = [self.items[where]] if isinstance(where, int) else sliced(tx, self.items, where)
        refuse_visible_deaths(item for item in dropped if item not in tx.stack)
        del self.items[where]

    def reconstruct(self, codegen: Codegen) -> None:
        """Push the items, then a list of them."""
        for item in self.items:
            codegen(item)
        codegen.build("BUILD_LIST", len(self.items))


# ---- methods that change a list --------------------------------------------------------------------------------------
def _append(tx: Translator, self: ListValue, item: Value) -> None:
    self.add(item)


def _extend(tx: Translator, self: ListValue, items: Value) -> None:
    if isinstance(items, (ListValue, TupleValue)):
        for item in list(items.items):
            self.add(item)
    else:
        for item in each(tx, items, hint=True):  # one by one: the list may be read meanwhile
            self.add(item)


def _insert(tx: Translator, self: ListValue, index: Value, item: Value) -> None:
    self.items.insert(as_index(tx, index), item)


def _pop(tx: Translator, self: ListValue, index: Value | None = None) -> Value:
    where = as_index(tx, index) if index is not None else -1
    if not -len(self.items) <= where < len(self.items):
        message = "pop index out of range" if self.items else f"pop from empty {self.kind.__name__}"
        tx.raise_observed(IndexError, message)
    return self.items.pop(where)


def _remove(tx: Translator, self: ListValue, item: Value) -> None:
    for i, own in enumerate(self.items):
        if equal(tx, own, item):
            del self.items[i]
            return
    tx.raise_observed(ValueError, f"{self.kind.__name__}.remove(x): x not in {self.kind.__name__}")


def _sort(tx: Translator, self: ListValue, *, key: Value | None = None, reverse: Value | None = None) -> None:
    items, self.items = self.items, []  # as traced code sees it meanwhile
    try:
        sort_items(tx, items, key, is_backwards(tx, reverse))
        if self.items:
            tx.raise_observed(ValueError, "list modified during sort")
    finally:
        self.items = items


def is_backwards(tx: Translator, reverse: Value | None) -> bool:
    """The `reverse=` argument of a sort. Python 3.11 accepts integers only, later versions anything."""
    if reverse is not None and not hasattr(reverse.python_type(), "__index__"):
        raise Unsupported(Reason.UNSUPPORTED_ARGUMENT, detail=f"a sort with reverse={reverse.describe()}")
    return reverse is not None and reverse.truth(tx)


def sort_items(tx: Translator, items: list[Value], key: Value | None, reverse: bool) -> None:
    """Sort `items` by `key`, with a user-defined `<`; where that fails they are left in the order reached."""
    no_key = key is None or (key.is_constant() and key.as_constant() is None)
    keys = list(items) if no_key else [key.call(tx, [item], {}) for item in items]  # type: ignore[union-attr]

    def compare(left: int, right: int) -> int:
        tx.trace.spend()
        return -1 if apply(tx, operator.lt, keys[left], keys[right]).truth(tx) else 0

    by_key: Callable[[int], Any] = functools.cmp_to_key(compare)
    order, before = [by_key(number) for number in range(len(keys))], list(items)
    try:
        order.sort(reverse=reverse)
    finally:
        items[:] = [before[one.obj] for one in order]


def _init(tx: Translator, self: ListValue, items: Value | None = None) -> None:
    self.items[:] = collected(tx, items) if items is not None else []


MUTATING: dict[str, Callable[..., Value | None]] = {
    "__init__": _init,
    "append": _append,
    "extend": _extend,
    "insert": _insert,
    "pop": _pop,
    "remove": _remove,
    "sort": _sort,
    "clear": lambda tx, self: self.items.clear(),
    "reverse": lambda tx, self: self.items.reverse(),
    "__setitem__": lambda tx, self, key, item: self.setitem(tx, key, item),
    "__delitem__": lambda tx, self, key: self.delitem(tx, key),
    "__iadd__": lambda tx, self, other: apply(tx, operator.iadd, self, other),
}
_DROPPING = ("__init__", "clear", "remove")
"""Those that drop items."""


# ---- real lists, and results of nodes --------------------------------------------------------------------------------
@builds(list)
def build_list(tx: Translator, obj: list[Any], source: Source | None) -> Value:
    """A list. Subclasses are objects of their class."""
    if type(obj) is not list:
        return late.build_object(tx, obj, source)
    if source is None:
        return ListValue([from_python(tx, item) for item in obj], list)
    value = ListValue([], list, source)
    tx.trace.values_by_id[id(obj)] = value
    tx.guards.add(source, "TYPE_MATCH", list)
    value.exists_as(tx, obj)
    return value


def make_list(tx: Translator, items: Sequence[Value]) -> Value:
    """A list made in the trace."""
    return ListValue(items, list)


def _has_own_say(right: Value, reflected: str) -> bool:
    """Whether Python calls the right operand's method, which a list does not support: an array, a user's object."""
    kind = right.python_type()
    return not issubclass(kind, torch.Tensor) and hasattr(kind, reflected)


def _wrap_sequence(tx: Translator, node: torch.fx.Node, fake: Any) -> Value:
    """Each item of a result that is a tuple or a list is a node of its own."""
    items = []
    for i, part in enumerate(fake):
        if isinstance(part, (torch.Tensor, torch.SymInt, torch.SymFloat, torch.SymBool, tuple, list)):
            item = tx.graph.graph.create_node("call_function", operator.getitem, (node, i))
            item.meta.update(node.meta)
            item.meta["val"] = part
            items.append(wrap_result(tx, item, part))
        else:
            items.append(from_python(tx, part))
    kind = type(fake)
    return ListValue(items, list) if kind is list else TupleValue(items, kind)


RESULTS.append((lambda fake: isinstance(fake, (tuple, list)), _wrap_sequence))
FRESH[list] = lambda tx, obj: build_list(tx, obj, None)
