"""Minimum cut by maximum flow: Dinic's algorithm, without recursion, on integer capacities.

Y. Dinitz, "Algorithm for solution of a problem of maximum flow in a network with power estimation", 1970. The networks
here are shallow and fall into many small components, for which a few phases are enough.
"""
from __future__ import annotations

UNBOUNDED = 1 << 60
"""The capacity of an edge that no cut may contain; finite ones add up to less."""

SOURCE, SINK = 0, 1


class Unbounded(Exception):
    """Every cut contains an edge of capacity UNBOUNDED."""


class Network:
    """A flow network. Vertices are numbers: SOURCE, SINK, and those that `vertex` returns."""

    def __init__(self) -> None:
        self._edges: list[list[int]] = [[], []]  # vertex -> numbers of its edges; edge e and e ^ 1 are opposite
        self._to: list[int] = []
        self._left: list[int] = []  # capacity that the flow has not used

    def vertex(self) -> int:
        """A new vertex."""
        self._edges.append([])
        return len(self._edges) - 1

    def edge(self, start: int, end: int, capacity: int) -> None:
        """An edge from `start` to `end`; of several between the same vertices, the capacities add up."""
        if capacity <= 0:
            return
        self._edges[start].append(len(self._to))
        self._edges[end].append(len(self._to) + 1)
        self._to += (end, start)
        self._left += (capacity, 0)

    def cut(self) -> set[int]:
        """The sink's side of the minimum cut that lies nearest to the sink. Raises Unbounded where none is finite."""
        total = 0
        while (levels := self._levels()) is not None:
            positions = [0] * len(self._edges)
            while pushed := self._push(levels, positions):
                total += pushed
                if total >= UNBOUNDED:
                    raise Unbounded
        return self._reaching_sink()

    def _levels(self) -> list[int] | None:
        """Distance of each vertex from the source over edges with capacity left; None when the sink is cut off."""
        levels = [-1] * len(self._edges)
        levels[SOURCE] = 0
        queue = [SOURCE]
        for at in queue:
            for e in self._edges[at]:
                there = self._to[e]
                if self._left[e] and levels[there] < 0:
                    levels[there] = levels[at] + 1
                    queue.append(there)
            if levels[SINK] >= 0:
                return levels
        return None

    def _push(self, levels: list[int], positions: list[int]) -> int:
        """Push flow along one shortest path that still has capacity; what was pushed, 0 when there is none."""
        path: list[int] = []
        at = SOURCE
        while at != SINK:
            edges = self._edges[at]
            while positions[at] < len(edges):
                e = edges[positions[at]]
                if self._left[e] and levels[self._to[e]] == levels[at] + 1:
                    break
                positions[at] += 1
            else:  # a dead end: one step back
                if not path:
                    return 0
                at = self._to[path.pop() ^ 1]
                positions[at] += 1
                continue
            path.append(e)
            at = self._to[e]
        pushed = min(self._left[e] for e in path)
        for e in path:
            self._left[e] -= pushed
            self._left[e ^ 1] += pushed
        return pushed

    def _reaching_sink(self) -> set[int]:
        found = {SINK}
        stack = [SINK]
        while stack:
            for e in self._edges[stack.pop()]:
                before = self._to[e]  # the edge e ^ 1 leads from there to here
                if before not in found and self._left[e ^ 1]:
                    found.add(before)
                    stack.append(before)
        return found
