"""The interpreter of a frame that is compiled: it counts its steps, and says where and why tracing stops."""
from __future__ import annotations

from types import CodeType
from typing import Any

from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode

from ...artifacts.interruptions import pause
from ..breaks.explain import explain
from ..breaks.reasons import Reason
from ..breaks.unsupported import Unsupported, stopped_by
from ..bytecode.resume_function import name_stack_arguments
from ..interpreter import opcodes as opcodes  # fills the table of handlers
from ..interpreter.destructors import death_of
from ..interpreter.interpreter import Interpreter
from ..interpreter.owned_objects import lost, observable_boxes, referred, unboxed
from ..sources.display_names import expression_of, line_of
from ..variables.core.base import ObservedException, Value
from .break_records import GraphBreak


class RootInterpreter(Interpreter):
    """The outermost frame: counts its steps, and stops at `break_step`."""

    break_step = -1
    raise_step = -1  # where to break for eager to raise the exception that propagates now, and the one it handles

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.raised: dict[int, dict[str, Any]] = {}  # where the exception that propagates now was raised, by its id
        self.statements: list[int] = []  # the steps at which the stack was empty: statements begin there

    def statement_before(self, step: int, count: int) -> int:
        """The step at which the `count`-th statement before `step` began, outside of open `with` blocks."""
        if self.open_contexts:
            step = self.open_contexts[0].step
        before = [start for start in self.statements if start < step]
        return before[max(0, len(before) - count)] if before else step

    def _loops_since(self, step: int | None) -> bool:
        """Whether a loop that began after `step` is still running. A bool read from a tensor at `step` has at most two
        values, so a break there costs at most two graphs; a break in the loop would cost one per iteration."""
        if step is None or not any(start > step for start in self.statements):
            return False
        return any(type(value).next is not Value.next for value in self.stack)

    def run_until_stop(self) -> GraphBreak | None:
        """Run until the frame returns (None; see `returned`), reaches `break_step` (None), or tracing stops."""
        instructions, steps = self.info.instructions, self.trace.steps
        boxes = observable_boxes(self.code, self.unread)
        while self.returned is None:
            if self.trace.step == self.break_step:
                return None
            pause()
            instruction = self.current = instructions[self.index]
            if steps is not None:
                steps.before(self, instruction)
            self.index += 1
            on_stack = self.stack.copy()
            before = referred(self) if self.trace.owned else None
            if not on_stack and instruction.index > self.info.prologue:
                self.trace.statement = self.trace.step
                self.statements.append(self.trace.step)
            try:
                instruction.handler(self, instruction)
            except ObservedException as error:
                if instruction.opname == "RERAISE":  # it may have no line
                    error.context = self.raised.get(id(error.value), error.context)
                else:
                    self.note_place(error)
                    self.raised = {id(error.value): error.context}
                    if self.handled is None or self.raise_step < 0:
                        self.raise_step = self.trace.safe_step()
                if not self.unwind(error.value):
                    self.stack = on_stack
                    return self._stop(Unsupported(Reason.RAISES, error.value, **error.context))
            except (Unsupported, GuardOnDataDependentSymNode) as error:
                self.stack = on_stack
                return self._stop(stopped_by(error))
            if boxes and instruction.opname == "JUMP_FORWARD":  # the end of what restores the stack
                self.trace.owned, boxes = unboxed(self, boxes), []
            died = lost(self, before) if before and self.returned is None else None
            if died is not None:
                self.stack = on_stack
                return self._stop(death_of(died))
            self.trace.step += 1
        return None

    def _stop(self, error: Unsupported) -> GraphBreak:
        self.note_place(error)
        earlier = error.context.get("earlier")
        if earlier is None and self._loops_since(error.context.get("read_at")):
            earlier = error.context["read_at"]
        if error.reason is Reason.RAISES and 0 <= self.raise_step < self.trace.step:
            earlier = self.raise_step  # so that eager raises it, with its traceback and context
        if self.open_contexts:
            earlier = min(self.open_contexts[0].step, self.trace.step if earlier is None else earlier)
        described = tuple(value.describe() for value in self.stack) if self.trace.context.recording else ()
        place = error.context["location"], error.context["stack"]
        try:
            reason, message, hint = explained(error, self.code)
        except Unsupported as other:  # the subject is what an earlier break has left unknown
            reason, message, hint = other.reason, "", ""
        introspected_by = error.context.get("introspected_by", "")
        return GraphBreak(self.trace.step, reason, message, hint, *place, described, earlier, introspected_by)


def explained(error: Unsupported, code: CodeType) -> tuple[Reason, str, str]:
    """The reason, the message and the hint of a break in a frame of `code`."""
    place = error.context["location"]
    expression = expression_of(place)
    if "inside" in error.context and error.text() == f"the tensor `{expression}`":  # which has no name there
        error.context["asked_inside"] = error.context["inside"]
    return explain(error, expression, line_of(place), name_stack_arguments(code))
