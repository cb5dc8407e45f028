"""What values are held against: one graph in eager, the same in float64, and with each operation rounded at random."""
from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import suppress
from functools import cached_property, partial
from typing import Any

import torch

from ...artifacts.records import Graph, TensorMeta
from ..recorded.state import deterministic
from ..verdicts.compare import DRAWS, Comparison, compare, judge
from .rungs import Execution

Noise = torch.Generator | None
Run = Callable[[torch.dtype | None, Noise], Execution]
"""Runs the graph: its floats in that dtype, or as they are; with each result rounded at random."""


_ALLOCATION = re.compile(r"\b(new_)?empty(_like|_strided|_permuted)?\b")


class Reference:
    """One graph in eager. `drawn` runs it rounded at random, where `run` cannot; `record` is the graph as recorded."""

    def __init__(self, run: Run, drawn: Run | None = None, record: Graph | None = None) -> None:
        self._run = run
        self._drawn = drawn or run
        nodes = record.nodes if record is not None else ()
        self._metas = {node.id: node.value for node in nodes}
        self._undefined = {node.id for node in nodes if _ALLOCATION.search(node.target)}

    @cached_property
    def eager(self) -> Execution:
        """As it is. Raises what the graph raises."""
        with deterministic():
            return self._run(None, None)

    @cached_property
    def wide(self) -> Execution | None:
        """In float64; None where that does not run: then distances to eager count."""
        return self._try(torch.float64, None)

    @cached_property
    def draws(self) -> list[Execution]:
        """Rounded at random, several times: how far rounding can go. Run when it is first asked for."""
        made = [self._try(None, torch.Generator().manual_seed(seed)) for seed in range(DRAWS)]
        return [draw for draw in made if draw is not None]

    @cached_property
    def _undrawn(self) -> Execution | None:
        """What the draws are draws of, where that is another form of the graph; it may be wrong itself."""
        if self._drawn is self._run:
            return None
        with suppress(Exception), deterministic():
            return self._drawn(None, None)
        return None

    def _drawn_observed(self, i: int, eager: Any) -> list[Any]:
        base = self._undrawn.observed()[i] if self._undrawn is not None else None
        return [_moved_as(draw.observed()[i], base, eager) for draw in self.draws]

    def _try(self, dtype: torch.dtype | None, noise: Noise) -> Execution | None:
        with suppress(Exception), deterministic():
            return (self._run if noise is None else self._drawn)(dtype, noise)
        return None

    def observed(self, ran: Execution) -> list[Comparison]:
        """The verdict on each value of `ran` that the program sees."""
        values, expected = ran.observed(), self.eager.observed()
        wide = self.wide.observed() if self.wide is not None else (None,) * len(values)
        return [self._judged(value, eager, exact, partial(self._drawn_observed, i, eager))
                for i, (value, eager, exact) in enumerate(zip(values, expected, wide))]

    def node(self, value: Any, name: str) -> Comparison | None:
        """The verdict on a value of the node `name`; None where there is nothing to compare it with."""
        part = self.part_like(value, name)
        expected = part(self.eager)
        if not comparable(value, expected) or self._is_opaque(name, expected):
            return None
        exact = part(self.wide) if self.wide is not None else None
        return self._judged(like(value, expected), expected, exact, lambda: [part(draw) for draw in self.draws])

    def part_like(self, value: Any, name: str) -> Callable[[Execution], Any]:
        """What of the node `name` is the same as `value`: of an operator with several results, the first that can
        be."""
        found: Any = self.eager.values.get(name)
        if not isinstance(found, tuple):
            return lambda ran: ran.values.get(name)
        number = next((i for i, one in enumerate(found) if comparable(value, one)), None)
        return lambda ran: ran.values[name][number] if number is not None and name in ran.values else None

    def _is_opaque(self, name: str, value: torch.Tensor) -> bool:
        """Whether it is memory that nothing has written, or a library's workspace: what it holds means nothing."""
        meta = self._metas.get(name)
        return name in self._undefined or (isinstance(meta, TensorMeta) and 0 in meta.shape and value.numel() > 0)

    def _judged(self, value: Any, eager: Any, exact: Any, draws: Callable[[], list[Any]]) -> Comparison:
        found = compare(value, eager, exact)
        return judge(found, value, eager, exact, draws()) if found.verdict == "different" else found


def _moved_as(draw: Any, undrawn: Any, eager: Any) -> Any:
    """Eager's value, moved as rounding at random has moved another form's from `undrawn` to `draw`."""
    if undrawn is None:
        return draw
    if not all(isinstance(v, torch.Tensor) and v.shape == eager.shape for v in (draw, undrawn, eager)):
        return None
    moved = eager + (draw - undrawn) if draw.is_floating_point() or draw.is_complex() else draw
    return torch.where(draw == undrawn, eager, moved.to(eager.dtype))


def comparable(value: Any, expected: Any) -> bool:
    """Whether two values are tensors of the same elements, but for sizes of 1."""
    return (
        isinstance(value, torch.Tensor) and isinstance(expected, torch.Tensor)
        and value.layout is torch.strided and expected.layout is torch.strided
        and value.dtype == expected.dtype and value.numel() == expected.numel()
        and [s for s in value.shape if s != 1] == [s for s in expected.shape if s != 1]
    )


def like(value: torch.Tensor, expected: torch.Tensor) -> torch.Tensor:
    """`value` with the shape and strides of `expected`: inner layouts may differ between stages."""
    with torch.no_grad():
        result = torch.empty_strided(expected.shape, expected.stride(), dtype=value.dtype, device=value.device)
        if 0 in expected.stride():  # of an expanded tensor: elements share memory, which cannot be copied to at once
            result = torch.zeros_like(result, memory_format=torch.preserve_format)
        return result.copy_(value.reshape(expected.shape))
