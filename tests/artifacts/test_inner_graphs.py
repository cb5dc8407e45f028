"""Graphs inside of a graph: kept with it, shown inside of it, and linked to the program like its own nodes."""
from __future__ import annotations

import ast
from pathlib import Path

import msgspec
import pytest
from ptdebug.artifacts.provenance import links
from ptdebug.artifacts.recording import Recording
from ptdebug.artifacts.records import AutogradFunction, Graph, Location, Node, NodeRef, TensorMeta
from ptdebug.artifacts.render import listing
from ptdebug.artifacts.store import RecordingWriter

META = TensorMeta("float32", (5,), (1,), "cpu")


def _graph(name: str, target: str, line: int, file: str) -> Graph:
    """A graph of one operator."""
    made = Node("y", "call_function", target, (NodeRef("x"),), value=META, stack=(Location(file, line, name),))
    return Graph(name, (Node("x", "placeholder", "x", value=META), made, _output("y")))


def _output(*results: str) -> Node:
    return Node("output", "output", "output", ([NodeRef(name) for name in results],))


@pytest.fixture
def recording(tmp_path: Path) -> Recording:
    """A graph that calls an autograd function whose forward calls torch.cond."""
    program = tmp_path / "library.py"
    program.write_text("one\ntwo\nthree\n")
    forward = Graph("forward", (
        Node("x", "placeholder", "x", value=META), Node("inner_0", "get_attr", "inner_0"),
        Node("cond", "call_function", "torch.ops.higher_order.cond", (NodeRef("x"), NodeRef("inner_0"))),
        _output("cond"),
    ), inner={"inner_0": _graph("branch", "torch.sin", 1, str(program))})
    backward = _graph("backward", "torch.cos", 2, str(program))
    function = AutogradFunction(forward, backward, (True,), ((1, 5), None), (0,), (1,), once_differentiable=True)
    graph = Graph("capture", (
        Node("x", "placeholder", "x", value=META), Node("sq", "call_function", "Sq", (NodeRef("x"),)), _output("sq"),
    ), inner={"sq": function})
    writer = RecordingWriter(tmp_path / "r")
    writer.begin("0/0", "f", "model.py", 1)
    writer.record("0/0", "capture", "", graph)
    compiled = Node("sin", "call_function", "aten.sin", origins=("capture#sq",))
    writer.record("0/0", "forward", "", Graph("forward", (compiled,)))
    writer.close(0)
    return Recording.open(tmp_path / "r")


def test_they_come_back_with_the_files_of_their_lines(recording: Recording, tmp_path: Path) -> None:
    graph = recording.artifact("0/0", "capture")
    assert isinstance(graph, Graph)
    held = graph.inner["sq"]
    assert isinstance(held, AutogradFunction)
    assert (held.needs_input_grad, held.strides) == ((True,), ((1, 5), None))
    assert (held.non_differentiable, held.dirty, held.once_differentiable) == ((0,), (1,), True)
    branch = held.forward.inner["inner_0"]
    assert isinstance(branch, Graph)
    assert branch.nodes[1].args == (NodeRef("x"),) and branch.nodes[1].value == META
    assert recording.source(str(tmp_path / "library.py")) == "one\ntwo\nthree\n"


def test_they_stand_as_python_where_they_are_used(recording: Recording) -> None:
    shown = listing(recording, "0/0", "capture")
    function, = ast.parse(shown.text).body
    assert isinstance(function, ast.FunctionDef)
    held, call = function.body[:2]
    assert isinstance(held, ast.ClassDef) and held.name == "Sq" and ast.unparse(call) == "sq = Sq.apply(x)"
    forward, backward = held.body
    assert isinstance(forward, ast.FunctionDef) and isinstance(backward, ast.FunctionDef)
    assert isinstance(forward.body[0], ast.FunctionDef) and forward.body[0].name == "inner_0"
    assert "# library.py:1 in branch: one" in shown.text
    assert [line.text.strip() for line in shown.lines if line.text.startswith("        # ")] == [
        "# result 0 is not differentiable", "# result 1 is an input, changed in place",
        "# gradient_0 is made to have strides (1, 5)", "# gradient_1 is made contiguous",
        "# once_differentiable: the gradients cannot be differentiated",
    ]
    refs = [line.ref for line in shown.lines]
    assert refs.count("capture#sq.forward.inner_0.y") == 1 and refs.count("capture#sq.backward.y") == 1


def test_their_lines_lead_to_the_program_and_to_the_other_stages(recording: Recording, tmp_path: Path) -> None:
    found = links(recording, "0/0")
    inner, outer = "capture#sq.forward.inner_0.y", "forward#sin"
    line, = found.related(inner, "source")
    assert line.endswith("library.py#1")
    assert found.related(inner, "forward") == [outer] and found.related(line, "forward") == [outer]
    assert found.related(outer, "capture")[0] == "capture#sq"


def test_a_recording_without_them_is_read() -> None:
    old = b'{"record":"Graph","name":"g","nodes":[{"record":"Node","id":"x","op":"placeholder","target":"x"}]}'
    assert msgspec.json.decode(old, type=Graph) == Graph("g", (Node("x", "placeholder", "x"),))
