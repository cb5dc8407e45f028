"""What a recording says of CUDA graphs: per compiled graph whether it is captured, why, and how its calls went."""
from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from .input_names import input_names
from .listing import Line, plural, printable, short_place
from .recording import Recording
from .records import CudaGraph, Decision, Graph, Location, Node, NodeRef, Recapture, Runtime

KIND, CAPTURE = "cudagraphs", "capture"


@dataclass(frozen=True)
class GraphsOf:
    """One compiled graph: the decision about it, and its counters, None where the process did not leave any. `names`
    are the program's for its inputs, `places` the lines that first use them (or made what was saved)."""

    compile_id: str
    decision: Decision
    counters: CudaGraph | None
    names: dict[str, str]
    places: dict[str, Location]

    @property
    def part(self) -> str:
        """Which part of the compilation it is; "" for the whole."""
        return self.decision.subject.rpartition(".")[0]

    @property
    def captured(self) -> bool:
        """Whether replays took the place of launches."""
        return self.counters is not None and self.counters.captures > 0

    def name(self, name: str) -> str:
        """An input as the program calls it."""
        return self.names.get(name, name)

    def place(self, again: Recapture) -> Location | None:
        """The line of an input that had moved."""
        return next((self.places[name] for name in again.inputs if name in self.places), None)


def cuda_graphs(recording: Recording, compile_id: str | None = None) -> list[GraphsOf]:
    """Those about which there was anything to decide."""
    found = []
    for owner, decision in recording.decisions(compile_id, KIND):
        part = decision.subject.rpartition(".")[0]
        runtime = recording.find(Runtime, owner, "runtime")
        counters = next((each for each in (runtime.cuda_graphs if runtime else ()) if each.part == part), None)
        stage = "backward" if part.rpartition(".")[2] == "backward" else "forward"
        graph = recording.find(Graph, owner, stage)
        names = input_names(recording, owner, stage, "", graph) if graph is not None and counters else {}
        places = _places(graph) if graph is not None and counters else {}
        found.append(GraphsOf(owner, decision, counters, names, places))
    return found


def document(of: GraphsOf) -> dict[str, Any]:
    """For --json."""
    counters = of.counters or CudaGraph()
    again = []
    for one in counters.recaptures:
        place = of.place(one)
        again.append({"inputs": [of.name(name) for name in one.inputs], "why": one.why,
                      "file": place.file if place else None, "line": place.line if place else None})
    return {
        "compile": of.compile_id, "part": of.part, "decision": of.decision.id, "chosen": of.decision.chosen,
        "why": of.decision.why, "captured": of.captured, "stopped": counters.stopped or None,
        "sizes": counters.sizes, "captures": counters.captures, "replays": counters.replays,
        "launches": [{"why": why, "times": times} for why, times in counters.launches.items()],
        "cloned": counters.cloned, "copied_bytes": counters.copied_bytes,
        "copies": [{"name": of.name(each.name), "times": each.times, "bytes": each.bytes} for each in counters.copies],
        "recaptures": again,
    }


def lines(of: GraphsOf) -> Iterator[Line]:
    """For people."""
    yield Line(printable(f"  {of.part or 'the graph'}: {of.decision.chosen} ({of.decision.why})"))
    counters = of.counters
    if counters is None:
        if of.decision.chosen == CAPTURE:
            yield Line("    it was never called, or the process was killed before it could say what became of it")
        return
    if counters.stopped:
        yield Line(printable(f"    stopped: {counters.stopped}"))
    sizes = f" for {plural(counters.sizes, 'combination')} of sizes" if counters.sizes > 1 else ""
    yield Line(f"    {plural(counters.captures, 'capture')}{sizes}, {plural(counters.replays, 'replay')}")
    for why, times in sorted(counters.launches.items(), key=lambda item: -item[1]):
        yield Line(printable(f"    {plural(times, 'call')} launched kernel by kernel: {why}"))
    for each in counters.copies:
        yield Line(printable(f"    {of.name(each.name)} copied {plural(each.times, 'time')}, {_size(each.bytes)}"))
    if counters.cloned:
        yield Line(f"    {plural(counters.cloned, 'result')} copied, because earlier ones were in use")
    for one in counters.recaptures:
        moved = f"{', '.join(map(of.name, one.inputs[:4]))} had moved" if one.inputs else one.why
        place = short_place(of.place(one))
        yield Line(printable(f"    captured again: {moved}{f' ({place})' if place else ''}"))


def _size(count: int) -> str:
    return f"{count:,} bytes" if count < 1_000_000 else f"{count / 1_000_000:,.1f} MB"


def _places(graph: Graph) -> dict[str, Location]:
    """For each input of a graph the line of what first reads it."""
    inputs = {node.id for node in graph.nodes if node.op == "placeholder"}
    found = {node.id: node.stack[-1] for node in graph.nodes if node.id in inputs and node.stack}
    for node in graph.nodes:
        for name in _read_by(node) if node.stack else ():
            if name in inputs:
                found.setdefault(name, node.stack[-1])
    return found


def _read_by(value: Any) -> Iterator[str]:
    if isinstance(value, NodeRef):
        yield value.node
    elif isinstance(value, Node):
        yield from _read_by((value.args, *value.kwargs.values()))
    elif isinstance(value, (tuple, list)):
        for each in value:
            yield from _read_by(each)
    elif isinstance(value, dict):
        yield from _read_by(tuple(value.values()))
