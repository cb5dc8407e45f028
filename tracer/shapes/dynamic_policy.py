"""Which sizes and numbers of a code object are symbols: what has changed between its compilations, or is marked."""
from __future__ import annotations

from typing import Any

import torch
from torch.utils._sympy.numbers import int_oo
from torch.utils._sympy.value_ranges import ValueRanges

from ...artifacts.context import CompileContext
from ..sources.source import AttrSource, ItemSource, Source

Sizes = tuple[int | None, ...]
"""An integer for each dimension; None where it is a symbol, or has been seen to change."""

MARKED = "marked dynamic by the user"


class DynamicPolicy:
    """Decides which sizes and ints of a code object are symbols: what changed becomes one, so that a third value does
    not recompile.

    `history` outlives the compilation (it is part of the code object's frame state). `dynamic`: None = what has changed
    between compilations; True = every size of 2 or more from the start; False = nothing. Each size, except of
    parameters, is a decision of kind "dynamic", made by `context` once per compilation.
    """

    def __init__(
        self, history: dict[str, Any], dynamic: bool | None = None, context: CompileContext | None = None
    ) -> None:
        self.history = history
        self.dynamic = dynamic
        self.context = context
        self._decided: dict[str, bool] = {}
        self.reasons: dict[str, str] = {}  # why each size or number is a symbol or not

    def tensor(self, source: Source, tensor: torch.Tensor) -> tuple[Sizes, Sizes]:
        """(sizes, strides) of `tensor` with None for each symbol. Parameters are static, and a module's buffers as long
        as their sizes do not change, `dynamic` or not."""
        sizes, strides = tuple(tensor.size()), tuple(tensor.stride())
        if self.dynamic is False or isinstance(tensor, torch.nn.Parameter):
            return sizes, strides
        wanted_sizes, wanted_strides = self._remember(source.expression, sizes, strides)
        static = getattr(tensor, "_dynamo_static_indices", ())
        marked, strictly = _marked_dynamic(tensor), getattr(tensor, "_dynamo_dynamic_indices", ())
        chosen, dynamic = [], bool(self.dynamic) and not _is_buffer(source)
        for i, size in enumerate(wanted_sizes):
            varies = i in marked or ((size is None or dynamic) and i not in static)
            why = (
                MARKED if i in strictly
                else "maybe_mark_dynamic requests it" if i in marked
                else "marked static by the user" if i in static
                else "it had another value at an earlier compilation" if size is None
                else "dynamic=True" if dynamic
                else "it has not changed so far"
            )
            chosen.append(None if self._decide(f"{source.expression}.size()[{i}]", varies, why) else sizes[i])
        return tuple(chosen), wanted_strides

    def _decide(self, subject: str, varies: bool, why: str) -> bool:
        """Whether `subject` is a symbol; when tracing restarts, the first answer is reused."""
        self.reasons[subject] = why
        if self.context is None or not (self.context.recording or self.context.overrides):
            return varies
        if subject not in self._decided:
            default = "symbol" if varies else "number"
            options = ("symbol", "number")
            self._decided[subject] = self.context.decide("dynamic", subject, options, default, why) == "symbol"
        return self._decided[subject]

    def _remember(self, key: str, sizes: tuple[int, ...], strides: tuple[int, ...]) -> tuple[Sizes, Sizes]:
        seen = self.history.get(key)
        if not isinstance(seen, tuple) or len(seen[0]) != len(sizes):
            self.history[key] = (sizes, strides)
            return sizes, strides
        merged = tuple(
            tuple(old if old == new else None for old, new in zip(before, now))
            for before, now in zip(seen, (sizes, strides))
        )
        self.history[key] = merged
        return merged[0], merged[1]

    def number(self, source: Source, value: float) -> bool:
        """Whether the int or float behind `source` is an input: it had another value before."""
        if self.dynamic is False:
            return False
        key = source.expression
        seen = self.history.setdefault(key, value)
        if isinstance(seen, tuple):
            return False
        if seen is not None and (type(seen) is not type(value) or seen == value):
            return False
        self.history[key] = None
        return self._decide(key, True, "it had another value at an earlier compilation")


def marked_range(tensor: torch.Tensor, dimension: int) -> ValueRanges[Any] | None:
    """The min and max given to torch._dynamo.mark_dynamic for a dimension."""
    for marked in getattr(tensor, "_dynamo_dynamic_range", ()):
        if marked.dim == dimension and (marked.min is not None or marked.max is not None):
            return ValueRanges(marked.min or 0, int_oo if marked.max is None else marked.max)
    return None


def _is_buffer(source: Source) -> bool:
    """Whether a tensor is a module's buffer."""
    owner = source.owner if isinstance(source, ItemSource) else None
    return isinstance(owner, AttrSource) and owner.name == "_buffers"


def _marked_dynamic(tensor: torch.Tensor) -> set[int]:
    """Dimensions that the user marked with torch._dynamo.mark_dynamic, maybe_mark_dynamic or mark_unbacked."""
    marked: set[int] = set()
    for attribute in ("_dynamo_dynamic_indices", "_dynamo_weak_dynamic_indices", "_dynamo_unbacked_indices"):
        marked.update(getattr(tensor, attribute, ()))
    return marked
