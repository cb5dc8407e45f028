"""Which node of one graph is which node of another, whatever their names and order.

Like GumTree (Falleri et al., ASE 2014), in two directions from nodes that are certain. Certain are nodes that come from
the same text of the program in the same module, as often on both sides; from those, pairs spread to the arguments (the
same position of the same operator) and to the users. What is left is aligned in order. Names count only for inputs.
"""
from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterator
from difflib import SequenceMatcher
from typing import Any

from ..records import Graph, Node, NodeRef
from ..render_graph import value_text
from .program_text import ProgramText

ALIGNED = 4000
"""Nodes left on a side, above which they are paired by their keys alone: alignment takes quadratic time."""

_NUMBERED = re.compile(r"(arg|primals|tangents)_?\d+(_\d+)?$")
"""Names of inputs that say no more than a position."""
_INPUT = re.compile(r"\W|_")


def match(first: Graph, second: Graph, texts: tuple[ProgramText, ProgramText]) -> dict[str, str]:
    """The node of `second` for each node of `first` that has one."""
    return _Matching(first, second, texts).run()


class _Matching:
    def __init__(self, first: Graph, second: Graph, texts: tuple[ProgramText, ProgramText]) -> None:
        self.graphs = (first, second)
        self.nodes = tuple({node.id: node for node in graph.nodes} for graph in self.graphs)
        self.users = tuple(_users(graph) for graph in self.graphs)
        self.texts = texts
        self.pairs: dict[str, str] = {}
        self.taken: set[str] = set()

    def run(self) -> dict[str, str]:
        """All steps, the most certain first."""
        for key in (self._input, self._line_in_module, self._line):
            self._unique(key)
        self._spread()
        for alike in (_like, operator_of):
            self._align(alike)
            self._spread()
        return self.pairs

    def _pair(self, a: str, b: str) -> None:
        self.pairs[a] = b
        self.taken.add(b)

    def _left(self) -> tuple[list[Node], list[Node]]:
        first, second = self.graphs
        return ([n for n in first.nodes if n.id not in self.pairs], [n for n in second.nodes if n.id not in self.taken])

    # ---- keys
    def _input(self, node: Node, side: int) -> Hashable | None:
        """Inputs by the name of what they are: stock and ours spell `L['x']` differently."""
        if node.op == "output":
            return "output"
        if node.op not in ("placeholder", "get_attr"):
            return None
        origin = next((o.rpartition("#")[2] for o in node.origins if o.startswith("capture")), node.target)
        return None if _NUMBERED.match(origin) else (node.op, _INPUT.sub("", origin).lower())

    def _line_in_module(self, node: Node, side: int) -> Hashable | None:
        line = self._line(node, side)
        return None if line is None else (node.module, line)

    def _line(self, node: Node, side: int) -> Hashable | None:
        """An operator by the text of the program's line, and the function of it."""
        if not node.stack or node.op in ("placeholder", "get_attr", "output"):
            return None
        place = node.stack[-1]
        return self.texts[side].line(place), place.function.rpartition(".")[2], operator_of(node)

    # ---- steps
    def _unique(self, key: Callable[[Node, int], Hashable | None]) -> None:
        """Pair nodes of keys that both sides have equally often, in order."""
        sides: list[dict[Hashable, list[Node]]] = []
        for side, left in enumerate(self._left()):
            found: dict[Hashable, list[Node]] = defaultdict(list)
            for node in left:
                if (known := key(node, side)) is not None:
                    found[known].append(node)
            sides.append(found)
        for known, nodes in sides[0].items():
            others = sides[1].get(known, [])
            if len(nodes) == len(others):
                for a, b in zip(nodes, others):
                    self._pair(a.id, b.id)

    def _spread(self) -> None:
        """From pairs to their arguments and users, until nothing is found."""
        work = list(self.pairs.items())
        while work:
            a, b = work.pop()
            for x, y in [*self._arguments(a, b), *self._users(a, b)]:
                if x not in self.pairs and y not in self.taken:
                    self._pair(x, y)
                    work.append((x, y))

    def _arguments(self, a: str, b: str) -> Iterator[tuple[str, str]]:
        one, other = self.nodes[0][a], self.nodes[1][b]
        if operator_of(one) != operator_of(other):
            return
        mine, theirs = operands(one), operands(other)
        if len(mine) == len(theirs):
            for x, y in zip(mine, theirs):
                if self._alike(x, y):
                    yield x, y

    def _users(self, a: str, b: str) -> Iterator[tuple[str, str]]:
        """Users of one operator and position, where each side has one of it that is free."""
        theirs = defaultdict(list)
        for user, place in self.users[1].get(b, ()):
            if user not in self.taken:
                theirs[operator_of(self.nodes[1][user]), place].append(user)
        mine = defaultdict(list)
        for user, place in self.users[0].get(a, ()):
            if user not in self.pairs:
                mine[operator_of(self.nodes[0][user]), place].append(user)
        for key, users in mine.items():
            others = theirs.get(key, [])
            if len(users) == len(others) == 1 and self._alike(users[0], others[0]):
                yield users[0], others[0]

    def _alike(self, a: str, b: str) -> bool:
        one, other = self.nodes[0].get(a), self.nodes[1].get(b)
        return one is not None and other is not None and one.op == other.op and operator_of(one) == operator_of(other)

    def _align(self, key: Callable[[Node], Hashable]) -> None:
        """Pair what is left in order."""
        first, second = self._left()
        if max(len(first), len(second)) > ALIGNED:
            self._unique(lambda node, side: key(node))
            return
        keys = [key(node) for node in first], [key(node) for node in second]
        for a, b, size in SequenceMatcher(None, *keys, autojunk=False).get_matching_blocks():
            for step in range(size):
                self._pair(first[a + step].id, second[b + step].id)


def _users(graph: Graph) -> dict[str, list[tuple[str, int]]]:
    found: dict[str, list[tuple[str, int]]] = defaultdict(list)
    for node in graph.nodes:
        for place, name in enumerate(operands(node)):
            found[name].append((node.id, place))
    return found


def operands(node: Node) -> list[str]:
    """The nodes that a node reads, in order."""
    found: list[str] = []
    for tree in (*node.args, *node.kwargs.values()):
        _collect(tree, found)
    return found


def _collect(tree: Any, found: list[str]) -> None:
    """Types are compared as they are: to ask abstract classes takes most of a comparison's time."""
    kind = type(tree)
    if kind is NodeRef:
        found.append(tree.node)
    elif kind is dict:
        for value in tree.values():
            _collect(value, found)
    elif kind is list or kind is tuple:
        for value in tree:
            _collect(value, found)


def operator_of(node: Node) -> str:
    """What a node calls, as stock and ours write it; of an input or attribute, that it is one."""
    return node.op if node.op in ("placeholder", "get_attr", "output") else node.target.removeprefix("torch.ops.")


def _like(node: Node) -> Hashable:
    return node.op, operator_of(node), value_text(node.value)
