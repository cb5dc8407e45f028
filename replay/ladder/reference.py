"""What values are held against: one graph in eager, the same in float64, and with each operation rounded at random."""
from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import suppress
from functools import cached_property
from typing import Any

import torch

from ...artifacts.listing import short_place
from ...artifacts.records import Graph, TensorMeta
from ..recorded.new_memory import HUGE, SMALL, filled
from ..recorded.state import deterministic
from ..verdicts.compare import DRAWS, Comparison, compare, judge
from ..verdicts.unwritten import same_elements, written
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
        self._undefined = {node.id: node for node in nodes if _ALLOCATION.search(node.target)}

    @cached_property
    def eager(self) -> Execution:
        """As it is. Raises what the graph raises."""
        with deterministic(), filled(HUGE if self._undefined else 0):
            return self._run(None, None)

    @cached_property
    def _other_memory(self) -> Execution | None:
        """The same where other numbers were in the memory that the graph allocates; None where it allocates none."""
        with suppress(Exception), deterministic(), filled(SMALL):
            return self._run(None, None) if self._undefined else None
        return None

    @cached_property
    def unwritten(self) -> str:
        """How eager's own results show what was in memory that the graph does not write; "" if they do not."""
        other = self._other_memory
        if other is None or all(same_elements(*pair) is None for pair in zip(self.eager.observed(), other.observed())):
            return ""
        places = [f"{name} ({short_place(node.stack[-1])})" if node.stack else name
                  for name, node in self._undefined.items()]
        return f"eager's own results depend on what was in memory that nothing has written: {', '.join(places[:3])}"

    @cached_property
    def wide(self) -> Execution | None:
        """In float64; None where that does not run: then distances to eager count."""
        return self._try(torch.float64, None)

    @cached_property
    def draws(self) -> list[Execution]:
        """Rounded at random, several times: how far rounding can go. Run when it is first asked for."""
        made = [self._try(None, torch.Generator().manual_seed(seed)) for seed in range(DRAWS)]
        return [draw for draw in made if draw is not None]

    def _try(self, dtype: torch.dtype | None, noise: Noise) -> Execution | None:
        with suppress(Exception), deterministic():
            return (self._run if noise is None else self._drawn)(dtype, noise)
        return None

    def observed(self, ran: Execution) -> list[Comparison]:
        """The verdict on each value of `ran` that the program sees."""
        values, expected = ran.observed(), self.eager.observed()
        wide = self.wide.observed() if self.wide is not None else (None,) * len(values)
        again = self._other_memory.observed() if self._other_memory is not None else expected
        return [self._judged(value, eager, exact, lambda ran, i=i: ran.observed()[i], other)  # type: ignore[misc]
                for i, (value, eager, exact, other) in enumerate(zip(values, expected, wide, again))]

    def node(self, value: Any, name: str) -> Comparison | None:
        """The verdict on a value of the node `name`; None where there is nothing to compare it with."""
        expected: Any = self.expected(value, name)
        if name in self._undefined or not comparable(value, expected):
            return None
        exact = self._of(self.wide, value, name) if self.wide is not None else None
        own = like(value, expected)
        other = self._of(self._other_memory, value, name) if self._other_memory is not None else expected
        return self._judged(own, expected, exact, lambda ran: self._of(ran, value, name), other)

    def expected(self, value: Any, name: str) -> Any:
        """Eager's value of the node `name`; of several results, that which `value` is."""
        return self._of(self.eager, value, name)

    def _of(self, ran: Execution, value: Any, name: str) -> Any:
        """The value of a node in a run; of one with several results, the only one of this dtype and these sizes. None
        for the workspace of a library, whose contents mean nothing."""
        found, meta = ran.values.get(name), self._metas.get(name)
        if not isinstance(found, (tuple, list)):
            return None if _is_workspace(found, meta) else found
        metas = meta if isinstance(meta, tuple) and len(meta) == len(found) else (None,) * len(found)
        alike = [one for one, own in zip(found, metas) if isinstance(one, torch.Tensor) and not _is_workspace(one, own)
                 and isinstance(value, torch.Tensor) and sizes_of(one) == sizes_of(value)
                 and one.dtype.is_floating_point == value.dtype.is_floating_point]
        return alike[0] if len(alike) == 1 else None

    @cached_property
    def _undrawn(self) -> Execution | None:
        """The graph that is drawn, as it is."""
        if self._drawn == self._run:
            return self.eager
        with suppress(Exception), deterministic():
            return self._drawn(None, None)
        return None

    def _judged(self, value: Any, eager: Any, exact: Any, of: Callable[[Execution], Any], other: Any) -> Comparison:
        """The verdict on what eager has written: `other` are its values where memory held other numbers."""
        def own(*values: Any) -> tuple[Any, ...]:
            return written(values, eager, other)

        mine, its, wide = own(value, eager, exact)
        found = compare(mine, its, wide)
        if found.verdict != "different" or self._undrawn is None:
            return found
        return judge(found, mine, its, wide, own(*map(of, self.draws)), own(of(self._undrawn))[0])


def _is_workspace(value: Any, meta: Any) -> bool:
    """Whether a value has elements where its metadata has none."""
    return isinstance(meta, TensorMeta) and 0 in meta.shape and isinstance(value, torch.Tensor) and value.numel() > 0


def sizes_of(tensor: torch.Tensor) -> list[int]:
    """The sizes that are not 1."""
    return [size for size in tensor.shape if size != 1]


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
