"""What the tracer knew before a step: the frames, their stacks and variables, the graph and the guards so far."""
from __future__ import annotations

from dataclasses import dataclass

from .step_records import DELETED, OUTERMOST, Step, StepFrame, Steps


@dataclass(frozen=True)
class FrameState:
    """A frame: its function, the number of the step that it is at, its stack (bottom first) and its variables."""

    function: str
    step: int
    stack: tuple[str, ...]
    variables: dict[str, str]


@dataclass(frozen=True)
class State:
    """Before a step: the frames, innermost last; the nodes of the graph and the guards that there were."""

    frames: tuple[FrameState, ...]
    nodes: tuple[str, ...]
    guards: tuple[str, ...]


def state_before(record: Steps, number: int) -> State:
    """What there was before step `number` of `record`, which counts from 0. Raises IndexError where there is none."""
    if not 0 <= number < len(record.steps):
        raise IndexError(number)
    chain = _chain(record, number)
    held = {frame: _Held.at_entry(record.frames[frame]) for frame in chain}
    nodes: list[str] = []
    guards: list[str] = []
    for place, step in enumerate(record.steps[:number]):
        if place >= chain.get(step.frame, number):  # a call that is not over
            continue
        nodes += step.nodes
        guards += step.guards
        if step.frame in held:
            held[step.frame].apply(step)
    frames = [held[frame].state(record, frame, at) for frame, at in reversed(chain.items())]
    return State(tuple(frames), tuple(nodes), tuple(guards))


def depths(record: Steps) -> list[int]:
    """Of each frame of `record`, how many frames are around it."""
    found: list[int] = []
    for frame in record.frames:
        outermost = frame.entered_by == OUTERMOST
        found.append(0 if outermost else found[record.steps[frame.entered_by].frame] + 1)
    return found


def _chain(record: Steps, number: int) -> dict[int, int]:
    """The frames at a step, innermost first, each with the step that it is at."""
    found: dict[int, int] = {}
    while number != OUTERMOST:
        frame = record.steps[number].frame
        found[frame] = number
        number = record.frames[frame].entered_by
    return found


@dataclass
class _Held:
    """What a frame holds, as indices of values."""

    stack: list[int]
    variables: dict[str, int]

    @classmethod
    def at_entry(cls, frame: StepFrame) -> _Held:
        return cls(list(frame.stack), dict(frame.variables))

    def apply(self, step: Step) -> None:
        if step.popped:
            del self.stack[-step.popped :]
        self.stack += step.pushed
        for name, value in step.variables:
            if value == DELETED:
                self.variables.pop(name, None)
            else:
                self.variables[name] = value

    def state(self, record: Steps, frame: int, step: int) -> FrameState:
        values = record.values
        return FrameState(
            record.frames[frame].function, step, tuple([values[index] for index in self.stack]),
            {name: values[index] for name, index in self.variables.items()},
        )
