"""Listings: readable text, items and origins on each line, nothing that talks to the terminal."""
from __future__ import annotations

import ast
from pathlib import Path

import pytest
from hypothesis import given, strategies as st
from ptdebug.artifacts import records as r
from ptdebug.artifacts.listing import printable, source_path, source_ref, text_lines
from ptdebug.artifacts.provenance import Links, links
from ptdebug.artifacts.recording import Recording, RecordingError
from ptdebug.artifacts.render import RENDERERS, listing, render
from ptdebug.artifacts.render_graph import argument_text, tensor_text
from ptdebug.artifacts.render_summary import render_compile, render_summary
from ptdebug.artifacts.summary import summary


@pytest.fixture
def recording(sample: Path) -> Recording:
    return Recording.open(sample)


def test_every_type_of_record_has_a_renderer() -> None:
    kinds = set(r.AnyRecord.__args__) - {r.Decision, r.Absent}  # these two are rendered in lists
    assert set(RENDERERS) == kinds


def test_graphs_are_python(recording: Recording) -> None:
    for stage, name in (("capture", ""), ("joint", ""), ("passes", "01_common_subexpressions")):
        text = listing(recording, "0/0", stage, name).text
        function, = ast.parse(text).body
        assert isinstance(function, ast.FunctionDef)
        assert [a.arg for a in function.args.args] == ["x"]
    assert "    sigmoid = torch.sigmoid(mul)  # float32[4, 16]\n" in listing(recording, "0/0", "capture").text
    assert "# model.py:5 in gelu: return x * torch.sigmoid(1.702 * x)" in listing(recording, "0/0", "capture").text


def test_every_item_has_a_line(recording: Recording) -> None:
    for info in recording.artifacts("0/0"):
        shown = {line.ref for line in listing(recording, "0/0", info.stage, info.name).lines}
        record = recording.artifact("0/0", info.stage, info.name)
        items = getattr(record, "nodes", getattr(record, "instructions", getattr(record, "statements", getattr(
            record, "guards", getattr(record, "groups", ())))))
        assert {f"{info.key}#{item.id}" for item in items} <= shown


@pytest.mark.parametrize("value, text", [
    (r.NodeRef("x"), "x"), ([r.NodeRef("x"), 1], "[x, 1]"), ({"float": "-inf"}, "float('-inf')"),
    ({"torch": "torch.float32"}, "torch.float32"), ({"symbol": "s0"}, "s0"),
    ({"slice": [0, None, 2]}, "slice(0, None, 2)"),
    ({"python": "..."}, "..."), ((1,), "(1,)"), ({"dim": -1}, "{'dim': -1}"), ("text", "'text'"),
    ({"tensor": "AAAA", "dtype": "float32", "shape": [1], "stride": [1], "device": "cpu"}, "<float32[1]>"),
])
def test_arguments(value: object, text: str) -> None:
    assert argument_text(value) == text


def test_tensors() -> None:
    assert tensor_text(r.TensorMeta("torch.float32", (2, 3), (3, 1), "cpu")) == "float32[2, 3]"
    assert tensor_text(r.TensorMeta("bfloat16", (2, 3), (1, 2), "cuda:0")) == "bfloat16[2, 3] strides (1, 2) cuda:0"
    assert tensor_text(r.TensorMeta("int64", ("s0", 3), (3, 1), "cpu")) == "int64[s0, 3]"


def test_guards_are_a_tree_even_where_the_parents_form_a_circle() -> None:
    circle = r.Guards((r.Guard("a", "L['a']", "X", "a", parent="b"), r.Guard("b", "L['b']", "X", "b", parent="a"),
                       r.Guard("c", "L['c']", "X", "c", parent="gone")))
    lines = [line.text for line in render(circle, "guards").lines]
    assert lines == ["# 3 guards", "X              c"] or len(lines) == 4


def test_a_later_form_of_a_kernel(recording: Recording) -> None:
    shown = listing(recording, "0/0", "kernels", "unit_0.asm")
    assert shown.language == "gas"
    assert shown.lines[0].text == "kernel_0:"
    with pytest.raises(RecordingError, match="unit_0 has no ptx; recorded: asm"):
        listing(recording, "0/0", "kernels", "unit_0.ptx")


@given(st.text())
def test_nothing_printed_can_talk_to_the_terminal(text: str) -> None:
    shown = printable(text)
    assert not any(ord(c) < 32 or 127 <= ord(c) < 160 or c in "\u2028\u2029\u202e\u2066" for c in shown)


def test_escapes_in_records_are_shown() -> None:
    record = r.Wrapper("call", "python", (r.CodeLine("x = '\x1b]0;owned\x07'"),))
    assert render(record, "wrapper").text == "x = '\\x1b]0;owned\\x07'\n"
    assert [line.text for line in text_lines("a\n\nb")] == ["a", "", "b"]


@given(st.text(min_size=1), st.integers(1, 10**6))
def test_references_to_the_program_survive_any_path(path: str, line: int) -> None:
    stage, name, item = r.split_ref(source_ref(path, line))
    assert (stage, source_path(name), item) == ("source", path, str(line))


def test_summaries(recording: Recording) -> None:
    text = render_summary(summary(recording)).text
    assert "1 graph break, 1 recompile" in text
    assert 'model.py:15  print("hidden", tuple(h.shape))' in text
    overview = render_compile(recording, recording.compile("0/0")).text
    assert "loop_ir:buf1                    Loops        4 statements" in overview
    assert "absent backward: inference" in overview


def test_links_lead_from_the_program_to_the_machine_code_and_back(recording: Recording) -> None:
    program, = recording.sources()
    found = links(recording, "0/0")
    line = source_ref(program, 5)
    assert found.related(line, "capture") == ["capture#mul", "capture#sigmoid", "capture#mul_1"]
    assert "kernels:unit_0#9" in found.related(line, "kernels")
    assert found.related("kernels:unit_0#9", "loop_ir") == ["loop_ir:buf1#t2"]
    assert found.related("kernels:unit_0#9", "joint") == ["joint#sigmoid"]
    assert found.related("kernels:unit_0#9", "source") == [line, source_ref(program, 14)]
    assert found.related("kernels:unit_0#9", "wrapper") == ["wrapper#5"]
    assert found.related("capture#up", "wrapper") == ["wrapper#3"]
    assert "kernels:unit_0#9" in found.related("passes:01_common_subexpressions#sigmoid", "kernels")
    assert found.everywhere("kernels:unit_0#9")[0] == line


def test_links_do_not_run_in_circles() -> None:
    found = Links([("a#1", "b#1"), ("b#1", "a#1"), ("b#1", "c#1")])
    assert found.origins("a#1") == ["b#1", "c#1"]
    assert set(found.derived("c#1")) == {"b#1", "a#1"}


def test_a_kernel_s_schedule_says_what_was_chosen_and_shows_its_loops() -> None:
    loops = r.LoopSchedule(
        ("i0",), ("i1",), "16 x 64 of i0 in 512 and i1 in 512, with y transposed",
        stores=("non-temporal stores of buf0",),
        nest=("kernel fused_0", "  parallel", "    for i0 in 512"))
    group = r.ScheduledGroup(
        "fused_0", "loops", ("buf0",), "fused_0", ("i0<512", "i1<512"), ("y",), ("buf0",), schedule=loops)
    text = render(r.Schedule((group,)), "schedule").text
    assert text.endswith("""
    reads y; writes buf0
    threads share: i0
    vectors along: i1
    tile: 16 x 64 of i0 in 512 and i1 in 512, with y transposed
    stores: non-temporal stores of buf0
      kernel fused_0
        parallel
          for i0 in 512
""")


def test_graphs_have_the_programs_names_of_their_inputs(tmp_path: Path) -> None:
    from ptdebug.artifacts.recording import Recording
    from ptdebug.artifacts.records import Graph, Guard, Guards, Node, NodeRef, SavedInput, SavedInputs, TensorMeta
    from ptdebug.artifacts.render import listing
    from ptdebug.artifacts.store import RecordingWriter

    def meta(*shape: int) -> TensorMeta:
        return TensorMeta("float32", shape, (1,) * len(shape), "cpu")

    sources = {"L['self']._modules['fc']._parameters['weight']": meta(4), "L['x']": meta(8), "L['other'].sub": meta(2)}
    spelled = {source: "".join(c if c.isalnum() else "_" for c in source) for source in sources}
    captured = tuple(Node(spelled[s].lower(), "placeholder", spelled[s], value=m) for s, m in sources.items())
    aten = tuple(Node(f"arg{i}", "placeholder", f"arg{i}", value=m) for i, m in enumerate(sources.values()))
    used = Node("add", "call_function", "aten.add.Tensor", (NodeRef("arg0"), NodeRef("arg1"), "arg1"))
    writer = RecordingWriter(tmp_path / "r", command=["a.py"])
    writer.begin("0/0", "f", "a.py", 1)
    writer.record("0/0", "capture", "", Graph("capture", captured))
    writer.record("0/0", "guards", "", Guards((Guard("g", "L['x']", "TENSOR_MATCH", "", name="x"),)))
    writer.record("0/0", "runtime", "inputs", SavedInputs(tuple(SavedInput(s, m) for s, m in sources.items())))
    writer.record("0/0", "forward", "", Graph("forward", (*aten, used), ("arg0 is saved",)))
    writer.record("0/0", "forward", "segment_1", Graph("forward", (*aten, used)))
    other = Node("arg1", "placeholder", "arg1", value=meta(5))
    writer.record("0/0", "joint", "", Graph("joint", (aten[0], other, used)))
    writer.end("0/0", "compiled", "", {})
    writer.close(0)
    with Recording.open(tmp_path / "r") as recording:
        forward = listing(recording, "0/0", "forward")
        assert "    self.fc.weight,  # arg0: float32[4]" in forward.text
        assert "add = aten.add.Tensor(self.fc.weight, x, 'arg1')" in forward.text
        assert "# self.fc.weight is saved" in forward.text and "    other.sub,  # arg2" in forward.text
        assert [line.ref for line in forward.lines if "self.fc.weight," in line.text] == ["forward#arg0", "forward#add"]
        assert "    x,  # l__x__: float32[8]" in listing(recording, "0/0", "capture").text
        assert "self.fc" not in listing(recording, "0/0", "forward", "segment_1").text  # inputs of its own
        assert "self.fc" not in listing(recording, "0/0", "joint").text  # its inputs are not those of the capture
