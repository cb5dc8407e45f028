"""keys(), values() and items() of dicts."""
from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..core.base import Value
from ..core.constant import constant
from ..core.late import late
from ..core.operators import equal
from .dict_iterators import DictIterator
from .mappings import DictValue
from .sequences import make_tuple

if TYPE_CHECKING:
    from ..core.base import Codegen, Translator


class DictView(Value):
    """keys(), values() or items() of a dict. `of` is the class of the dict in traced code: `owner` is a plain dict
    where it stores the items of an instance of a subclass."""

    __slots__ = ("of", "owner", "what")

    def __init__(self, owner: DictValue, what: str) -> None:
        super().__init__()
        self.owner = owner
        self.of = owner.python_type()
        self.what = what

    def python_type(self) -> type:
        """dict_keys, dict_values or dict_items."""
        return type(getattr(self.owner.kind(), self.what)())

    def truth(self, tx: Translator) -> bool:
        """Whether there are items."""
        return self.owner.truth(tx)

    def length(self, tx: Translator) -> Value:
        """The number of items."""
        return self.owner.length(tx)

    def iterate(self, tx: Translator) -> Sequence[Value]:
        """The keys, values, or pairs."""
        if self.what == "keys":
            return self.owner.iterate(tx)
        pairs = self.owner.pairs(tx)
        return [value for _, value in pairs] if self.what == "values" else [make_tuple(tx, pair) for pair in pairs]

    def iter(self, tx: Translator) -> Value:
        """An iterator that fails when the dict changes its size."""
        return DictIterator(tx, self.owner, self.what)

    def reversed(self, tx: Translator) -> Value:
        """The same, from the end."""
        return DictIterator(tx, self.owner, self.what, -1)

    def contains(self, tx: Translator, item: Value) -> bool:
        """`in` the view."""
        if self.what == "keys":
            return self.owner.contains(tx, item)
        if self.what == "values":
            return any(equal(tx, own, item) for own in self.iterate(tx))
        if not issubclass(item.python_type(), tuple):
            return False
        pair = item.iterate(tx)
        found = self.owner.find(tx, pair[0]) if len(pair) == 2 else None
        return found is not None and equal(tx, found, pair[1])

    def binary(self, tx: Translator, function: Callable[..., Any], left: Value, right: Value) -> Value | None:
        """Views of keys and pairs are like sets."""
        if self.what == "values":
            return None
        return late.with_views(tx, function, left, right)

    def call_method(self, tx: Translator, name: str, args: Sequence[Value], kwargs: Mapping[str, Value]) -> Value:
        """The special methods."""
        table = {"__iter__": self.iter, "__len__": self.length, "__reversed__": self.reversed}
        if name in table and not args:
            return table[name](tx)
        if name in ("isdisjoint", "__contains__"):
            found = any(self.contains(tx, i) for i in (args[0].iterate(tx) if name == "isdisjoint" else args))
            return constant(found != (name == "isdisjoint"))
        return super().call_method(tx, name, args, kwargs)

    def reconstruct(self, codegen: Codegen) -> None:
        """The view of the dict."""
        codegen.push_null()
        codegen(self.owner)
        codegen.load_attr(self.what)
        codegen.call(0)

    def describe(self) -> str:
        """For messages."""
        return f"the {self.what} of {self.owner.describe()}"
