"""The symbolic interpreter: runs a frame's bytecode on Values instead of objects.

One `Interpreter` runs one frame; an inlined call runs in a nested one, and all of them share one `Trace`: the graph,
the guards, the side effects. `convert.py` drives the outermost one.
"""
from __future__ import annotations

import builtins
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import CodeType
from typing import TYPE_CHECKING, Any, NoReturn

from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode

from ...artifacts.context import CompileContext
from ...artifacts.interruptions import pause
from ...artifacts.records import Location
from ..breaks.reasons import Reason
from ..breaks.unsupported import Unsupported, stopped_by
from ..bytecode.instructions import CodeInfo, Instruction, code_info
from ..bytecode.resume_function import STACK_ARGUMENT, origin_of
from ..effects.random_inputs import RandomCalls
from ..effects.side_effects import SideEffects
from ..fx.backend_call import CompileOptions
from ..graph.graph import TraceGraph
from ..runtime.global_modes import Modes, inference_modes_entered, leave_blocks
from ..runtime.skips import is_installed
from ..sources.display_names import expression_of
from ..sources.roots import GlobalSource, LocalSource, ModuleGlobalSource
from ..sources.source import ItemSource, Source
from ..variables import build
from ..variables.containers.lists import ListValue
from ..variables.core.base import ObservedException, Value
from ..variables.core.finalizers import refuse_visible_death
from ..variables.core.late import late
from ..variables.core.opaque import build_or_opaque
from ..variables.python.cells import DELETED, CellValue
from ..variables.python.exceptions import ExceptionValue
from ..variables.torch.torch_function_overrides import OverrideState
from .coroutines import is_generator, refuse_coroutine
from .frame_introspection import reader_above
from .limits import Limits
from .step_log import StepLog

if TYPE_CHECKING:
    from ..guards import GuardBuilder


@dataclass
class OpenContext:
    """An open `with` block: its manager, its `__exit__`, which is in the stack at `depth`, and the step of the
    outermost frame at which it was entered."""

    manager: Value
    exit: Value
    depth: int
    step: int


@dataclass
class Trace:
    """What all interpreters of one attempt at a frame share."""

    graph: TraceGraph
    guards: GuardBuilder
    effects: SideEffects
    options: CompileOptions
    context: CompileContext
    limits: Limits
    f_globals: dict[str, Any]
    module_path: str = ""
    modules: tuple[tuple[int, str, type], ...] = ()  # the nn.Modules being called: a number, the expression, the class
    resumed: bool = False  # whether the frame resumes after a break
    step: int = 0
    statement: int = 0  # the step at which the outermost frame's statement began
    work: int = 0  # the work so far, as `spend` counts it
    modes: Modes = field(default_factory=Modes.now)  # at the start of the frame
    inference_modes: list[Any] = field(default_factory=list)  # holders of the active inference modes, innermost last
    open_variables: list[Value] = field(default_factory=list)  # context variables that are set and not reset
    caught_warnings: list[Value] = field(default_factory=list)  # open blocks of `catch_warnings`
    overrides: OverrideState = field(default_factory=OverrideState)  # `__torch_function__` overrides
    active: Interpreter | None = None  # the innermost frame that runs
    root: Interpreter | None = None  # the outermost
    values_by_source: dict[Source, Value] = field(default_factory=dict)
    values_by_id: dict[int, Value] = field(default_factory=dict)
    global_values: dict[tuple[int, str], Value] = field(default_factory=dict)
    keep_alive: list[Any] = field(default_factory=list)
    compared_by_identity: dict[type, dict[Value, None]] = field(default_factory=dict)  # by type
    identities: dict[Value, Value] = field(default_factory=dict)  # id() of objects that the trace made
    referents: set[Value] = field(default_factory=set)  # of weak references that the trace made
    inlined: dict[int, CodeType] = field(default_factory=dict)  # by identity
    generators: list[Any] = field(default_factory=list)  # all GeneratorValues that were made
    owned: list[Value] = field(default_factory=list)  # see `owned_objects.py`
    reentrant: list[CodeType] = field(default_factory=list)  # which called a reentrant checkpoint
    random_calls: RandomCalls = field(default_factory=RandomCalls)
    steps: StepLog | None = None  # where a run asks for stage `steps`
    layouts_asked: int = 0  # how often the layout of a tensor was read
    layouts_assumed: int = 0  # how often the trace depended on one

    def spend(self, amount: int = 1) -> None:
        """Count a turn of a loop, in the user's code or in the tracer's over its items, and an inlined call; an
        operation on a symbol counts as ten. Beyond a limit, tracing is slower than running, may exhaust memory, and
        need not end."""
        self.work += amount
        if self.work > self.limits.work:
            self.limits.work_reached()
            turns = f"{self.limits.work:,} loop iterations, calls and list items"
            raise Unsupported(Reason.TRACE_LIMIT, detail=turns)

    def safe_step(self) -> int:
        """Where the graph can break for eager to run the current operation: before the open `with` blocks."""
        assert self.root is not None
        return self.root.open_contexts[0].step if self.root.open_contexts else self.step

    def location(self) -> Location:
        """The user's line that is being interpreted."""
        assert self.active is not None
        return self.active.location()

    def end(self) -> None:
        """Release the frames. They hold the user's objects, which must not wait for Python's garbage collector: a
        finalizer would run late, and memory would stay in use."""
        for frame in (self.root, *(generator.frame for generator in self.generators)):
            if frame is not None:
                frame.forget()
        self.active = self.root = None
        self.guards.locate = self.graph.shapes.shape_env.locate = None
        self.effects.forget()
        held_values = self.generators, self.values_by_source, self.values_by_id, self.global_values, self.referents
        for held in (*held_values, self.keep_alive, self.identities, self.owned):
            held.clear()

    def leave_modes(self) -> None:
        """Restore torch's modes to those at the start of the frame."""
        leave_blocks(inference_modes_entered() - len(self.inference_modes), self.modes.functorch_depth)
        self.inference_modes.clear()
        self.modes.restore(self.graph.sets_modes)


class Interpreter:
    """One frame being interpreted.

    `locals` holds the bound variables; `unread` the real arguments of the root frame that nothing has read yet (they
    get values and guards when they are read). `cells` maps the names of cell and free variables to CellValues.
    """

    def __init__(
        self,
        trace: Trace,
        info: CodeInfo,
        f_globals: dict[str, Any],
        variables: dict[str, Value],
        parent: Interpreter | None = None,
        closure: Sequence[CellValue] = (),
        function: Value | None = None,
    ) -> None:
        self.trace = trace
        self.graph = trace.graph
        self.guards = trace.guards
        self.effects = trace.effects
        self.info = info
        self.code = info.code
        self.f_globals = f_globals
        self.locals = variables
        self.unread: dict[str, Any] = {}
        self.cells: dict[str, CellValue] = dict(zip(info.code.co_freevars, closure))
        self.function = function
        self.stack: list[Value] = []
        self.index = 0
        self.current: Instruction = info.instructions[0]
        self.kw_names: tuple[str, ...] = ()
        self.returned: Value | None = None
        self.yielded: Value | None = None
        self.handled: Value | None = None
        self.locals_asked = False
        self.open_contexts: list[OpenContext] = []
        self.globals_source: Source | None = getattr(function, "globals_source", None)
        if self.globals_source is None and parent is not None and parent.f_globals is f_globals:
            self.globals_source = parent.globals_source
        self.set_parent(parent)

    def set_parent(self, parent: Interpreter | None) -> None:
        """Set the caller of this frame (for a generator: who resumed it)."""
        self.parent = parent
        self.depth: int = parent.depth + 1 if parent is not None else 0
        self._outer_locations = parent._program_stack() if parent is not None else ()

    def forget(self) -> None:
        """The frame has ended: release what it holds (functions made in it hold the frame)."""
        for held in (self.locals, self.unread, self.cells, self.stack, self.open_contexts):
            held.clear()
        self.function = self.parent = self.handled = self.returned = self.yielded = None

    # ---- running ---------------------------------------------------------------------------------------------------
    def run(self) -> Value:
        """Run until the frame returns (its value) or yields (`self.yielded` is set, and returned)."""
        instructions, steps = self.info.instructions, self.trace.steps
        while True:
            pause()
            instruction = self.current = instructions[self.index]
            if steps is not None:
                steps.before(self, instruction)
            self.index += 1
            try:
                instruction.handler(self, instruction)
            except ObservedException as error:
                self.note_place(error)
                if not self.unwind(error.value):
                    raise
            except Unsupported as error:
                self.note_place(error)
                raise
            except GuardOnDataDependentSymNode as error:
                stop = stopped_by(error)
                self.note_place(stop)
                try:
                    raise stop from error
                finally:
                    del stop  # which holds this frame, and so the program's objects
            result = self.returned if self.returned is not None else self.yielded
            if result is not None:
                if steps is not None:
                    steps.ended(self)
                return result

    def note_place(self, error: Unsupported | ObservedException) -> None:
        """Remember the innermost location where tracing stopped, or where the user's code raised."""
        if self.trace.steps is not None:
            self.trace.steps.stopped(error)
        if "stack" not in error.context:
            error.context["stack"] = self.stack_locations()
            error.context["location"] = self.own_location()
            error.context["introspected_by"] = reader_above(self)
            if not self.info.of_program and self.parent is not None:
                error.context["inside"] = self.code.co_qualname, expression_of(self.info.location(self.current))

    def unwind(self, exception: Value) -> bool:
        """Continue at the handler for an exception raised by the current instruction; False when there is none."""
        entry = self.info.handler_of(self.current.index)
        if entry is None:
            return False
        del self.stack[entry.depth :]
        while self.open_contexts and self.open_contexts[-1].depth >= entry.depth:
            self.open_contexts.pop()
        if entry.lasti:
            self.push(build.constant(self.current.offset))
        self.push(exception)
        self.index = entry.target
        return True

    def inline(self, function: Any, args: Sequence[Value], kwargs: Mapping[str, Value]) -> Value:
        """Interpret the call of a FunctionValue. A generator function gives a GeneratorValue, which is run lazily."""
        refuse_coroutine(function.code)
        if self.depth >= self.trace.limits.depth:
            self.trace.limits.depth_reached()
            raise Unsupported(Reason.INLINE_DEPTH, detail=function.code.co_qualname)
        self._decide_inline(function)
        self.trace.spend()
        variables = function.bind(self, args, kwargs)
        info = code_info(function.code)
        child = Interpreter(self.trace, info, function.f_globals, variables, self, function.closure, function)
        if is_generator(function.code):
            return late.make_generator(child)
        self.trace.active = child
        times = self.trace.context.functions
        start = times.enter(info.code)
        try:
            return child.run()
        finally:
            times.leave(info.code, start)
            self.trace.active = self
            child.forget()

    def run_class_body(self, function: Any) -> dict[str, Value]:
        """Interpret the body of a class statement; returns its variables in order."""
        self.trace.spend()
        info = code_info(function.code)
        child = Interpreter(self.trace, info, function.f_globals, {}, self, function.closure, function)
        self.trace.active = child
        try:
            child.run()
            return dict(child.locals)
        finally:
            self.trace.active = self
            child.forget()

    def _decide_inline(self, function: Any) -> None:
        """Whether a callee is inlined into the graph is a decision, made once per function and compilation."""
        context, code = self.trace.context, function.code
        if id(code) in self.trace.inlined or not (context.recording or context.overrides):
            return
        subject = f"{code.co_qualname}@{code.co_filename.rpartition('/')[2]}:{code.co_firstlineno}"
        if context.decide("inline", subject, ("inline", "break"), "inline", "its code can be traced") == "break":
            raise Unsupported(Reason.FORCED_BREAK, detail=subject)
        self.trace.inlined[id(code)] = code

    # ---- stack -----------------------------------------------------------------------------------------------------
    def push(self, value: Value) -> None:
        """Push onto the value stack."""
        self.stack.append(value)

    def pop(self) -> Value:
        """Pop the top of the value stack."""
        return self.stack.pop()

    def popn(self, count: int) -> list[Value]:
        """Pop `count` values, in the order in which they were pushed."""
        if count == 0:
            return []
        values = self.stack[-count:]
        del self.stack[-count:]
        return values

    # ---- variables -------------------------------------------------------------------------------------------------
    def load_local(self, name: str) -> Value:
        """A local variable; raises UnboundLocalError in traced code when it is unbound."""
        value = self.locals.get(name)
        if value is None:
            if name not in self.unread:
                message = f"cannot access local variable '{name}' where it is not associated with a value"
                self.raise_observed(UnboundLocalError, message)
            value = self.locals[name] = self._build_local(name, self.unread.pop(name))
        return value

    def _build_local(self, name: str, real: Any) -> Value:
        source = LocalSource(name)
        origin = origin_of(self.code)
        if origin is not None and name in origin.boxed:
            self.guards.add(source, "TYPE_MATCH", list)
            return ListValue([build_or_opaque(self, real[0], ItemSource(source, 0))], list, source)
        if name.startswith(STACK_ARGUMENT):
            return build_or_opaque(self, real, source)
        return build.build(self, real, source)

    def is_bound(self, name: str) -> bool:
        """Whether a local variable has a value."""
        return name in self.locals or name in self.unread

    def bound_cells(self) -> list[str]:
        """The cell and free variables that have a value now (a real cell counts as bound)."""
        return [name for name, cell in self.cells.items() if cell.real is not None or cell.has_content()]

    def load_cell(self, name: str) -> Value:
        """The content of a cell or free variable."""
        content = self.cell_content(self.cells[name])
        if content is None or content is DELETED:
            where = "where it is not associated with a value"
            if name in self.code.co_freevars:
                self.raise_observed(NameError, f"cannot access free variable '{name}' {where} in enclosing scope")
            self.raise_observed(UnboundLocalError, f"cannot access local variable '{name}' {where}")
        return content

    def cell_content(self, cell: CellValue) -> Value | None:
        """What is in a cell; None or DELETED where it is empty."""
        if cell.content is None and cell.real is not None:
            try:
                real = cell.real.cell_contents
            except ValueError:
                real = cell.real = None
            if cell.real is not None:
                cell.content = build.build(self, real, self._cell_content_source(cell))
        return cell.content

    def _cell_content_source(self, cell: CellValue) -> Source:
        return LocalSource(cell.name, cell=True) if cell.source is None else cell.source

    def load_global(self, name: str) -> Value:
        """A global, or else a builtin."""
        key = (id(self.f_globals), name)
        value = self.trace.global_values.get(key)
        if value is not None and value is not DELETED:
            return value
        if name in self.f_globals and value is not DELETED:
            value = build.build(self, self.f_globals[name], self._global_source(name))
        else:
            value = self._builtin(name)
        self.trace.global_values[key] = value
        return value

    def _builtin(self, name: str) -> Value:
        table = self.f_globals.get("__builtins__", builtins)
        table = table if isinstance(table, dict) else table.__dict__
        if name not in table:
            self.raise_observed(NameError, f"name '{name}' is not defined")
        if self.f_globals is self.trace.f_globals and name not in self.f_globals:
            return build.build(self, table[name], GlobalSource(name))
        return build.from_python(self, table[name])  # or a global of that name has been deleted

    def _global_source(self, name: str) -> Source:
        if self.f_globals is self.trace.f_globals:
            return GlobalSource(name)
        if self.global_module():
            return ModuleGlobalSource(self.global_module(), name)
        if self.globals_source is not None:
            return ItemSource(self.globals_source, name)
        raise Unsupported(Reason.ATTRIBUTE, detail=f"the global {name} of {self.code.co_qualname}")

    def root(self) -> Interpreter:
        """The outermost frame."""
        frame = self
        while frame.parent is not None:
            frame = frame.parent
        return frame

    def global_module(self) -> str:
        """The name of the module whose globals these are; "" for the root frame's, and for globals of no module."""
        name = self.f_globals.get("__name__")
        known = isinstance(name, str) and getattr(sys.modules.get(name), "__dict__", None) is self.f_globals
        return str(name) if known else ""

    def store_global(self, name: str, value: Value) -> None:
        """`global name; name = value` (DELETED deletes it)."""
        root = self.f_globals is self.trace.f_globals
        if not root and not self.global_module():
            raise Unsupported(Reason.GLOBAL_STATE, detail=f"assigning the global {name} of {self.code.co_qualname}")
        module = "" if root else self.global_module()
        stored = self.effects.load_global(module, name)
        held = self.f_globals.get(name) if stored is None else getattr(stored, "real", None)
        refuse_visible_death(held, detail=f"what the global {name} holds")
        self.trace.global_values[id(self.f_globals), name] = value
        if value is not DELETED and self._is_as_before(self._global_source(name), value):
            self.effects.forget_global(module, name)
        else:
            self.effects.store_global(module, name, value)

    def _is_as_before(self, source: Source, value: Value) -> bool:
        """Whether a constant is the one that was read and guarded at `source`, such as a counter that was incremented
        and decremented."""
        before = self.trace.values_by_source.get(source)
        if before is None or not (before.is_constant() and value.is_constant()):
            return False
        old, new = before.as_constant(), value.as_constant()
        return old is new or (type(old) in (int, bool, str) and type(old) is type(new) and old == new)

    # ---- exceptions ------------------------------------------------------------------------------------------------
    def raise_observed(self, exc_type: type[BaseException], *args: Any) -> NoReturn:
        """Raise exc_type(*args) in traced code; the arguments are plain Python constants."""
        self.raise_value(build.make_exception(self, exc_type, [build.constant(arg) for arg in args]))

    def raise_value(self, exception: Value, again: bool = False) -> NoReturn:
        """Raise an exception Value in traced code; `again` where it propagates unchanged."""
        if isinstance(exception, ExceptionValue):
            if exception.raised_at is None:
                exception.raised_at = self.trace.safe_step()
                exception.attributes.pop("__traceback__", None)
            if not again:
                exception.raised_while(self.current_exception())
        elif not again:  # its traceback and its context change
            raise Unsupported(Reason.RERAISED_EXCEPTION, exception)
        raise ObservedException(exception)

    def current_exception(self) -> Value | None:
        """The exception that is being handled (sys.exc_info()), in this frame or in a caller."""
        frame: Interpreter | None = self
        while frame is not None and frame.handled is None:
            frame = frame.parent
        return None if frame is None else frame.handled

    def enter_context(self, manager: Value, leave: Value) -> None:
        """A `with` block starts: its `__exit__` is about to be pushed."""
        self.open_contexts.append(OpenContext(manager, leave, len(self.stack), self.trace.step))

    # ---- locations -------------------------------------------------------------------------------------------------
    def location(self) -> Location:
        """The user's line that is being interpreted: the innermost one outside torch and ptdebug."""
        frame: Interpreter = self
        while not frame.info.of_program and frame.parent is not None:
            frame = frame.parent
        return frame.info.location(frame.current)

    def own_location(self) -> Location:
        """The innermost line in the user's own files; one of an installed package where the whole stack is."""
        return next((p for p in reversed(self.stack_locations()) if not is_installed(p.file)), self.location())

    def stack_locations(self) -> tuple[Location, ...]:
        """The user's stack, innermost last; where it consists of torch's frames only, the location in the outermost
        one."""
        return self._program_stack() or (self.location(),)

    def _program_stack(self) -> tuple[Location, ...]:
        if not self.info.of_program:
            return self._outer_locations
        return (*self._outer_locations, self.info.location(self.current))

    @contextmanager
    def in_module(self, path: str, source: Source | None, cls: type) -> Iterator[None]:
        """Nodes made inside the block belong to the nn.Module at `path`, which `source` gives."""
        trace = self.trace
        before = trace.module_path, trace.modules
        trace.module_path = path
        if source is not None:
            trace.modules = (*trace.modules, (hash(source), source.expression, cls))
        try:
            yield
        finally:
            trace.module_path, trace.modules = before
