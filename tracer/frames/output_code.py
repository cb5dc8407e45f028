"""How a captured frame ends: it returns, or it breaks, runs one instruction in eager, and continues in a resume
function.

Both write a whole new code object: call the graph, push the live values, make the side effects, then the ending.
"""
from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from types import CodeType
from typing import Any

from ...operators.effects import may_draw
from ..breaks.raised_errors import FullGraphError
from ..breaks.reasons import Reason
from ..breaks.unsupported import Unsupported
from ..bytecode.assembly import Cell, Label, TryBegin, TryEnd, assemble
from ..bytecode.instructions import Handled, Instruction, code_info
from ..bytecode.liveness import ENDS, READS, live_at
from ..bytecode.resume_function import (
    FIRST_ARGUMENT,
    STACK_ARGUMENT,
    argument_count,
    first_argument,
    free_names,
    instruction_at,
    origin_of,
    resume_arguments,
    resume_code,
)
from ..bytecode.unbound_slots import Slot, push_slot
from ..effects.reconstruct import OUTPUTS, VERSION, Codegen, Plan
from ..effects.stack_slots import push_object, slot_of
from ..fx.backend_call import CapturedGraph
from ..interpreter import suspended_generators  # noqa: F401  (it says how generators in flight are rebuilt)
from ..interpreter.destructors import may_die_visibly
from ..interpreter.interpreter import Interpreter
from ..interpreter.opcodes.control import JUMP_IF_FALSE, after_loop
from ..interpreter.opcodes.py313 import JUMPS_ON_BOOL
from ..interpreter.owned_objects import holds_observably
from ..runtime.eval_frame import unobserved
from ..runtime.global_modes import protected
from ..runtime.rng_ops import taken_back
from ..sources.roots import LocalSource
from ..variables.containers.dict_iterators import DictIterator
from ..variables.containers.sequence_iterators import SequenceIterator
from ..variables.core.base import NULL, Value
from ..variables.core.finalizers import object_dies_visibly
from ..variables.python.symbolic_numbers import NumberValue
from ..variables.torch.tensor import TensorValue
from .continuation import Continuation, drive, push_boxed, rest_of_frame
from .eager_fallback import EagerRerun, call_original, may_rerun
from .returning import finish_effects
from .stack_effects import loads_method, pushed, stack_effect

_BINDS = {"STORE_FAST": True, "DELETE_FAST": False, "LOAD_FAST_AND_CLEAR": False}
"""Instructions after which their variable is bound, or is not."""

Body = Callable[[Codegen], None]
Compile = Callable[[CapturedGraph], Callable[..., Any]]


def write_code(root: Interpreter, body: Body, compile_graph: Compile) -> CodeType:
    """The frame's new code: the graph's call, then what `body` emits.

    `body` runs twice, as `reconstruct.py` explains. Raises Unsupported when something cannot be rebuilt; the graph is
    then not compiled.
    """
    plan = Plan()
    planned = Codegen(root.code, root.effects, plan, planning=True)
    for value in root.effects.made_first:
        planned.new_object(value)
    body(planned)
    for generator in root.trace.generators:
        if generator.has_cleanup() and not plan.uses[generator]:
            raise Unsupported(Reason.UNFINISHED_GENERATOR, generator, earlier=root.trace.step)
    codegen = Codegen(root.code, root.effects, plan, planning=False)
    _prologue(codegen)
    _call_graph(root, codegen, compile_graph)
    codegen.create_new_objects()
    body(codegen)
    return assemble(codegen.instructions, root.code)


def _call_graph(root: Interpreter, codegen: Codegen, compile_graph: Compile) -> None:
    """Make the frame's calls of Python's random generators, then call the graph, where there is one."""
    graph, draws, options = root.graph, root.trace.random_calls, root.trace.options
    has_graph = bool(graph.operations or codegen.plan.nodes)  # without operations on tensors, results may be numbers
    if not has_graph and not draws.made:
        return
    compiled, again = None, None
    if has_graph:
        compiled = compile_graph(graph.finish(list(codegen.plan.nodes), root.trace.modes))
        if graph.sets_modes:
            compiled = protected(compiled, root.trace.modes)
    if options.run_again and may_rerun(graph, root.trace.context):
        if draws.made:
            draws.remember(codegen)
        again = EagerRerun(codegen, root.code, graph.runtime_assert is not None)
        if compiled is not None and any(map(may_draw, graph.graph.nodes)):
            compiled = taken_back(compiled)  # the rerun gets the same random numbers
    draws.emit(codegen)
    if compiled is not None:
        codegen.push_function(unobserved(compiled))
        sources = graph.used_inputs()
        codegen.plan.expect(sources)
        for source in sources:
            codegen.load_source(source)
        codegen.call(len(sources))
        codegen.emit("STORE_FAST", OUTPUTS)
    if again is not None:
        again.end(draws.take_back if draws.made else None)


def code_that_raises(root: Interpreter, error: FullGraphError) -> CodeType:
    """Code that runs the frame in eager, because it raises. Where it does not, it raises `error` instead of
    returning."""
    codegen = Codegen(root.code, root.effects, Plan(), planning=False)
    _prologue(codegen)
    with rest_of_frame(codegen):
        call_original(codegen, root.code)
        codegen.emit("POP_TOP")
        codegen.const(error)
        codegen.emit("RAISE_VARARGS", 1)
    return assemble(codegen.instructions, root.code)


def _prologue(codegen: Codegen) -> None:
    code = codegen.code
    for name in code.co_cellvars:
        codegen.emit("MAKE_CELL", Cell(name))
    if code.co_freevars:
        codegen.emit("COPY_FREE_VARS", len(code.co_freevars))
    codegen.emit("RESUME", 0)


class BreakBody:
    """The end of a frame that breaks at its current instruction: run that in eager, call a resume function.

    There is one resume function for each place where the frame may resume: after the instruction, at its jump target,
    and at the handler when the instruction is in a try block and raises. The frame itself calls the first of them and
    whatever that continues with; a resume function that breaks returns the next one to it (see `continuation.py`).
    """

    def __init__(self, root: Interpreter, instruction: Instruction, raises: bool = False) -> None:
        self.root = root
        self.instruction = instruction
        self.raises = raises
        self.handled: Handled | None = root.info.handler_of(instruction.index)
        self.targets = self._targets()
        self.variables = self._variables()
        self.resumed: list[CodeType] = []
        self.driver = Label()

    def _targets(self) -> list[int]:
        targets = []
        if self.instruction.opname not in ENDS:
            targets.append(self.instruction.index + 1)
        if self.instruction.target >= 0:
            targets.append(self._jump_target())
        return targets

    def _jump_target(self) -> int:
        """Where execution continues when the instruction jumps."""
        target = self.instruction.target
        return after_loop(self.root.info, target) if self.instruction.opname == "FOR_ITER" else target

    def _variables(self) -> tuple[str, ...]:
        root = self.root
        targets = [*self.targets, self.handled.target] if self.handled is not None else self.targets
        origin = origin_of(root.code)
        if origin is None:
            live = frozenset().union(*(live_at(root.info, index) for index in targets))
        else:  # the original's answer is known, and the same in all its resume functions
            info = code_info(origin.code)
            live = frozenset().union(*(live_at(info, index + origin.shift) for index in targets))
        first = first_argument(root.code if origin is None else origin.code)
        taken = (FIRST_ARGUMENT,) if first == FIRST_ARGUMENT and origin is None and self._first_cell() else ()
        names = root.code.co_varnames
        if origin is not None:  # as in the original: a frame that ends releases its variables in this order
            places = {name: place for place, name in enumerate(origin.code.co_varnames)}
            names = tuple(sorted(names, key=lambda name: places.get(name, -1)))
        return taken + tuple(
            name for name in names
            if (name in live or name == first or self._is_mortal(name)) and self._is_bound_after(name)
        )  # fmt: skip

    def _first_cell(self) -> str:
        """The first argument if it is a cell that has a value; else ""."""
        name = self.root.code.co_varnames[0]
        return name if name in self.root.bound_cells() else ""

    def _dies_visibly(self, name: str) -> bool:
        """Whether the death of the object in a dead variable may be observable."""
        if name in self.root.cells or name.startswith(STACK_ARGUMENT):
            return False
        value = self.root.locals.get(name)
        if value is not None:
            return may_die_visibly(self.root, value)
        return object_dies_visibly(self.root.unread.get(name))

    def _is_mortal(self, name: str) -> bool:
        """Whether the death of the object in a variable is observable, or brings such a one."""
        if self._dies_visibly(name):
            return True
        value = None if name in self.root.cells else self.root.locals.get(name)
        return value is not None and holds_observably(self.root, value)

    def outlives_its_frame(self) -> bool:
        """Whether a variable's object dies observably and a resume function would handle exceptions: in eager the
        traceback has the frame with this variable, but not the resume function's that raises one again."""
        return self.handled is not None and any(map(self._dies_visibly, self.variables))

    def _is_bound_after(self, name: str) -> bool:
        """Whether a local variable has a value after the instruction."""
        opname = self.instruction.opname
        if self.instruction.value == name and opname in _BINDS:
            return _BINDS[opname]
        return self.root.is_bound(name)

    def kept_tensors(self) -> tuple[str, ...]:
        """The variables that hold a tensor of the graph where the frame resumes."""
        values = self.root.locals
        return tuple(
            n for n in self.variables if isinstance(values.get(n), TensorValue) and values[n].source is None
        )

    def __call__(self, codegen: Codegen) -> None:
        """Emit the ending (see `write_code`)."""
        root = self.root
        self.resumed.clear()
        codegen.location = instruction_at(root.code, self.instruction.index).location or codegen.location
        needed = dict.fromkeys((*self.variables, *self._read(), *self._left_behind()))
        changed = [n for n in needed if n in root.locals and root.locals[n].source != LocalSource(n)]
        kept = {f".ours_kept_{i}": value for i, value in enumerate(root.stack) if value is not NULL}
        kept |= {name: root.locals[name] for name in changed}
        late = self._late(list(kept.values()))
        for value in kept.values():
            push_object(codegen, late.get(value, value))
        if codegen.planning:
            codegen.plan.live_cells.update(root.cells)
        finish_effects(root, codegen)
        codegen.store_all(kept)
        for name, value in kept.items():
            if value in late:
                self._make_late(codegen, name, value)
        for name in self._taken():
            codegen.emit("DELETE_FAST", name)
        self._run_instruction(codegen)

    def _late(self, values: list[Value]) -> dict[Value, Value]:
        """The iterators that must be made after the side effects have refilled their containers: the container of
        each."""
        found = [value for value in values if isinstance(value, (DictIterator, SequenceIterator))]
        containers = {value: value.parts()[1][0] for value in found if found.count(value) == 1}
        return {value: container for value, container in containers.items() if self.root.effects.refills(container)}

    def _make_late(self, codegen: Codegen, name: str, iterator: Value) -> None:
        """Store the iterator in the variable of its container."""
        assert isinstance(iterator, (DictIterator, SequenceIterator))
        function, (_, *parts) = iterator.parts()
        codegen.push_function(function)
        codegen.emit("LOAD_FAST", name)
        for part in parts:
            codegen(part)
        codegen.call(1 + len(parts))
        codegen.emit("STORE_FAST", name)

    def _read(self) -> tuple[str, ...]:
        """The variable that the instruction itself reads, perhaps for the last time."""
        return (self.instruction.value,) if self.instruction.opname in READS else ()

    def _left_behind(self) -> tuple[str, ...]:
        """The variables that a traceback shows when the instruction raises out of the frame, where it surely does:
        those that are free to make."""
        if not self.raises or self.handled is not None:
            return ()
        return tuple(
            name for name, value in self.root.locals.items()
            if value.source is not None or isinstance(value, (TensorValue, NumberValue)) or value.is_constant()
        )

    def _run_instruction(self, codegen: Codegen) -> None:
        """Push the stack, run the instruction, and continue in the resume functions."""
        handled, handler = self.handled, Label()
        depth = handled.depth if handled is not None else 0
        self._push_stack(codegen, 0, depth)
        if handled is not None:
            begin = TryBegin(handler, handled.lasti, depth)
            codegen.label(begin)
        self._push_stack(codegen, depth, len(self.root.stack))
        needed = {f".ours_kept_{i}" for i, value in enumerate(self.root.stack) if slot_of(value) is Slot.HANDLING}
        codegen.let_go([name for name in codegen.stored if name not in needed])
        codegen.stored = dict.fromkeys(name for name in codegen.stored if name in needed)
        jumped = Label()
        self._emit_instruction(codegen, jumped)
        if handled is not None:
            codegen.label(TryEnd(begin))
        if origin_of(self.root.code) is None:
            with rest_of_frame(codegen):
                self._go_on(codegen, jumped, handler)
                drive(codegen, self.driver, JUMP_IF_FALSE)
        else:
            self._go_on(codegen, jumped, handler)

    def _go_on(self, codegen: Codegen, jumped: Label, handler: Label) -> None:
        """Continue in the resume functions: after the instruction, at `jumped` and at `handler`."""
        handled = self.handled
        if self.instruction.opname not in ENDS:
            self._continue(codegen, self.instruction.index + 1, self._after(jump=False))
        if self.instruction.target >= 0:
            codegen.label(jumped)
            if self.instruction.opname == "FOR_ITER":
                for skipped in self.root.info.instructions[self.instruction.target : self._jump_target()]:
                    codegen.emit(skipped.opname)  # the interpreter jumps over the end of a loop, so it must be there
            self._continue(codegen, self._jump_target(), self._after(jump=True))
        if handled is not None:
            codegen.label(handler)
            below = [slot_of(value) for value in self.root.stack[: handled.depth]]
            self._continue(codegen, handled.target, [*below, *[Slot.OBJECT] * (1 + handled.lasti)], raised=True)

    def _taken(self) -> list[str]:
        """The parameters that are unbound by now, or whose value is not needed any more."""
        root = self.root
        read = (name for name in self._read() if root.is_bound(name))
        kept = {*self.variables, *root.cells, *root.unread, *read, *self._left_behind()}
        parameters = [n for n in root.code.co_varnames[: argument_count(root.code)] if n not in kept]
        return [n for n in parameters if n not in root.locals or root.locals[n].source != LocalSource(n)]

    def _push_stack(self, codegen: Codegen, start: int, end: int) -> None:
        for i in range(start, end):
            for push in push_slot(slot_of(self.root.stack[i]), f".ours_kept_{i}"):
                codegen.emit(*push)

    def _emit_instruction(self, codegen: Codegen, jumped: Label) -> None:
        instruction = self.instruction
        if instruction.opname == "CALL" and VERSION < (3, 13):
            if self.root.kw_names:
                codegen.emit("KW_NAMES", self.root.kw_names)
            if VERSION < (3, 12):
                codegen.emit("PRECALL", instruction.arg)
        if VERSION >= (3, 13) and instruction.opname in JUMPS_ON_BOOL:
            codegen.emit("TO_BOOL")
        original = instruction_at(self.root.code, instruction.index)
        if loads_method(instruction):  # whether the object, or NULL, goes with it would show only at run time
            if instruction.opname == "LOAD_SUPER_ATTR":
                codegen.emit(original.name, (original.arg[0] & ~1, original.arg[1]))
            else:
                codegen.load_attr(instruction.value)
            codegen.push_null_of_call()
            return
        name = original.name.replace("BACKWARD_NO_INTERRUPT", "FORWARD").replace("BACKWARD", "FORWARD")
        codegen.emit(name, jumped if instruction.target >= 0 else original.arg)

    def _after(self, jump: bool) -> list[Slot]:
        """The stack after the instruction."""
        instruction = self.instruction
        before = [slot_of(value) for value in self.root.stack]
        if jump and instruction.opname == "FOR_ITER":
            return before[:-1]
        size = len(before) + stack_effect(instruction, jump)
        pair = [Slot.OBJECT, Slot.NULL] if VERSION >= (3, 13) else [Slot.NULL, Slot.OBJECT]
        if instruction.opname == "LOAD_GLOBAL" and instruction.arg & 1:
            return before + pair
        if loads_method(instruction):
            return before[: -3 if instruction.opname == "LOAD_SUPER_ATTR" else -1] + pair
        if instruction.opname == "PUSH_NULL":
            return [*before, Slot.NULL]
        if instruction.opname == "LOAD_FAST_AND_CLEAR" and not self.root.is_bound(instruction.value):
            return [*before, Slot.NULL]
        kept = before[: max(0, size - pushed(instruction))]
        return kept + [Slot.OBJECT] * (size - len(kept))

    def _continue(self, codegen: Codegen, index: int, stack: list[Slot], raised: bool = False) -> None:
        """Store the stack in variables and return, or drive, the Continuation that resumes at `index`. `raised`: an
        exception is at the top of the stack."""
        for i, slot in reversed(list(enumerate(stack))):
            if slot is Slot.HANDLING:  # the resume function handles it: for a group, its part for `except*`
                codegen.push_function(sys.exception)
                codegen.call(0)
            codegen.emit("STORE_FAST", ".ours_null" if slot is Slot.NULL else f"{STACK_ARGUMENT}{i}")
            if slot is Slot.HANDLING:
                codegen.emit("POP_EXCEPT")
        if FIRST_ARGUMENT in self.variables and origin_of(self.root.code) is None:
            codegen.load_variable(self._first_cell())
            codegen.emit("STORE_FAST", FIRST_ARGUMENT)
        arguments = resume_arguments(self.root.code, tuple(stack), self.variables)
        boxed = self._boxed(arguments, stack, raised)
        for name in boxed:
            for part in (("LOAD_FAST", name), ("BUILD_LIST", 1), ("STORE_FAST", name)):
                codegen.emit(*part)
        code = resume_code(self.root.code, index, tuple(stack), self.variables, boxed)
        self.resumed.append(code)
        # The resume function has them now: this frame, which may be in tracebacks, releases them.
        moved = [*codegen.stored, *(name for name in self.variables if name not in self.root.cells)]
        function = self._function(codegen, code, [] if raised else self._results(stack, index, boxed))
        returns = origin_of(self.root.code) is not None
        if returns:
            codegen.push_function(Continuation)
        else:
            codegen.push_null()
        function()
        for name in arguments:
            codegen.emit("LOAD_FAST", name)
        if returns:
            codegen.call(1 + len(arguments))
            codegen.let_go(moved)
            codegen.emit("RETURN_VALUE")  # to the frame that drives the loop
            return
        codegen.let_go(moved)
        codegen.call(len(arguments))
        codegen.emit("JUMP_FORWARD", self.driver)

    def _function(self, codegen: Codegen, code: CodeType, results: list[str]) -> Callable[[], None]:
        """What pushes the resume function. Those of the `results` that hold something are boxed first."""
        if not results:
            return partial(self._make_function, codegen, code)
        self._make_function(codegen, code)
        return push_boxed(codegen, results)

    def _results(self, stack: list[Slot], index: int, boxed: tuple[str, ...]) -> list[str]:
        """The arguments that are what the instruction pushes where the frame resumes at `index`."""
        exhausted = self.instruction.opname == "FOR_ITER" and index == self._jump_target()
        count = 0 if exhausted else pushed(self.instruction)
        names = [f"{STACK_ARGUMENT}{i}" for i, slot in enumerate(stack) if slot is Slot.OBJECT]
        return [name for name in names[len(names) - count :] if name not in boxed]

    def _boxed(self, arguments: list[str], stack: list[Slot], raised: bool) -> tuple[str, ...]:
        """The arguments of the resume function whose death may be observable: generators, objects with a finalizer, and
        exceptions, whose tracebacks hold frames and everything in them."""
        root = self.root
        found = {
            f"{STACK_ARGUMENT}{i}" for i, value in enumerate(root.stack)
            if may_die_visibly(root, value) or holds_observably(root, value)
        }  # fmt: skip
        found |= {name for name in self.variables if self._is_mortal(name) or self._is_exception(name)}
        found |= {f"{STACK_ARGUMENT}{i}" for i, slot in enumerate(stack) if slot is Slot.HANDLING}
        if raised:
            found.add(f"{STACK_ARGUMENT}{len(stack) - 1}")
        return tuple(name for name in arguments if name in found)

    def _is_exception(self, name: str) -> bool:
        """Whether a variable holds an exception that Python raised."""
        value = self.root.locals.get(name)
        return issubclass(type(getattr(value, "real", self.root.unread.get(name))), BaseException)

    def _make_function(self, codegen: Codegen, code: CodeType) -> None:
        cells = free_names(self.root.code)
        if VERSION >= (3, 13):
            codegen.const(code)
            codegen.emit("MAKE_FUNCTION")
            if cells:
                self._push_cells(codegen, cells)
                codegen.emit("SWAP", 2)
                codegen.emit("SET_FUNCTION_ATTRIBUTE", 8)
            return
        if cells:
            self._push_cells(codegen, cells)
        codegen.const(code)
        codegen.emit("MAKE_FUNCTION", 8 if cells else 0)

    def _push_cells(self, codegen: Codegen, cells: list[str]) -> None:
        for name in cells:
            codegen.emit_cell(name)
        codegen.emit("BUILD_TUPLE", len(cells))
