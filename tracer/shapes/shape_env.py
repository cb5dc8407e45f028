"""The shape environment of a trace: torch's, with ptdebug's names and locations."""
from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import sympy
from torch.fx.experimental import _config, symbolic_shapes
from torch.fx.experimental.symbolic_shapes import ShapeEnv, has_free_unbacked_symbols
from torch.utils._sympy.value_ranges import ValueRanges
from torch.utils._traceback import CapturedTraceback

from ...artifacts.records import Location


@dataclass(frozen=True)
class _Place(symbolic_shapes.SLoc):
    """Where a guard comes from, in ShapeEnv's terms, with ptdebug's location."""

    ours: Location | None = None


_NOWHERE = _Place("", None)


class _Stacks(dict[sympy.Symbol, Any]):
    """Where unbacked symbols were made, if that is logged. torch formats these stacks for each error about a symbol,
    for which it loads all of TorchInductor: that takes a second of CPU time."""

    def __init__(self, log: logging.Logger) -> None:
        self._log = log

    def __setitem__(self, symbol: sympy.Symbol, stack: CapturedTraceback) -> None:
        if not self._log.isEnabledFor(logging.DEBUG):
            stack.cleanup()  # it is empty from now on
        super().__setitem__(symbol, stack)


Result = TypeVar("Result")


class CaptureShapeEnv(ShapeEnv):
    """A ShapeEnv that names its symbols s0, s1, ... and takes the location of a guard from the tracer instead of the
    stack.

    `settled` are the symbols that were specialized or expressed by others: (symbol, by what, where).
    """

    locate: Callable[[], Location] | None = None

    def __init__(self, **options: Any) -> None:
        self.settled: list[tuple[sympy.Symbol, sympy.Expr, Location | None]] = []
        self._assuming = False
        super().__init__(**options)
        self.var_to_stack = _Stacks(self.log)
        self.random_symbols: set[sympy.Symbol] = set()  # symbols for results of Python's random

    def by_example(self, first: Result | Exception, run: Callable[[], Result]) -> Result:
        """The result of an operation on fake tensors. `first` is what it gave, with new unbacked symbols, or raised.

        With `backed_size_oblivious`, torch before 2.13 gives `x[:n]` such a size where `n` may exceed the size of `x`,
        although no data decides it. There the operation runs again, looks at the sizes of this call, and what it finds
        becomes a condition on them. The first result where it depends on data.
        """
        before = list(self.pending_fresh_unbacked_symbols)
        if not before or not _config.backed_size_oblivious:
            if isinstance(first, Exception):
                raise first
            return first
        with _config.patch(backed_size_oblivious=False):  # type: ignore[attr-defined]
            again = run()
        by_data = not isinstance(first, Exception) and has_free_unbacked_symbols(again)
        dropped = self.pending_fresh_unbacked_symbols[len(before):] if by_data else before
        for symbol in dropped:
            self.pending_fresh_unbacked_symbols.remove(symbol)
            self.deferred_runtime_asserts.pop(symbol, None)
        return first if by_data else again  # type: ignore[return-value]

    def _maybe_guard_rel(self, expr: sympy.Expr) -> None:  # type: ignore[override]  # theirs is cached
        """Learn from a condition that was just assumed to hold.

        A condition on unbacked symbols is only checked when the graph runs. So it may neither replace one size by
        another everywhere, since the check itself would then compare a size with itself, nor narrow the range of
        inputs, since guards would then omit what only the check established.
        """
        outer = self._assuming
        self._assuming = outer or not expr.free_symbols <= self.backed_var_to_val.keys()
        try:
            super()._maybe_guard_rel(expr)
        finally:
            self._assuming = outer

    def _update_var_to_range(self, symbol: sympy.Symbol, vr: ValueRanges[Any], *args: Any, **options: Any) -> None:
        if not (self._assuming and symbol in self.backed_var_to_val):
            super()._update_var_to_range(symbol, vr, *args, **options)

    def _set_replacement(self, a: sympy.Symbol, tgt: sympy.Expr, msg: str) -> None:
        if self._assuming and msg != "find":  # it only shortens a chain of earlier replacements
            return
        super()._set_replacement(a, tgt, msg)
        if self.replacements.get(a) == tgt:
            self.settled.append((a, tgt, self.locate() if self.locate is not None else None))

    def _generate_unique_id(self, source_name: str) -> int:
        self.unique_ids.add(len(self.unique_ids))
        return len(self.unique_ids) - 1

    def _get_stack_summary(self, is_debug: bool = False, framework_loc: str | None = None) -> tuple[Any, str]:
        return (_NOWHERE if self.locate is None else _Place("", None, self.locate())), ""
