"""Stage `steps`: what the tracer did, instruction by instruction, and what it knew before any of them."""
from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import ptdebug
import pytest
import torch
from ptdebug.artifacts.recording import Recording
from ptdebug.artifacts.records import Guards, Steps
from ptdebug.artifacts.render import listing
from ptdebug.artifacts.step_states import State, state_before
from ptdebug.tracer.interpreter import step_log


class Scaled(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = torch.nn.Linear(8, 8)
        self.scales = [1.0, 2.0]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        outs = []
        for scale in self.scales:
            outs.append(self.fc(x) * scale)
        try:
            outs[5]
        except IndexError:
            pass
        return sum(o.sum() for o in outs)  # type: ignore[return-value]


def _numbers(count: int) -> Iterator[int]:
    seen = yield 0
    for i in range(1, count):
        seen = yield i + (seen or 0)


def generators(x: torch.Tensor) -> torch.Tensor:
    pairs = zip(_numbers(3), (n * n for n in range(3)))
    total = x
    for a, b in pairs:
        total = total + a * b
    return total


def closures(x: torch.Tensor) -> torch.Tensor:
    count = 0

    def add(y: torch.Tensor) -> torch.Tensor:
        nonlocal count
        count += 1
        return y + count

    return add(add(x)) * count


def breaks(x: torch.Tensor, flag: bool = True) -> torch.Tensor:
    y = doubled_sine(x)
    print(end="")
    return y + 1 if flag else y


def raises_inside(x: torch.Tensor) -> torch.Tensor:
    def fail(y: torch.Tensor) -> torch.Tensor:
        raise ValueError("no")

    try:
        return fail(x + 1)
    except ValueError as error:
        return x * len(str(error))


def doubled_sine(x: torch.Tensor) -> torch.Tensor:
    return x.sin() * 2


PROGRAMS: dict[str, Callable[[], Callable[..., Any]]] = {
    "module": Scaled, "generators": lambda: generators, "closures": lambda: closures, "breaks": lambda: breaks,
    "raises": lambda: raises_inside,
}


def _recorded(program: Callable[..., Any], folder: Path, steps: str) -> Recording:
    torch.compiler.reset()
    with ptdebug.record(folder.name, str(folder.parent), steps=steps) as recording:
        ptdebug.compile(program)(torch.ones(4, 8))
    return recording


def _attempts(recording: Recording, number: int = 0) -> list[Steps]:
    """Of the compilation with that number in the recording."""
    compile_id = recording.compiles()[number].id
    found = [recording.artifact(compile_id, "steps", info.name) for info in recording.artifacts(compile_id, "steps")]
    return [record for record in found if isinstance(record, Steps)]


def _at(record: Steps, opname: str, argument: str = "", function: str = "", last: bool = False) -> tuple[int, State]:
    """The number of the first (last) step with that instruction, and what there was before it."""
    numbers = [
        number for number, step in enumerate(record.steps)
        if record.instructions[step.instruction].opname.startswith(opname)
        and argument in record.instructions[step.instruction].argument
        and record.frames[step.frame].function.endswith(function)
    ]
    number = numbers[-1 if last else 0]
    return number, state_before(record, number)


def test_state_inside_of_a_call_has_the_whole_stack_of_frames(tmp_path: Path) -> None:
    torch.manual_seed(0)
    (record,) = _attempts(_recorded(Scaled(), tmp_path / "r", "all"))
    _, state = _at(record, "LOAD_ATTR", "weight", "Linear.forward", last=True)
    outer, inner = state.frames
    assert (outer.function, inner.function) == ("Scaled.forward", "Linear.forward")
    assert outer.variables["scale"] == "2.0" and outer.variables["outs"] == "a list of 1: mul"
    assert inner.variables["input"] == "the tensor `x`: float32[4, 8]"
    assert inner.stack[-1] == "the module fc (Linear)"
    assert state.nodes[-2:] == ("linear", "mul") and "TENSOR_MATCH of self.fc.weight" in state.guards


def test_calls_that_are_over_left_their_result(tmp_path: Path) -> None:
    (record,) = _attempts(_recorded(Scaled(), tmp_path / "r", "all"))
    _, state = _at(record, "RETURN_VALUE", function="Scaled.forward", last=True)
    (frame,) = state.frames
    assert len(frame.stack) == 1 and frame.stack[0].startswith("the tensor `sum(o.sum() for o in outs)`: float32[]")
    assert frame.variables["outs"] == "a list of 2: mul, mul_1"
    assert record.end == "the frame returns"


def test_a_variable_changed_in_place_and_one_in_a_closure(tmp_path: Path) -> None:
    (record,) = _attempts(_recorded(closures, tmp_path / "r", "all"))
    _, state = _at(record, "RETURN_VALUE", function="closures", last=True)
    assert state.frames[0].variables["count"] == "2"
    changed = [dict(step.variables) for step in record.steps if step.variables]
    assert [record.values[c["count"]] for c in changed if "count" in c].count("2") >= 1


def test_an_exception_is_at_the_step_that_raised_it(tmp_path: Path) -> None:
    (record,) = _attempts(_recorded(raises_inside, tmp_path / "r", "all"))
    raised = [(record.frames[s.frame].function.rpartition(".")[2], s.raised) for s in record.steps if s.raised]
    assert raised[0] == ("fail", "raises ValueError('no')")
    _, state = _at(record, "CHECK_EXC_MATCH", function="raises_inside")
    assert len(state.frames) == 1 and state.frames[0].stack[-1] == "the class ValueError"


def test_a_break_is_the_last_step_of_the_first_attempt(tmp_path: Path) -> None:
    recording = _recorded(breaks, tmp_path / "r", "all")
    first, second = _attempts(recording)
    assert first.end.startswith("it stops: print()") and second.end == "the graph ends here"
    assert first.steps[-1].raised == "stops: unsupported-builtin: print"
    assert [step.instruction for step in second.steps] == [step.instruction for step in first.steps[:-1]]
    assert _attempts(recording, 1)[0].function == "breaks"  # the rest of it


@pytest.mark.parametrize("name", PROGRAMS)
def test_it_changes_nothing(name: str, tmp_path: Path) -> None:
    """The graph, the guards and the new bytecode are those of a run without it."""
    def left(steps: str) -> list[tuple[str, str]]:
        torch.manual_seed(0)
        recording = _recorded(PROGRAMS[name](), tmp_path / (steps or "none"), steps)
        return [(a.key, _text(recording, info.id, a.stage, a.name)) for info in recording.compiles()
                for stage in ("capture", "guards", "output_bytecode", "breaks")
                for a in recording.artifacts(info.id, stage)]

    assert left("all") == left("")


def _text(recording: Recording, compile_id: str, stage: str, name: str) -> str:
    """An artifact's text, without addresses and the numbers of compiled functions; of guards, what they check."""
    record = recording.artifact(compile_id, stage, name)
    if isinstance(record, Guards):
        text = "\n".join(f"{guard.source} {guard.kind} {guard.code}" for guard in record.guards)
    else:
        text = listing(recording, compile_id, stage, name).text
    return re.sub(r"0x[0-9a-f]+|\b\d{9,}\b|(?<=[a-z]_)\d+_\d+", "", text)


@pytest.mark.parametrize("name", PROGRAMS)
def test_every_state_can_be_told(name: str, tmp_path: Path) -> None:
    """Applying the steps never takes more from a stack than is there, and ends with one value at a return."""
    recording = _recorded(PROGRAMS[name](), tmp_path / "r", "all")
    for record in _attempts(recording):
        for number, step in enumerate(record.steps):
            state = state_before(record, number)
            assert state.frames[-1].step == number
            assert len(state.frames[-1].stack) >= step.popped
            if record.instructions[step.instruction].opname == "RETURN_VALUE":
                assert len(state.frames[-1].stack) >= 1


def test_what_is_left_out_is_counted_and_no_other_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (whole,) = _attempts(_recorded(Scaled(), tmp_path / "whole", "all"))
    monkeypatch.setattr(step_log, "MOST", 30)
    (cut,) = _attempts(_recorded(Scaled(), tmp_path / "cut", "all"))
    assert cut.left_out == len(whole.steps) - 30 and len(cut.steps) == 30
    calls = {frame.entered_by for frame in cut.frames}  # that are not over have no result yet
    for number, (one, other) in enumerate(zip(cut.steps, whole.steps)):
        if number not in calls:
            assert (one.nodes, one.guards, one.popped, len(one.pushed)) == (
                other.nodes, other.guards, other.popped, len(other.pushed))


def test_wrong_compilations_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="such as 0/0"), ptdebug.record("r", str(tmp_path), steps="first"):
        pass
