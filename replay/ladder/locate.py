"""Where inside of fused loops values first differ.

A wrong kernel is generated again with all of its intermediates stored, and each statement is checked on the kernel's
own operands. Where that shows nothing, the whole graph is generated again with each value in a buffer, and each buffer
is held against eager's value of its node.
"""
from __future__ import annotations

import operator
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, Protocol

import torch
import torch.fx

from ...artifacts.context import CompileContext
from ...artifacts.records import Location
from ...engine.ir.printer import format_statement
from ..recorded.state import deterministic
from ..verdicts.compare import Comparison, worst_place
from ..verdicts.nonfinite import Birth, examined, kind_of
from .pairs import LoweredPart, Pair, makers_of
from .reference import like
from .regenerate import ALL_STORED
from .report import Compared, Difference
from .rungs import Execution
from .statements import Wrong, wrong_statement


class Lowering(Protocol):
    """What is asked of a ladder."""

    def lowered(self, stage: str, work: Any) -> Execution: ...
    def pairs(self, stage: str, name: str, ran: Execution, work: Any = None) -> Iterator[Pair]: ...
    def parts(self) -> Iterator[LoweredPart]: ...
    def variant(self, forced: Mapping[str, str], expose: bool = False) -> Any: ...
    def context(self) -> CompileContext: ...
    def location(self, node: str) -> Location | None: ...
    def alone(self) -> Sequence[Compared]: ...


def first_inside(ladder: Lowering, stage: str) -> Difference | None:
    """The first wrong value of a lowered stage; None where it cannot be told."""
    if stage == "kernels":
        with suppress(Exception):
            wrong = _in_kernels(ladder)
            if wrong is not None:
                return wrong
    with suppress(Exception):
        seen: set[str] = set()
        for pair in _all_stored(ladder, stage):
            found = pair.reference.node(pair.value, pair.node)
            if found is not None and found.verdict == "different":
                return _behind(ladder, stage, pair, seen) or _at_pair(ladder, stage, pair, found)
            if found is not None:
                seen.add(pair.node)
    return None


def _at_pair(ladder: Lowering, stage: str, pair: Pair, found: Comparison) -> Difference:
    at = place_of(pair.value, pair.reference.expected(pair.value, pair.node))
    return Difference(stage, f"{pair.label}{pair.node}", ladder.location(pair.source), found, pair.name, at)


def _behind(ladder: Lowering, stage: str, wrong: Pair, seen: Collection[str]) -> Difference | None:
    """What is wrong behind a wrong node: one of several results, which no buffer holds, so that it was not `seen`. It
    is to blame if the node is right where ATen computes it."""
    for part in ladder.parts():
        nodes = {node.name: node for node in part.work.aten.module.graph.nodes}
        for name in _unseen(nodes.get(wrong.node), seen):
            work = ladder.variant({**ALL_STORED, f"*lowering:{name}": "extern"}, expose=True)
            with deterministic():
                ran = ladder.lowered(stage, work)
            again = next((p for p in ladder.pairs("kernels" if stage == "wrapper" else stage, "", ran, work)
                          if p.node == wrong.node), None)
            found = again.reference.node(again.value, again.node) if again is not None else None
            if found is not None and found.verdict != "different":
                compared = wrong.reference.node(wrong.value, wrong.node) or found
                place = ladder.location(part.sources.get(name, ""))
                return Difference(stage, f"{wrong.label}{name}", place, compared, wrong.name)
    return None


def _unseen(node: torch.fx.Node | None, seen: Collection[str]) -> Iterator[str]:
    """The nodes behind one, the nearest first, up to those that were seen."""
    waiting = list(node.all_input_nodes) if node is not None else []
    met = set(waiting)
    for one in waiting:
        if one.op != "call_function" or (one.name in seen and one.target is not operator.getitem):
            continue
        if one.target is not operator.getitem:
            yield one.name
        waiting += [n for n in one.all_input_nodes if n not in met]
        met.update(one.all_input_nodes)


def first_birth(ladder: Lowering, stage: str) -> Birth | None:
    """The first value with NaNs or infinities that eager's does not have."""
    for pair in _all_stored(ladder, stage):
        kind = kind_of(pair.value)
        if kind and kind != kind_of(pair.reference.eager.values.get(pair.node)):
            bad = examined(torch.as_tensor(pair.value)).isfinite().logical_not()
            index = tuple(int(i) for i in bad.nonzero()[0]) if bad.dim() else ()
            place = ladder.location(pair.source)
            node = f"{pair.label}{pair.node}"
            return Birth(stage, node, pair.name, kind, int(bad.sum()), bad.numel(), index, (), place)
    return None


def _all_stored(ladder: Lowering, stage: str) -> Iterator[Pair]:
    """The values of a stage where each value of the graph is stored."""
    work = ladder.variant(ALL_STORED, expose=True)
    with deterministic():
        ran = ladder.lowered(stage, work)
    return ladder.pairs("kernels" if stage == "wrapper" else stage, "", ran, work)


def _in_kernels(ladder: Lowering) -> Difference | None:
    kernels = [alone.name for alone in ladder.alone() if alone.comparison.verdict == "different"]
    for part in ladder.parts() if kernels else ():
        own = [name.removeprefix(part.prefix) for name in kernels if name.startswith(part.prefix)]
        with deterministic():
            wrong = wrong_statement(part.work, part.inputs, own, ladder.context())
        if wrong is not None:
            return _in_kernel(ladder, part, wrong)
    return None


def _in_kernel(ladder: Lowering, part: LoweredPart, wrong: Wrong) -> Difference:
    s = wrong.statement
    node = s.origins[0] if s.origins else wrong.body
    lines = part.work.source.lines if part.work.source is not None else ()
    line = next((n.text.strip() for n in lines if f"loop_ir:{wrong.body}#{s.name}" in n.origins), "")
    at = {"index": list(wrong.at), "value": _plain(wrong.value), "expected": _plain(wrong.expected),
          "operands": {name: _plain(value) for name, value in wrong.operands.items()}}
    inside = f"{part.prefix}{wrong.kernel}: {line or format_statement(s)}"
    place = ladder.location(part.sources.get(node, ""))
    return Difference("kernels", f"{part.label}{node}", place, wrong.comparison, inside, at)


def place_of(value: Any, expected: Any) -> dict[str, Any]:
    """The worst place of a value, what is there, and what should be; {} where that cannot be said."""
    with suppress(Exception):
        own = like(value, expected)
        at = worst_place(own, expected)
        if len(at) == own.dim():
            return {"index": list(at), "value": _plain(own[at].item()), "expected": _plain(expected[at].item())}
    return {}


def _plain(number: Any) -> Any:
    """A number as JSON has it."""
    if isinstance(number, complex) or (isinstance(number, float) and (number != number or abs(number) == float("inf"))):
        return str(number)
    return number


def at_buffer(ladder: Lowering, stage: str, buffer: str, whole: Comparison) -> Difference:
    """The node whose value a buffer is to hold."""
    for part in ladder.parts():
        for step in part.work.plan.items:
            node = next((nodes[0] for name, nodes in makers_of(step) if name == buffer and nodes), "")
            if node:
                place = ladder.location(part.sources.get(node, ""))
                return Difference(stage, f"{part.label}{node}", place, whole, buffer)
    return Difference(stage, buffer, None, whole)


def seen_place(ladder: Lowering, graph: torch.fx.Graph, seen: Sequence[Compared]) -> tuple[str, Location | None]:
    """The first wrong result, and the line that makes it; of an input, the last that may write it."""
    number = next((i for i, v in enumerate(seen) if v.comparison.verdict == "different"), None)
    if number is None:
        return "results", None
    wrong = seen[number]
    returned: Any = graph.output_node().args[0]
    if wrong.role == "gradient":  # which arrives through the operation that reads the input last
        inputs = [value.name for value in seen if value.role == "input"]
        of = wrong.name.removeprefix("gradient of ")
        users = [n for n in graph.nodes if n.op == "placeholder"][inputs.index(of)].users
        last = max((n for n in users if n.op != "output"), key=list(graph.nodes).index, default=None)
        return f"gradient of {of}", ladder.location(last.name) if last is not None else None
    node = returned[number] if wrong.role == "result" and number < len(returned) else None
    if wrong.role == "input":
        placeholders = [n for n in graph.nodes if n.op == "placeholder"]
        users = [n for n in placeholders[number - len(returned)].users if n.op != "output"]
        node = next((user for user in reversed(users) if _writes(user)), users[-1] if users else None)
    return wrong.name, ladder.location(node.name) if isinstance(node, torch.fx.Node) else None


def _writes(node: torch.fx.Node) -> bool:
    """Whether a captured node writes its first argument, by its name: `add_`, `iadd`, `setitem`."""
    name = node.target if isinstance(node.target, str) else getattr(node.target, "__name__", "")
    return name == "setitem" or (name.endswith("_") and not name.endswith("__")) or (
        getattr(node.target, "__module__", "") == "_operator" and name[:1] == "i" and hasattr(operator, name[1:]))
