"""The functional ATen graph as a record, with a sentence for each mutation and alias."""
from __future__ import annotations

from collections.abc import Iterable

from ..artifacts.fx_graphs import graph_record, size_record
from ..artifacts.records import AnyRecord
from .aten import AtenGraph, Constant, FromInput, ViewOfInput


def describe_aten(aten: AtenGraph) -> Iterable[tuple[str, str, AnyRecord]]:
    """Stage `forward`: the functional graph, with a sentence for each mutation and alias."""
    names = [n.name for n in aten.module.graph.nodes if n.op == "placeholder"]
    notes = [f"output {out} is the new value of {names[i]}, copied back" for out, i in aten.mutations.items()]
    for i, output in enumerate(aten.outputs):
        if isinstance(output, FromInput):
            notes.append(f"result {i} is {names[output.index]} itself")
        elif isinstance(output, ViewOfInput):
            size, stride = [size_record(s) for s in output.size], [size_record(s) for s in output.stride]
            notes.append(f"result {i} is a view of {names[output.index]}: size {size}, stride {stride}")
        elif isinstance(output, Constant):
            notes.append(f"result {i} is {output.value}")
    yield "forward", "", graph_record(aten.module.graph, "forward", "capture", tuple(notes))
