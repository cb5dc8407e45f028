"""What the tracer does, instruction by instruction, for stage `steps`: kept only where a run asks for it.

The log is told of each instruction before it runs. What the one before it did is then seen by comparison: on the stack,
in the variables, in the graph and among the guards.
"""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import CodeType
from typing import TYPE_CHECKING, Any, Protocol

import torch

from ...artifacts.step_records import DELETED, OUTERMOST, Step, StepFrame, StepInstruction, Steps
from ...dependencies import msgspec
from ..breaks.unsupported import Unsupported
from ..bytecode.assembly import OPCODES, Operand
from ..sources.display_names import display_name
from ..variables.core.base import ObservedException, Translator, Value
from .value_texts import UNREAD, value_text

if TYPE_CHECKING:
    from ..bytecode.instructions import Instruction

MOST = 100_000
"""Steps of one attempt that are kept."""
LONGEST = 60
"""Characters of a constant."""


class Frame(Translator, Protocol):
    """A frame that is interpreted; `unread` are arguments that nothing has read yet."""

    @property
    def unread(self) -> Mapping[str, Any]: ...


@dataclass
class _Seen:
    """A frame that runs, what it held when its last step began, that step's number, and whether it is known what the
    step did."""

    interpreter: Frame
    number: int
    stack: list[int]
    variables: dict[str, int]
    step: int = OUTERMOST
    settled: bool = True


class StepLog:
    """The steps of one attempt. It holds the frames that run, and so the program's objects, until `finish`."""

    def __init__(self) -> None:
        self._steps: list[Step] = []
        self._left_out = 0
        self._frames: list[StepFrame] = []
        self._running: list[_Seen] = []  # innermost last
        self._current: int | None = None  # the step whose instruction runs
        self._instructions: dict[StepInstruction, int] = {}
        self._values: dict[str, int] = {}
        self._nodes: dict[torch.fx.Graph, set[torch.fx.Node]] = {}
        self._guards = 0

    def before(self, interpreter: Frame, instruction: Instruction) -> None:
        """An instruction of `interpreter` is about to run."""
        if self._left_out:
            self._left_out += 1
            return
        self._collect(interpreter)
        seen = self._enter(interpreter)
        self._settle(seen)
        if len(self._steps) >= MOST:  # what follows is no step's
            self._left_out = 1
            self._let_go()
            return
        self._current, seen.step, seen.settled = len(self._steps), len(self._steps), False
        self._steps.append(Step(seen.number, self._number_of(interpreter, instruction)))

    def ended(self, interpreter: Frame) -> None:
        """`interpreter` has returned, or yielded: what called it goes on."""
        if self._running and self._running[-1].interpreter is interpreter:
            self._collect(interpreter)
            self._settle(self._running.pop())
            self._current = self._running[-1].step if self._running else None

    def stopped(self, error: Unsupported | ObservedException) -> None:
        """The instruction raised, in the program or in the tracer. Of what passes several frames, the first is told."""
        if self._current is not None and not self._steps[self._current].raised:
            raised = f"raises {error.value.describe()}" if isinstance(error, ObservedException) else f"stops: {error}"
            self._change(self._current, raised=raised)

    def finish(self, root: Frame) -> None:
        """No more steps come: let go of the frames."""
        self._collect(root)
        if self._running and self._running[0].interpreter is root:
            self._settle(self._running[0])
        self._let_go()

    def record(self, function: str, end: str) -> Steps:
        """The record of the attempt at `function`, which has ended in the way that `end` says."""
        return Steps(function, end, tuple(self._steps), tuple(self._frames), tuple(self._instructions),
                     tuple(self._values), self._left_out)

    def _let_go(self) -> None:
        self._running.clear()
        self._nodes.clear()
        self._current = None

    # ---- frames ----------------------------------------------------------------------------------------------------
    def _enter(self, interpreter: Frame) -> _Seen:
        """The frame of `interpreter`, which is the innermost one now: those further in have ended, or yielded."""
        running = self._running
        around = next((i for i in reversed(range(len(running))) if running[i].interpreter is interpreter), None)
        if around is not None:
            del running[around + 1 :]
            return running[around]
        while running and running[-1].interpreter is not interpreter.parent:
            running.pop()
        stack, variables = self._held(interpreter)
        entered_by = running[-1].step if running else OUTERMOST
        self._frames.append(StepFrame(interpreter.code.co_qualname, entered_by, tuple(stack), tuple(variables.items())))
        running.append(_Seen(interpreter, len(self._frames) - 1, stack, variables))
        return running[-1]

    def _held(self, interpreter: Frame) -> tuple[list[int], dict[str, int]]:
        """What a frame's stack and variables hold; arguments that nothing has read yet have no value."""
        cells = {name: cell.content for name, cell in interpreter.cells.items() if cell.content is not None}
        variables = {name: self._value(value) for name, value in {**interpreter.locals, **cells}.items()}
        variables |= dict.fromkeys(interpreter.unread, self._text(UNREAD))
        return list(map(self._value, interpreter.stack)), variables

    # ---- steps -----------------------------------------------------------------------------------------------------
    def _settle(self, seen: _Seen) -> None:
        """A frame's last step is over: what it changed is seen by comparison with what the frame held before."""
        if seen.settled:
            return
        stack, variables = self._held(seen.interpreter)
        same = _same(seen.stack, stack)
        changed = [(name, value) for name, value in variables.items() if seen.variables.get(name) != value]
        changed += [(name, DELETED) for name in seen.variables if name not in variables]
        self._change(seen.step, popped=len(seen.stack) - same, pushed=tuple(stack[same:]), variables=tuple(changed))
        seen.stack, seen.variables, seen.settled = stack, variables, True

    def _collect(self, interpreter: Frame) -> None:
        """The nodes and guards that came are those of the instruction that runs."""
        nodes, guards = self._new_nodes(interpreter.graph.graph), self._new_guards(interpreter)
        if self._current is not None and (nodes or guards):
            step = self._steps[self._current]
            self._change(self._current, nodes=step.nodes + nodes, guards=step.guards + guards)

    def _change(self, number: int, **fields: Any) -> None:
        self._steps[number] = msgspec.structs.replace(self._steps[number], **fields)

    def _new_nodes(self, graph: torch.fx.Graph) -> tuple[str, ...]:
        known = self._nodes.setdefault(graph, set())
        if len(graph.nodes) == len(known):
            return ()
        made = [node for node in graph.nodes if node not in known]
        known.update(made)
        return tuple(node.name for node in made)

    def _new_guards(self, interpreter: Frame) -> tuple[str, ...]:
        added = interpreter.guards.since(self._guards)
        self._guards += len(added)
        return tuple(f"{spec.kind} of {display_name(spec.source)}" for spec in added)

    # ---- texts -----------------------------------------------------------------------------------------------------
    def _number_of(self, interpreter: Frame, instruction: Instruction) -> int:
        location = interpreter.info.location(instruction)
        made = StepInstruction(instruction.offset, instruction.opname, _argument(instruction), location)
        return self._instructions.setdefault(made, len(self._instructions))

    def _value(self, value: Value) -> int:
        return self._text(value_text(value))

    def _text(self, text: str) -> int:
        return self._values.setdefault(text, len(self._values))


def _argument(instruction: Instruction) -> str:
    """What an instruction is applied to, in the words of `dis`."""
    operand, value = OPCODES[instruction.opname].operand, instruction.value
    if operand is Operand.JUMP:
        return f"to {value}"
    if operand is Operand.CONSTANT:
        return f"the code of {value.co_qualname}" if isinstance(value, CodeType) else _short(repr(value))
    return str(value) if value or operand is not Operand.NUMBER else ""


def _short(text: str) -> str:
    return text if len(text) <= LONGEST else text[: LONGEST - 3] + "..."


def _same(first: Sequence[int], second: Sequence[int]) -> int:
    """How many items, from the bottom, are the same."""
    pairs = enumerate(zip(first, second))
    return next((i for i, (a, b) in pairs if a != b), min(len(first), len(second)))
