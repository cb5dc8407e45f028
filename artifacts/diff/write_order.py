"""The order of reads and writes of one tensor, which counts where the order of nodes does not."""
from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from ..records import Graph, Node
from .matching import operands

_WRITES = re.compile(
    r"(?!.*__$)\w*[a-z0-9]_|setitem|i(add|sub|mul|truediv|floordiv|mod|pow|matmul|and|or|xor|[lr]shift)")
_VIEWS = frozenset((
    "alias", "as_strided", "chunk", "detach", "diagonal", "expand", "expand_as", "flatten", "getattr", "getitem",
    "movedim", "narrow", "permute", "real", "imag", "reshape", "select", "slice", "split", "split_with_sizes",
    "squeeze", "swapaxes", "t", "transpose", "unbind", "unflatten", "unfold", "unsqueeze", "view", "view_as",
))  # fmt: skip
"""Operators whose result may have the memory of their first operand."""


def moved_reads(first: Graph, second: Graph, pairs: Mapping[str, str]) -> Iterator[tuple[Node, str, list[str]]]:
    """The nodes of the first graph that write, their partners, and what reads the tensor before them in one graph and
    after them in the other (in the second's names)."""
    sides = _reads_before_writes(first), _reads_before_writes(second)
    paired = set(pairs.values())
    for node in first.nodes:
        partner = pairs.get(node.id, "")
        if node.id in sides[0] and partner in sides[1]:
            mine = {pairs[reader] for reader in sides[0][node.id] if reader in pairs}
            if moved := mine ^ (sides[1][partner] & paired):
                yield node, partner, sorted(moved)


def _reads_before_writes(graph: Graph) -> dict[str, set[str]]:
    """For each node that writes, the nodes before it that read the same memory, as far as names tell."""
    memory: dict[str, str] = {}
    readers: dict[str, set[str]] = {}
    found = {}
    for node in graph.nodes:
        if node.op not in ("call_function", "call_method"):
            continue
        read = [memory.get(name, name) for name in operands(node)]
        name = _operator(node)
        is_write = _WRITES.fullmatch(name) is not None
        if read and (is_write or name in _VIEWS):
            memory[node.id] = read[0]
        if read and is_write:
            found[node.id] = set(readers.get(read[0], ()))
        for place in read:
            readers.setdefault(place, set()).add(node.id)
    return found


def _operator(node: Node) -> str:
    parts = node.target.removeprefix("torch.ops.").split(".")
    return parts[1] if parts[0] == "aten" and len(parts) > 1 else parts[-1]
