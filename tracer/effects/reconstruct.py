"""Writes the bytecode that replaces a frame's: call the graph, rebuild values, make the side effects.

A `Codegen` emits the pushes of Values. It runs twice over the same values: the planning run finds out which nodes must
be outputs of the graph and what is used more than once; the second run writes the instructions, and keeps shared
objects in temporary variables, so that identities are those of the traced program.

Constants of any kind (the compiled graph, modules, functions) are constants of the code object: nothing is added to the
user's globals.
"""
from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from types import BuiltinFunctionType, CellType, CodeType, FunctionType, ModuleType, WrapperDescriptorType
from typing import Any, NoReturn

import torch
import torch.fx

from ..breaks.reasons import Reason
from ..breaks.unsupported import Unsupported
from ..bytecode.assembly import Cell, Instr, Label, Positions, TryBegin, TryEnd
from ..sources.computed import RandomValueSource
from ..sources.roots import LocalSource
from ..sources.source import CellSource, Source
from ..variables.core.base import NULL, SideEffects, Value
from ..variables.python.cells import CellValue

VERSION = sys.version_info[:2]
OUTPUTS = ".ours_outputs"
_PLAIN_CONSTANTS = (
    int, float, str, bytes, bool, complex, type(None), type(...), CodeType, FunctionType, BuiltinFunctionType,
    ModuleType, WrapperDescriptorType, type,
)


@dataclass
class Plan:
    """The result of the planning run: outputs of the graph by position, uses, objects to create, cells that escape."""

    nodes: dict[torch.fx.Node, int] = field(default_factory=dict)
    uses: Counter[Value] = field(default_factory=Counter)
    source_uses: Counter[Source] = field(default_factory=Counter)
    new_objects: dict[Value, None] = field(default_factory=dict)
    live_cells: set[str] = field(default_factory=set)

    def expect(self, sources: Iterable[Source]) -> None:
        """Count a use of a source, and of each step on the way to it."""
        for source in sources:
            step: Source | None = source
            while step is not None:
                self.source_uses[step] += 1
                step = step.base if self.source_uses[step] == 1 else None


class Holder:
    """Holds a constant that a code object cannot hold itself (unhashable, or marshalled by value)."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value


class Codegen:
    """Emits instructions into `instructions`. Fills `plan` when `planning`, follows it otherwise."""

    def __init__(self, code: CodeType, effects: SideEffects, plan: Plan, planning: bool) -> None:
        self.code = code
        self.effects = effects
        self.plan = plan
        self.planning = planning
        self.instructions: list[Instr | Label | TryBegin | TryEnd] = []
        self.location: Positions = (code.co_firstlineno, None, None, None)
        self.stored: dict[str, None] = {}  # temporary variables in use
        self._temporaries: dict[Any, str] = {}
        self._building: set[Value] = set()
        self._cells = set(code.co_cellvars) | set(code.co_freevars)

    # ---- values ----------------------------------------------------------------------------------------------------
    def __call__(self, value: Value) -> None:
        """Push the object that `value` represents."""
        if self.planning:
            self.plan.uses[value] += 1
        if value is NULL:
            self.push_null()
        elif value in self._temporaries:
            self.emit("LOAD_FAST", self._temporaries[value])
        elif value in self.effects.new:
            self.new_object(value)
        elif value.source is not None and not isinstance(value, CellValue):
            self.load_source(value.source)
        else:
            self._rebuild(value)

    def _rebuild(self, value: Value) -> None:
        if value in self._building:
            raise Unsupported(Reason.RECONSTRUCT, value, detail=", which holds itself,")
        self._building.add(value)
        value.reconstruct(self)
        self._building.discard(value)
        one = not value.is_constant() or value.python_type().__dictoffset__  # a named tuple may have attributes
        if one and (self.planning or self.plan.uses[value] > 1):
            self._temporaries[value] = self.save()

    def save(self) -> str:
        """Store the top of the stack in a new temporary variable, too; returns its name."""
        name = f".ours_t{len(self._temporaries)}"
        self.emit("COPY", 1)
        self.emit("STORE_FAST", name)
        return name

    @property
    def new_objects(self) -> dict[Value, None]:
        """The objects made in the trace that escape so far."""
        return self.plan.new_objects

    def new_object(self, value: Value) -> None:
        """Push an object made in the trace (an instance, a cell), which was created right after the graph ran."""
        if self.planning and value not in self.plan.new_objects:
            self._create(value)  # its parts must exist before it
            self.plan.new_objects[value] = None
        self.emit("LOAD_FAST", self._temporaries.get(value, ".ours_new"))

    def create_new_objects(self) -> None:
        """Create, still empty, the objects that escape; side effects fill them."""
        for value in self.plan.new_objects:
            self._create(value)
            name = self._temporaries[value] = f".ours_t{len(self._temporaries)}"
            self.emit("STORE_FAST", name)

    def _create(self, value: Value) -> None:
        cls = self.effects.new.get(value, CellType)
        if cls is CellType:
            self.push_function(CellType)
            self.call(0)
        else:
            value.create(self, cls)

    def load_node(self, node: torch.fx.Node) -> None:
        """Push the run-time value of a node of the graph."""
        if node.op == "placeholder":
            self.load_source(node.meta["source"])
            return
        fake = node.meta["val"]
        if isinstance(fake, torch.Tensor) and torch._C._functorch.is_functorch_wrapped_tensor(fake):
            raise Unsupported(Reason.RECONSTRUCT, detail="a tensor of a transform of torch.func that has ended")
        if "hooked" in node.meta:  # the user's changes of the tensor itself happen below its hooks
            raise Unsupported(Reason.UNSUPPORTED_METHOD, torch.Tensor, "register_hook", earlier=node.meta["without"])
        row = node.meta.get("row")  # a copy of what the user's code sees as a view
        if row is not None and row.take_view(self):
            return
        position = self.plan.nodes.setdefault(node, len(self.plan.nodes))
        self.emit("LOAD_FAST", OUTPUTS)
        self.emit("LOAD_CONST", position)
        self.emit("BINARY_SUBSCR")

    # ---- sources ---------------------------------------------------------------------------------------------------
    def load_source(self, source: Source) -> None:
        """Push what `source` reads. Only correct before the first store into the frame or the user's objects."""
        name = self._temporaries.get(source)
        if self.planning:
            self.plan.source_uses[source] += 1
        if name is not None:
            self.emit("LOAD_FAST", name)
            return
        source.load(self)
        shared = self.planning or self.plan.source_uses[source] > 1
        if shared and not isinstance(source, (LocalSource, RandomValueSource)):
            self._temporaries[source] = self.save()

    def refuse_source(self, source: Source) -> NoReturn:
        """No bytecode reads it."""
        raise Unsupported(Reason.RECONSTRUCT, detail=str(source))

    def load_cell_source(self, source: Source) -> None:
        """Push the cell object whose content `source` reads."""
        if not isinstance(source, CellSource):
            raise Unsupported(Reason.RECONSTRUCT, detail=f"the cell of {source}")
        self.load_source(source.owner)
        self.load_attr("__closure__")
        self.const(source.index)
        self.emit("BINARY_SUBSCR")

    # ---- instructions ----------------------------------------------------------------------------------------------
    def emit(self, opname: str, arg: Any = 0) -> None:
        """One instruction."""
        if not self.planning:
            if opname == "STORE_FAST" and arg.startswith(".ours_"):
                self.stored[arg] = None
            self.instructions.append(Instr(opname, arg, self.location))

    def label(self, label: Label | TryBegin | TryEnd) -> None:
        """Place a label (or the start or end of a try block)."""
        if not self.planning:
            self.instructions.append(label)

    def const(self, value: Any) -> None:
        """Push any object as a constant. Raises Unsupported for a class made in the trace: the user's class is
        another."""
        if self.effects.local_classes:
            self.effects.refuse_local_class(value)
        if type(value) in _PLAIN_CONSTANTS:
            self.emit("LOAD_CONST", value)
        else:
            self.emit("LOAD_CONST", Holder(value))
            self.load_attr("value")

    def push_null(self) -> None:
        """Start a call: push the NULL below the callable (on 3.13 `call` does it)."""
        if VERSION < (3, 13):
            self.emit("PUSH_NULL")

    def push_null_above(self) -> None:
        """The NULL of a CALL_FUNCTION_EX, after the callable on versions where it belongs there (3.13)."""
        if VERSION >= (3, 13):
            self.emit("PUSH_NULL")

    def push_null_of_call(self) -> None:
        """The NULL that belongs to the callable on top of the stack, on versions where it comes after."""
        self.emit("PUSH_NULL")
        if VERSION < (3, 13):
            self.emit("SWAP", 2)

    def push_function(self, function: Any) -> None:
        """Start a call of a constant."""
        self.push_null()
        self.const(function)

    def call(self, count: int, kwnames: tuple[str, ...] = ()) -> None:
        """Call with the top `count` values (the last ones by keyword, when `kwnames`), over a callable over a NULL."""
        if VERSION >= (3, 13):
            self._call_ex(count, kwnames)
            return
        if kwnames:
            self.emit("KW_NAMES", kwnames)
        if VERSION < (3, 12):
            self.emit("PRECALL", count)
        self.emit("CALL", count)

    def _call_ex(self, count: int, kwnames: tuple[str, ...]) -> None:
        """The call of 3.13, where the NULL is above the callable: pack the arguments first."""
        if kwnames:
            self.emit("LOAD_CONST", kwnames)
            self.emit("BUILD_CONST_KEY_MAP", len(kwnames))
            self.emit("STORE_FAST", ".ours_kwargs")
        self.emit("BUILD_TUPLE", count - len(kwnames))
        self.emit("PUSH_NULL")
        self.emit("SWAP", 2)
        if kwnames:
            self.emit("LOAD_FAST", ".ours_kwargs")
        self.emit("CALL_FUNCTION_EX", int(bool(kwnames)))

    def call_const(self, function: Any, values: Sequence[Value]) -> None:
        """Push `function(*values)`."""
        self.push_function(function)
        for value in values:
            self(value)
        self.call(len(values))

    def build(self, opname: str, count: int) -> None:
        """BUILD_TUPLE, BUILD_LIST, BUILD_MAP, ... of the top of the stack."""
        self.emit(opname, count)

    def load_attr(self, name: str) -> None:
        """Replace the top of the stack by its attribute."""
        self.emit("LOAD_ATTR", (False, name) if VERSION >= (3, 12) else name)

    def load_global(self, name: str) -> None:
        """Push a global of the frame."""
        self.emit("LOAD_GLOBAL", (False, name))

    def store_global(self, module: str, name: str, deleted: bool) -> None:
        """Assign the top of the stack to a global ("" is the frame's own module), or delete it."""
        if deleted:
            self.push_function(dict.pop)
            self._push_globals(module)
            self.const(name)
            self.const(None)
            self.call(3)  # it may have existed only while tracing
            self.emit("POP_TOP")
        elif not module:
            self.emit("STORE_GLOBAL", name)
        else:
            self.const(sys.modules[module])
            self.emit("STORE_ATTR", name)

    def _push_globals(self, module: str) -> None:
        if module:
            self.const(sys.modules[module].__dict__)
        else:
            self.push_function(globals)
            self.call(0)

    def emit_cell(self, name: str) -> None:
        """Push a cell of the frame."""
        if self.planning:
            self.plan.live_cells.add(name)
        self.emit("LOAD_CLOSURE" if VERSION < (3, 13) else "LOAD_FAST", Cell(name))

    def emit_cell_store(self, name: str) -> None:
        """Assign the top of the stack to a cell or free variable of the frame."""
        self.emit("STORE_DEREF", Cell(name))

    def load_variable(self, name: str) -> None:
        """Push a local variable of the frame, with its value at the start of the frame."""
        if name in self._cells:
            self.emit("LOAD_DEREF", Cell(name))
        else:
            self.emit("LOAD_FAST", name)

    def let_go(self, names: Iterable[str]) -> None:
        """Set local variables to None: their objects die where they would in eager, not at the end of the frame."""
        for name in names:
            self.emit("LOAD_CONST", None)
            self.emit("STORE_FAST", name)

    def store_all(self, names: Iterable[str]) -> None:
        """Store the top of the stack into local variables, the last name first."""
        for name in reversed(list(names)):
            self.emit("STORE_FAST", name)
