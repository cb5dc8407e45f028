"""The records of stage `steps`: one attempt of the tracer at a frame, instruction by instruction, as differences.

What the stack and the variables hold before a step is found by applying the steps before it (`step_states.py`), so any
step can be looked at, in any order. Values are described once, in `Steps.values`, and named by their index there.
"""
from __future__ import annotations

from .record_base import Location, Record

DELETED = -1
"""In place of a value: the variable is unbound."""
OUTERMOST = -1
"""In place of the step that entered a frame: it is the one that is compiled."""


class StepInstruction(Record, frozen=True):
    """An instruction that ran. `offset` is in bytes, as in stage `bytecode`."""

    offset: int
    opname: str
    argument: str = ""
    location: Location | None = None


class StepFrame(Record, frozen=True):
    """One time that a frame was entered: a call, or a generator that goes on. `entered_by` is the number of the step
    that did it; what the frame held by then are `stack` and `variables` (name, value)."""

    function: str
    entered_by: int
    stack: tuple[int, ...] = ()
    variables: tuple[tuple[str, int], ...] = ()


class Step(Record, frozen=True):
    """One instruction, and what it changed.

    The top `popped` values left the frame's stack, then `pushed` came; `variables` are those that were bound, unbound
    (DELETED), or hold what is described in another way now, because it was changed in place. `nodes` are the names of
    graph nodes that it made, `guards` what it made the graph depend on; what an inlined call did is that call's steps'.
    `raised` is the exception that left it, or why tracing stopped there.
    """

    frame: int
    instruction: int
    popped: int = 0
    pushed: tuple[int, ...] = ()
    variables: tuple[tuple[str, int], ...] = ()
    nodes: tuple[str, ...] = ()
    guards: tuple[str, ...] = ()
    raised: str = ""


class Steps(Record, frozen=True):
    """Stage `steps`: one attempt. A frame that breaks is traced again up to the break, by another attempt. `end` says
    how this one ended; `left_out` counts the steps after the last one that was kept."""

    function: str
    end: str
    steps: tuple[Step, ...] = ()
    frames: tuple[StepFrame, ...] = ()
    instructions: tuple[StepInstruction, ...] = ()
    values: tuple[str, ...] = ()
    left_out: int = 0
