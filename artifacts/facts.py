"""What an overview needs to know of a record, kept beside it, so that listing 10,000 graphs reads none of them.

To keep another fact, add it to the entry of its type of record.
"""
from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from .decode import EncodedNodes
from .records import Frame, Graph, Kernel, Runtime, Schedule, Wrapper

LIBRARY_CALL = re.compile(r"^\s+(?:\w+ = )?(extern_kernels\.\w+|torch\.ops\.\w+\.\w+\.\w+)\(")
"""A line of Inductor's wrapper that calls an extern kernel."""
NOT_OPERATIONS = ("placeholder", "get_attr", "output")

Facts = dict[str, int | str]


def operations(graph: Graph) -> int:
    """How many nodes of a graph compute something."""
    nodes = graph.nodes
    operators = nodes.operators() if isinstance(nodes, EncodedNodes) else (node.op for node in nodes)
    return sum(op not in NOT_OPERATIONS for op in operators)


def _frame(record: Frame) -> Facts:
    facts: Facts = {"origin": record.origin} if record.origin else {}
    return facts | ({"isolated": 1} if record.isolated else {})


def _schedule(record: Schedule) -> Facts:
    extern = sum(group.kind == "extern" for group in record.groups)
    return {"kernels": len(record.groups) - extern, "extern_calls": extern}


FACTS: Mapping[type, Callable[[Any], Facts]] = {
    Frame: _frame,
    Graph: lambda record: {"operations": operations(record)},
    Schedule: _schedule,
    Kernel: lambda record: {"kernels": len(record.kernels)},
    Wrapper: lambda record: {"library_calls": sum(bool(LIBRARY_CALL.search(line.text)) for line in record.lines)},
    Runtime: lambda record: {"calls": record.calls},
}


def facts_of(record: object) -> Facts:
    """The facts of a record; {} for types that have none."""
    described = FACTS.get(type(record))
    return described(record) if described is not None else {}
