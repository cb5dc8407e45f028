"""iter() and reversed() of dicts and of their views."""
from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from ...breaks.reasons import Reason
from ...breaks.unsupported import Unsupported
from ..core.base import Value
from ..core.constant import OneByOneIterator, constant
from ..core.late import late
from .mappings import DictValue

if TYPE_CHECKING:
    from ..core.base import Codegen, Translator

_END = object()


class DictIterator(OneByOneIterator):
    """iter() of a dict or a view of one, from the end where `step` is -1. A real iterator over the keys decides the
    effect of changes meanwhile; `taken` counts its items, -1 at the end."""

    __slots__ = ("changes", "keys", "owner", "real", "step", "taken", "what")

    def __init__(self, tx: Translator, owner: DictValue, what: str, step: int = 1) -> None:
        super().__init__()
        owner.guard_keys(tx)
        self.owner = owner
        self.what = what
        self.step = step
        self.keys = list(owner.items)
        real: Any = owner.items.items() if what == "items" else owner.items  # which fail in different ways
        self.real = iter(real) if step > 0 else reversed(real)
        self.changes = owner.changes
        self.taken = 0

    def python_type(self) -> type:
        """dict_keyiterator, dict_valueiterator, ..."""
        view = getattr(self.owner.kind(), self.what)()
        return type(iter(view) if self.step > 0 else reversed(view))

    def next(self, tx: Translator) -> Value | None:
        """The next key, value or pair; None at the end, for good."""
        ordered = self.owner.kind is OrderedDict
        if self.taken < 0 or (ordered and self.taken == len(self.keys)):
            return None
        if ordered and self.changes != self.owner.changes:
            tx.raise_observed(RuntimeError, "OrderedDict mutated during iteration")
        try:
            found: Any = next(self.real, _END)
        except RuntimeError as error:
            tx.raise_observed(RuntimeError, *error.args)
        if found is _END:
            self.taken = -1
            return None
        self.taken += 1
        key = found[0] if self.what == "items" else found
        shown = self.owner.key_value(tx, key)
        if self.what == "keys":
            return shown
        value = self.owner.read(tx, key)
        return value if self.what == "values" else late.make_tuple(tx, [shown, value])

    def parts(self) -> tuple[Callable[..., Any], list[Value]]:
        """The call that makes an iterator over the same dict at the same position: function and arguments, the dict
        first."""
        if self.taken >= 0 and self.changes != self.owner.changes:
            raise Unsupported(Reason.RECONSTRUCT, self, detail="of a dict whose keys changed")
        return view_iterator_at, [self.owner, constant(self.what), constant(self.step), constant(self.taken)]

    def reconstruct(self, codegen: Codegen) -> None:
        """That call, once the dict has its items."""
        if codegen.effects.refills(self.owner):
            raise Unsupported(Reason.RECONSTRUCT, self, detail="of a dict that changed")
        codegen.call_const(*self.parts())

    def describe(self) -> str:
        """For messages."""
        return f"an iterator over the {self.what}"


def view_iterator_at(owner: Mapping[Any, Any], what: str, step: int, taken: int) -> Any:
    """iter(owner.keys()) (values, items; reversed for a `step` of -1) after `taken` items; exhausted for -1."""
    view = getattr(owner, what)()
    iterator = iter(view) if step > 0 else reversed(view)
    for _ in range(taken if taken >= 0 else len(view) + 1):
        next(iterator, None)
    return iterator


late.dict_iterator = DictIterator
