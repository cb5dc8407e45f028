"""Groups of operators of the captured graph, and the kernels that compute them, beside what eager takes for them.

A decomposition stands between both: what eager does in one attention kernel may be two products and a softmax here.
"""
from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch.fx

from ...artifacts.records import Location
from .steps import KernelTime
from .timing import Launched, Timing

SMALL = 0.1  # of a kernel's time, below which an operator in it is a by-product


@dataclass(frozen=True)
class Twin:
    """Operators that share kernels with each other and with no others: `seconds` of these kernels, and of `eager`.
    `launched` are the kernels that eager launches on a GPU."""

    operators: tuple[str, ...]
    kernels: tuple[KernelTime, ...]
    eager: float
    launched: tuple[Launched, ...]
    location: Location | None

    @property
    def seconds(self) -> float:
        """Of its kernels."""
        return sum(k.seconds for k in self.kernels)

    @property
    def lost(self) -> float:
        """Seconds that its kernels take more than eager."""
        return self.seconds - self.eager

    @property
    def key(self) -> tuple[Any, ...]:
        """The same for the layers of a network."""
        place = self.location and (self.location.file, self.location.line)
        return tuple(unnumbered(k.name) for k in self.kernels), place

    def document(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "operators": list(self.operators), "kernels": [k.name for k in self.kernels], "seconds": self.seconds,
            "eager_seconds": self.eager, "eager_launched": [k.name for k in self.launched],
            "file": self.location.file if self.location else None,
            "line": self.location.line if self.location else None,
        }


def unnumbered(name: str) -> str:
    """A kernel's name, or what has it inside, without the kernel's number: one kernel more renames all that follow."""
    return re.sub(r"\bfused_\d+_", "fused_", name)


def eager_twin_name(operator: str) -> str:
    """The name of the time of an operator of the captured graph."""
    return f"capture#{operator}"


def _is_small(operator: str, kernel: KernelTime, times: dict[str, Timing]) -> bool:
    """Whether an operator takes next to nothing of what the kernel does, and so does not tie it to other kernels: the
    indices of a mask, which each layer's kernel computes again."""
    timing = times.get(eager_twin_name(operator))
    return timing is not None and timing.seconds < SMALL * kernel.seconds


def twins(module: torch.fx.GraphModule, kernels: Sequence[KernelTime], times: dict[str, Timing]) -> list[Twin]:
    """The groups whose operators were all timed, in the order of the program."""
    groups: list[tuple[dict[str, None], list[KernelTime]]] = []
    taken: set[str] = set()
    for kernel in kernels:
        operators, members = dict.fromkeys(o for o in kernel.captured if not _is_small(o, kernel, times)), [kernel]
        for other in [g for g in groups if operators.keys() & g[0].keys()]:
            groups.remove(other)
            operators, members = other[0] | operators, other[1] + members
        operators |= dict.fromkeys(o for o in kernel.captured if o not in taken)
        taken.update(kernel.captured)
        if operators:
            groups.append((operators, members))
    order = {node.name: node for node in module.graph.nodes}
    found = []
    for operators, members in groups:
        names = tuple(name for name in order if name in operators)
        timed = [times[name] for name in map(eager_twin_name, names) if name in times]
        if len(timed) == len(operators):
            members.sort(key=kernels.index)
            launched = tuple(sorted((k for t in timed for k in t.launched), key=lambda k: -k.seconds))
            stack = order[names[-1]].meta.get("stack") or [None]
            found.append(Twin(names, tuple(members), sum(t.seconds for t in timed), launched, stack[-1]))
    return found
