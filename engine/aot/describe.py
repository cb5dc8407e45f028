"""The functional ATen graphs as records, with a sentence for each mutation, alias and gradient."""
from __future__ import annotations

from collections.abc import Iterable

from ...artifacts.fx_graphs import graph_record, size_record
from ...artifacts.records import AnyRecord
from ..graphs.autograd_graphs import JointGraph, Partitioned
from ..graphs.functional_graph import AtenGraph, Constant, FromInput, Output, ViewOfGraph, ViewOfInput

Described = Iterable[tuple[str, str, AnyRecord]]


def describe_aten(aten: AtenGraph) -> Described:
    """Stage `forward` of an inference graph."""
    yield "forward", "", graph_record(aten.module.graph, "forward", "capture", tuple(_notes(aten, aten.outputs)))


def describe_joint(joint: JointGraph) -> Described:
    """Stage `joint`: forward and backward in one graph, with what each tangent and gradient belongs to."""
    graph = joint.module.graph
    names = [n.name for n in graph.nodes if n.op == "placeholder"]
    outputs = graph.output_node().args[0]
    assert isinstance(outputs, tuple)
    notes = [*_notes(joint.forward, joint.forward.outputs)]
    notes += [f"output {out} is the new value of {names[i]}, copied back outside of the node, where autograd records it"
              for out, i in joint.assigned.items()]
    tangents = names[len(joint.forward.inputs) :]
    notes += [f"{name} is the gradient of output {out}" for name, out in zip(tangents, joint.tangents)]
    for position, i in enumerate(joint.gradients, joint.forward_outputs):
        value = outputs[position]
        notes.append(f"output {position} is the gradient of {names[i]}" if value is not None else
                     f"{names[i]} has no gradient: no result depends on it")
    yield "joint", "", graph_record(graph, "joint", "capture", tuple(notes))


def describe_halves(halves: Partitioned) -> Described:
    """Stages `forward` and `backward`: the joint graph cut in two, and what goes from one to the other."""
    results = halves.joint.forward_outputs - len(halves.joint.forward.mutations)
    forward = [*_notes(halves.forward, halves.forward.outputs[:results])]
    backward = []
    for number, saved in enumerate(halves.saved):
        forward.append(f"{saved.node} is saved for the backward ({saved.kind}): {saved.why}")
        backward.append(f"input {number} is {saved.node} of the forward ({saved.kind})")
    names = [n.name for n in halves.joint.module.graph.nodes if n.op == "placeholder"]
    gradients = enumerate(zip(halves.joint.gradients, halves.backward.outputs))
    backward += [f"gradient {k} is that of {names[i]}" for k, (i, output) in gradients if output != Constant(None)]
    yield "forward", "", graph_record(halves.forward.module.graph, "forward", "capture", tuple(forward))
    yield "backward", "", graph_record(halves.backward.module.graph, "backward", "capture", tuple(backward))


def _notes(aten: AtenGraph, outputs: Iterable[Output]) -> Iterable[str]:
    names = [n.name for n in aten.module.graph.nodes if n.op == "placeholder"]
    for out, i in aten.mutations.items():
        yield f"output {out} is the new value of {names[i]}, copied back"
    for i, output in enumerate(outputs):
        if isinstance(output, FromInput):
            yield f"result {i} is {names[output.index]} itself"
        elif isinstance(output, (ViewOfInput, ViewOfGraph)):
            size, stride = [size_record(s) for s in output.size], [size_record(s) for s in output.stride]
            of = names[output.index] if isinstance(output, ViewOfInput) else f"output {output.index}"
            detached = ", detached" if output.detached else ""
            yield f"result {i} is a view of {of}: size {size}, stride {stride}{detached}"
        elif isinstance(output, Constant):
            yield f"result {i} is {output.value}"
