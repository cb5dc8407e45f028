"""Questions as people ask them (`ptdebug why`), and what things are called in the answers."""
from __future__ import annotations

import functools
import json
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import ptdebug
import pytest
import torch
from ptdebug.artifacts.recording import Recording
from ptdebug.artifacts.records import Breaks, Frame, Recompile, Schedule
from ptdebug.artifacts.render_lists import recompile_lines
from ptdebug.artifacts.why import Answer, answers, left_out, pointers
from ptdebug.cli import api

Command = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    api.reset()
    yield


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.layer(x).relu()
        print(end="")
        return h.softmax(-1)


BREAK_LINE = Net.forward.__code__.co_firstlineno + 2


def left_alone(x: torch.Tensor) -> torch.Tensor:
    return x


@pytest.fixture
def recording(tmp_path: Path) -> Iterator[Recording]:
    net = ptdebug.compile(Net())
    with ptdebug.record("r", out=str(tmp_path)) as recorded, torch.no_grad():
        for size in (2, 3):
            net(torch.ones(size, 8))
        ptdebug.compile(left_alone)(torch.ones(2))
    with Recording.open(recorded.path) as found:
        yield found


def kinds(found: list[Answer]) -> set[str]:
    return {answer.kind for answer in found}


def test_why_something_runs_in_eager(recording: Recording) -> None:
    [alone] = answers(recording, "why does left_alone run in eager?")
    assert "skipped: it has no tensor operation" in alone.lines[0].text
    found = answers(recording, "why does Net.forward run in eager?")
    assert kinds(found) == {"break"} and "print(" in "".join(line.text for line in found[0].lines)
    assert answers(recording, "what runs in eager?") == [alone]
    assert answers(recording, "why is left_alone not compiled?") == [alone]


def test_a_line_is_asked_for(recording: Recording) -> None:
    for question in (f"why was the graph broken at line {BREAK_LINE}?", f"line {BREAK_LINE}: break?"):
        found = answers(recording, question)
        assert kinds(found) == {"break"} and {a.line for a in found} == {BREAK_LINE}
    assert answers(recording, "why was the graph broken at line 9999?") == []
    for place, line in ((Path(__file__).name, BREAK_LINE), (__file__, BREAK_LINE), (Path(__file__).name, 9999)):
        found = answers(recording, f"why was the graph broken at {place}:{line}?")
        assert kinds(found) == ({"break"} if line == BREAK_LINE else set())
    assert kinds(answers(recording, f"what broke in {Path(__file__).name}?")) == {"break"}
    assert answers(recording, f"why was the graph broken at other.py:{BREAK_LINE}?") == []


def test_names_that_are_not_recorded_are_told(recording: Recording) -> None:
    for name, missing in (("Nett", ["Nett"]), ("Net", [])):
        question = f"why does {name}.forward run in eager?"
        assert left_out(recording, question, answers(recording, question)) == missing
    assert kinds(answers(recording, "why was Net.forward compiled again?")) == {"recompile"}


def test_a_compilation_is_asked_for_by_its_id(recording: Recording) -> None:
    name = recording.compiles()[0].id.partition("/")[0] + "/1"
    found = answers(recording, name)
    assert {a.compile for a in found} == {name} and {"compile", "recompile"} <= kinds(found)
    [again] = answers(recording, f"why was {name} recompiled?")
    assert (again.compile, again.kind) == (name, "recompile")


def test_every_kernel_and_buffer_that_is_printed_is_known(recording: Recording) -> None:
    for _, schedule in recording.records(Schedule):
        for group in schedule.groups:
            assert answers(recording, group.kernel), group.kernel
            for name in (*group.members, *group.reads, *group.writes, *group.internal):
                assert answers(recording, name), name


def test_questions_about_the_whole_point_to_commands(recording: Recording, ptdebug: Command) -> None:
    for question, command in {
        "why is it slow?": "kernels", "why does it recompile?": "recompiles", "where does the nan come from?": "replay",
        "why are the results different?": "replay", "which guards are there?": "guards",
    }.items():
        assert command in [name for name, _ in pointers(question)], question
        done = ptdebug("why", str(recording.path), question)
        assert done.returncode == 0 and f"see: ptdebug {command} " in done.stdout
    assert pointers("why is buf0 slow?") == [] and pointers("why was buf0 not fused with buf1?") == []
    assert kinds(answers(recording, "why does it recompile?")) == {"recompile"}
    document = json.loads(ptdebug("why", str(recording.path), "why is it slow?", "--json").stdout)
    assert document["answers"] == [] and "kernels" in document["see"]


def decorated(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    return wrapper


class Decorated(torch.nn.Module):
    @decorated
    @decorated
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + 1


class Inherits(Decorated):
    pass


@decorated
def helper(x: torch.Tensor) -> torch.Tensor:
    return x * 2


def test_a_frame_is_called_as_what_was_decorated(tmp_path: Path) -> None:
    with ptdebug.record("r", out=str(tmp_path)) as recording:
        for thing in (Decorated(), Inherits(), helper):
            ptdebug.compile(thing)(torch.ones(2))
    frames = [frame for _, frame in recording.records(Frame)]
    assert [frame.function for frame in frames] == ["Decorated.forward", "Inherits.forward", "helper"]
    inside = Decorated.forward.__wrapped__.__wrapped__.__code__  # type: ignore[attr-defined]
    assert {(f.file, f.line) for f in frames[:2]} == {(inside.co_filename, inside.co_firstlineno)}
    assert [d.subject.partition("@")[0] for _, d in recording.decisions(kind="frame")][:2] == [
        "Decorated.forward", "Inherits.forward"]


def test_an_autograd_function_that_was_left_to_eager(tmp_path: Path) -> None:
    class Sine(torch.autograd.Function):
        @staticmethod
        def forward(x: torch.Tensor) -> torch.Tensor:
            return x.sin()

        @staticmethod
        def setup_context(ctx: Any, inputs: tuple[Any, ...], output: torch.Tensor) -> None:
            print(end="")
            ctx.save_for_backward(*inputs)

        @staticmethod
        def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
            return grad * ctx.saved_tensors[0].cos()

    x = torch.ones(3, requires_grad=True)
    with ptdebug.record("r", out=str(tmp_path)) as recording:
        ptdebug.compile(lambda x: Sine.apply(x) + 1)(x).sum().backward()
    for _, record in recording.records(Breaks):
        for found in record.breaks:
            if "save_for_backward" in found.source:
                assert "nothing here" in found.hint and "before or after" not in found.hint


def test_all_changes_of_a_recompilation_are_listed(tmp_path: Path) -> None:
    def many(*numbers: Any) -> Any:
        return numbers[0] + len([n for n in numbers[1:] if n])

    with ptdebug.record("r", out=str(tmp_path)) as recording:
        compiled = ptdebug.compile(many)
        compiled(torch.ones(1), *([True] * 8))
        compiled(torch.ones(1), *([False] * 8))
    [(_, again)] = recording.records(Recompile)
    assert len(again.other_failures) == 7 and not any(text.endswith(" more") for text in again.other_failures)
    shown = [line.text for line in recompile_lines(again, recording.source)]
    assert "  and: 3 more" in shown


def test_distributed_data_parallel_is_left_to_eager_and_its_module_compiled(warm: Command, tmp_path: Path) -> None:
    if not torch.distributed.is_available():
        pytest.skip("this torch is built without torch.distributed")
    (tmp_path / "program.py").write_text("""
import torch, torch.distributed as dist
dist.init_process_group("gloo", init_method="file://" + __file__ + ".store", rank=0, world_size=1)
torch.manual_seed(0)
net = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU(), torch.nn.Linear(8, 4))
eager = torch.nn.parallel.DistributedDataParallel(net)
fast = torch.compile(eager)
x = torch.randn(4, 8)
want = eager(x)
want.sum().backward()
grad = net[0].weight.grad.clone()
net.zero_grad()
got = fast(x)
got.sum().backward()
torch.testing.assert_close(got, want)
torch.testing.assert_close(net[0].weight.grad, grad)
dist.destroy_process_group()
""")
    done = warm("run", "--json", "summary.json", "program.py", timeout=300)
    assert done.returncode == 0, done.stderr
    counts = json.loads((tmp_path / "summary.json").read_text())["counts"]
    assert (counts["graphs"], counts["graph_breaks"]) == (1, 0)


def test_a_recompilation_is_compared_with_the_nearest(tmp_path: Path) -> None:
    """A size that several conditions ask about is one change: 0/1 is nearer than 0/0, which was for another size."""
    def function(x: torch.Tensor) -> torch.Tensor:
        if x.shape[0] % 2 == 0 and x.shape[0] > 5:
            return x * 2
        return x + 1

    with ptdebug.record("r", out=str(tmp_path)) as recording:
        compiled = ptdebug.compile(function)
        for size in (8, 6, 3):
            compiled(torch.ones(size))
    (_, first), (_, second) = recording.records(Recompile)
    assert (first.subject, first.expected, first.actual) == ("x.size(0)", "8", "6")
    assert second.compared_with.endswith("/1") and "% 2" in second.subject and second.actual == "x.size(0) is 3"


def test_the_public_names_are_listed() -> None:
    assert set(ptdebug.__all__) <= set(dir(ptdebug))
