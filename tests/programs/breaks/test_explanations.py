"""What a person reads of breaks, recompilations, guards and sizes, from a program that was recorded."""
from __future__ import annotations

import os
from pathlib import Path

import ptdebug
import pytest
import torch
from ptdebug.artifacts.recording import Recording
from ptdebug.artifacts.records import Guards
from ptdebug.artifacts.summary import break_costs, breaks, recompiles, summary
from ptdebug.artifacts.why import answers
from ptdebug.cli.main import main

X = torch.rand(6, 4)


def gate(x, act):
    y = torch.relu(x)
    print("seen", y.shape)
    if (y.sum() >
            1):
        y = act(y)
    return torch.tanh(y) + 1


def sizes(x, rate, mode):
    y = x * rate if mode == "train" else x
    if y.shape[0] == 9:
        y = y + 1
    return y.view(-1, 2)


class Model(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(4, 4)
        self.scale = "one"

    def forward(self, x):
        return self.layer(x) * (1 if self.scale == "one" else 2)


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory):
    folder = tmp_path_factory.mktemp("explained")
    with ptdebug.record("explained", out=folder):
        for act in (torch.relu, torch.sigmoid):
            compiled = ptdebug.compile(gate, isolate_recompiles=True)
            for _ in range(2):
                compiled(X, act)
        compiled = ptdebug.compile(sizes)
        for rows, rate, mode in ((6, 0.5, "train"), (8, 0.25, "train"), (9, 0.1, "train"), (7, 0.2, "eval")):
            compiled(torch.rand(rows, 4), rate, mode)
        with torch.no_grad():
            compiled(torch.rand(12, 4), 0.1 + 0.2, "eval")
        model = Model()
        compiled = ptdebug.compile(model)
        compiled(X)
        model.scale = "two"
        compiled(X)
    with Recording.open(folder / "explained") as opened:
        yield opened


def test_a_break_is_one_entry_with_its_expression_and_cost(recording: Recording) -> None:
    (_, shown, times), (_, branch, _) = breaks(recording)
    assert (shown.expression, shown.location.function, times) == ('print("seen", y.shape)', "gate", 2)
    assert Path(shown.location.file).name == "test_explanations.py" and shown.source in shown.expression
    assert branch.expression == "(y.sum() > 1)" or branch.expression == "y.sum() > 1"
    assert "torch.where" in branch.hint and "`" in branch.message
    first, second = break_costs(recording)
    assert first.graphs >= 1 and first.seconds > 0 and first.passes >= 2
    assert first.unfused == 2  # in both compilations: relu before it, the sum after it
    assert second.graphs >= 1
    document = summary(recording)["graph_breaks"][0]
    assert document["times"] == 2 and document["cost"]["graphs"] == first.graphs
    assert document["column"] == 4 and document["end_line"] == document["line"]


def innermost(x):
    print(end="")
    return x + 1


def inner(x):
    return innermost(x * 2) * 2


def middle(x):
    return inner(x * 3) * 3


def test_a_break_inside_of_calls_is_passed_as_often_as_the_program_passes_it(tmp_path: Path) -> None:
    with ptdebug.record("nested", out=tmp_path):
        for function, calls in ((lambda x: middle(x) - 1, 3), (lambda x: inner(x) - 2, 2)):
            compiled = ptdebug.compile(function)
            for _ in range(calls):
                compiled(X)
    with Recording.open(tmp_path / "nested") as opened:
        (cost,) = break_costs(opened)
    assert cost.passes == 5


def by_name(x):
    print(end="")
    return x * eval("2")


def ends_visibly(x):
    with open(os.devnull, "w") as file:
        file.write("")
    return x + 1


def test_what_is_not_compiled_after_a_break_is_told_with_its_reason(tmp_path: Path) -> None:
    with ptdebug.record("left", out=tmp_path):
        for function in (by_name, ends_visibly):
            ptdebug.compile(function)(X)
    with Recording.open(tmp_path / "left") as opened:
        whole, *split, rest = break_costs(opened)
        told = [entry["cost"]["uncompiled"] for entry in summary(opened)["graph_breaks"]]
    assert told == [whole.uncompiled, *[""] * len(split), rest.uncompiled] and split
    assert whole.uncompiled.startswith("the whole function, since ") and "eval" in whole.uncompiled
    assert rest.uncompiled.startswith("the rest of the function, since ") and "generator" in rest.uncompiled


def test_recompilations_name_what_changed_against_the_nearest(recording: Recording) -> None:
    found = {r.subject: r for _, r in recompiles(recording)}
    size = found["x.size(0)"]
    assert (size.expected, size.actual, size.other_failures) == ("6", "8", ("rate was 0.5, is 0.25",))
    assert size.call_site is not None and "compiled(torch.rand(rows, 4)" in line(size.call_site)
    relation = next(r for what, r in found.items() if "== 9" in what or "!= 9" in what)
    assert relation.location is not None and "y.shape[0] == 9" in line(relation.location)
    assert found["mode"].hint and found["mode"].entries == 3
    assert (found["grad mode"].expected, found["grad mode"].actual) == ("on", "off")
    assert found["grad mode"].location is None  # all compiled code needs it, no line more than others
    assert found["self.scale"].guard == "L['self'].scale == 'one'"
    assert all(r.subject and r.expected and r.actual and r.hint and r.expected != r.actual for r in found.values())


def line(place) -> str:
    return Path(place.file).read_text().splitlines()[place.line - 1]


def test_guards_know_line_node_and_name(recording: Recording) -> None:
    owner, record = next((o, g) for o, g in recording.records(Guards) if g.symbols)
    guards = {g.name: g for g in record.guards}
    assert guards["x"].location is not None and "x * rate" in line(guards["x"].location)
    assert guards["x"].origins and guards["mode"].origins  # the input, and the product that the line made
    rows = next(s for s in record.symbols if s.subject == "x.size(0)")
    assert rows.value == "8" and "earlier compilation" in rows.why
    assert any("9" in e.text and e.location and "y.shape[0] == 9" in line(e.location) for e in rows.events)
    assert any(a.kind == "symbol" for a in answers(recording, f"why is {rows.name} dynamic", owner))


def test_the_commands_read_well(recording: Recording, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["breaks", str(recording.path)]) == 0
    out = capsys.readouterr().out
    assert "graph breaks at 2 places in 1 function" in out
    assert "change: " in out and "cost: " in out and "(y.sum() >" in out
    assert main(["recompiles", str(recording.path)]) == 0
    out = capsys.readouterr().out
    assert "because: x.size(0): was 6, is now 8" in out and "called from: " in out and "to avoid: " in out
    assert "needed by: " not in out[out.index("because: grad mode") :].partition("guard: ")[0]
    assert main(["show", str(recording.path)]) == 0
    out = capsys.readouterr().out
    assert f"gate, resumed after the break at test_explanations.py:{gate.__code__.co_firstlineno + 2}" in out
    assert "torch_dynamo_resume" not in out
    assert main(["guards", str(recording.path)]) == 0
    out = capsys.readouterr().out
    assert "represents x.size(0), 8 at this call" in out and "checked " in out
    assert "type(self.layer) is torch.nn.modules.linear.Linear  # test_explanations.py" in out
    assert "self.layer.weight: torch.nn.parameter.Parameter torch.float32[4, 4] on cpu" in out
    assert "L['" not in out and "_modules" not in out and "global state: true" not in out


def turns(x):
    for turn in range(4):
        x = torch.tanh(x * turn)
        if x.abs().max() > 2:
            break
    return x


def test_what_a_part_after_a_break_gets_has_no_name_of_ours(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with ptdebug.record("turns", out=tmp_path):
        ptdebug.compile(turns)(X)
    assert main(["guards", str(tmp_path / "turns")]) == 0
    out = capsys.readouterr().out
    assert "represents turn, 2 at this call" in out and "'range' not in globals()" in out
    assert ".ours_stack" not in out and "type(break)" not in out


def test_fullgraph_lists_all_breaks() -> None:
    with pytest.raises(RuntimeError) as caught:
        ptdebug.compile(gate, fullgraph=True)(X, torch.relu)
    text = str(caught.value)
    assert "breaks in 2 places" in text and "1. " in text and "2. " in text
    assert 'print("seen", y.shape)' in text and "y.sum() > 1" in text and "to change" in text


def test_marks_that_do_not_hold_tell_the_story() -> None:
    def only_six(x):
        return x + 1 if x.shape[0] == 6 else x

    marked = torch.rand(6, 4)
    torch._dynamo.mark_dynamic(marked, 0)
    with pytest.raises(torch.fx.experimental.symbolic_shapes.ConstraintViolationError, match=r"x\.size\(0\)") as caught:
        ptdebug.compile(only_six)(marked)
    assert "test_explanations.py" in str(caught.value)


def test_a_marked_range_is_kept() -> None:
    compiles = ptdebug.compile(lambda x: x * x.shape[0])
    ptdebug.stats()
    marked = torch.rand(6, 4)
    torch._dynamo.mark_dynamic(marked, 0, min=2, max=8)
    for rows in (marked, torch.rand(8, 4), torch.rand(9, 4)):
        torch.testing.assert_close(compiles(rows), rows * rows.shape[0])
    assert any("<= 8" in reason for reason in ptdebug.stats()["reasons"])


def test_a_function_that_is_compiled_in_a_loop_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = torch.nn.Linear(4, 4)
    with ptdebug.record("loop", out=tmp_path):
        for _ in range(3):
            ptdebug.compile(model, isolate_recompiles=True)(X)
    with Recording.open(tmp_path / "loop") as opened:
        (found,) = summary(opened)["isolated_compiles"]
        assert (found["function"], found["times"], len(found["compiles"])) == ("Linear.forward", 3, 2)
        assert found["seconds"] > 0
        assert "ptdebug.compile(model, isolate_recompiles=True)(X)" in line_at(found["call_site"])
    assert main(["recompiles", str(tmp_path / "loop")]) == 0
    out = capsys.readouterr().out
    assert "Linear.forward was compiled for each of 3 calls of torch.compile" in out and "to avoid: " in out
    assert "called from: test_explanations.py:" in out
    with ptdebug.record("shared", out=tmp_path):
        for _ in range(3):
            ptdebug.compile(model)(X)
    with Recording.open(tmp_path / "shared") as opened:
        assert len(opened.compiles()) == 1 and summary(opened)["isolated_compiles"] == []
    with ptdebug.record("apart", out=tmp_path):
        for other in (torch.nn.ReLU(), torch.nn.ReLU()):  # two of one class are two models
            ptdebug.compile(other)(X)
    with Recording.open(tmp_path / "apart") as opened:
        assert summary(opened)["isolated_compiles"] == []


def line_at(place) -> str:
    return Path(place["file"]).read_text().splitlines()[place["line"] - 1]


def refuses(x):
    return torch.cat([x * 2, torch.ones(3, 3)], 1)


def passes_on(x):
    with torch.no_grad():
        return refuses(x + 1)


def tells_otherwise(x):
    try:
        return refuses(x + 1)
    except RuntimeError as error:
        raise ValueError("told") from error
    finally:
        x.add_(1)


def test_an_exception_on_its_way_out_is_no_break_and_one_that_is_raised_has_the_line_of_its_raise(tmp_path):
    with ptdebug.record("raised", out=tmp_path):
        for function, error in ((passes_on, RuntimeError), (tells_otherwise, ValueError)):
            with pytest.raises(error):
                ptdebug.compile(function)(torch.ones(2, 2))
    with Recording.open(tmp_path / "raised") as opened:
        found = [(entry.code, entry.location.line) for _, entry, _ in breaks(opened)]
    first = refuses.__code__.co_firstlineno
    assert found == [("operator-error", first + 1), ("raises", tells_otherwise.__code__.co_firstlineno + 4)]
