"""The protocol of the values that a traced frame works with.

A `Value` represents one Python object while the frame is interpreted: a constant, a list, a module, a tensor that is a
node of the graph. Operations on it either give another Value or raise `Unsupported`, which becomes a graph break; they
never guess. `tx` is the running `Translator`; through it values reach the graph (`tx.graph`), guards (`tx.guards`), and
side effects (`tx.effects`).
"""
from __future__ import annotations

import itertools
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from types import BuiltinFunctionType, CellType, CodeType
from typing import TYPE_CHECKING, Any, NoReturn, Protocol

import torch
import torch.fx

from ...breaks.reasons import Reason
from ...breaks.unsupported import Unsupported
from ...sources.display_names import display_name
from ...sources.source import Source

if TYPE_CHECKING:
    from ....artifacts.context import CompileContext
    from ....artifacts.records import Location
    from ...bytecode.instructions import CodeInfo, Instruction
    from ...fx.backend_call import CompileOptions
    from ...fx.subgraphs import Scope, Scopes
    from ...guards import GuardBuilder
    from ...runtime.global_modes import Modes
    from ...shapes.frame_shapes import FrameShapes


class ObservedException(Exception):
    """Traced code raised an exception that it may catch itself; `value` is the exception's Value."""

    def __init__(self, value: Value) -> None:
        super().__init__(value)
        self.value = value
        self.context: dict[str, Any] = {}  # where it was raised, as in Unsupported


SERIALS = itertools.count()
"""Values are numbered in the order in which they are made."""


class Value:
    """One object of the traced program. `source` is where to load it from, None for what the trace created.

    Identity: two Values are the same object exactly when they are the same Python object here (sources that are equal
    are mapped to one Value by `build.py`), so `is` in the program is `is` here.
    """

    __slots__ = ("serial", "source")

    identified = True
    """Whether two of these that are not one Value are two objects."""

    resumable = False
    """For context managers: `reconstruct` pushes a fresh, equal manager, so a break inside its block is possible."""

    handles_exceptions = True
    """For context managers: whether `__exit__` may swallow an exception, or handle it in another way."""

    def __init__(self, source: Source | None = None) -> None:
        self.source = source
        self.serial = next(SERIALS)

    def python_type(self) -> type:
        """The type that traced code sees."""
        raise Unsupported(Reason.UNKNOWN_TYPE, self)

    def is_constant(self) -> bool:
        """Whether `as_constant` gives the object itself."""
        return False

    def as_constant(self) -> Any:
        """The Python object itself: numbers, strings, None, dtypes, tuples of such, ..."""
        raise Unsupported(Reason.NOT_A_CONSTANT, self)

    def as_proxy(self) -> Any:
        """What represents this value in the arguments of an FX node: a Proxy, a constant, a tree of them."""
        return self.as_constant()

    def truth(self, tx: Translator) -> bool:
        """bool(value), where it does not depend on a tensor's data."""
        return bool(self.as_constant())

    def iterate(self, tx: Translator) -> Sequence[Value]:
        """All items of iter(value); for finite iterables without side effects."""
        return self._refuse_iteration(tx)

    def _refuse_iteration(self, tx: Translator) -> NoReturn:
        kind = type(self.as_constant()) if self.is_constant() else object
        if kind is not object and not hasattr(kind, "__iter__") and not hasattr(kind, "__getitem__"):
            tx.raise_observed(TypeError, f"'{kind.__name__}' object is not iterable")
        raise Unsupported(Reason.ITERATE, self)

    def next(self, tx: Translator) -> Value | None:
        """next(value) of an iterator; None when it is exhausted."""
        raise Unsupported(Reason.ITERATE, self)

    def hint(self, tx: Translator) -> None:
        """What `operator.length_hint(value)` returns in traced code, as called by list, tuple and `*`."""

    def iter(self, tx: Translator) -> Value:
        """iter(value)."""
        return self._refuse_iteration(tx)

    def binary(self, tx: Translator, function: Callable[..., Any], left: Value, right: Value) -> Value | None:
        """function(left, right) for a binary function of the `operator` module, one of whose operands this is.

        None where this operand's type does not support the other: Python's NotImplemented.
        """
        return None

    def unary(self, tx: Translator, function: Callable[..., Any]) -> Value:
        """function(value) for a unary function of the `operator` module."""
        raise Unsupported(Reason.OPERATOR, function, given=(self,))

    def contains(self, tx: Translator, item: Value) -> bool:
        """`item in value`."""
        raise Unsupported(Reason.OPERATOR, operator.contains, given=(self,))

    def length(self, tx: Translator) -> Value:
        """len(value)."""
        if not hasattr(self.python_type(), "__len__"):
            tx.raise_observed(TypeError, f"object of type '{self.python_type().__name__}' has no len()")
        raise Unsupported(Reason.UNSUPPORTED_BUILTIN, len, given=(self,))

    def is_hashable(self) -> bool:
        """Whether value is hashable."""
        return self.python_type().__hash__ is not None

    def without_hash(self) -> type:
        """The type that the TypeError of hash(value) names."""
        return self.python_type()

    def has_user_hash(self, tx: Translator) -> bool:
        """Whether the class defines its own hash; `key` then has the result of its last call."""
        return False

    def key(self) -> Any:
        """What represents this object as a key of a dict or item of a set: the constant itself, or this value. Raises
        Unsupported where other values may be equal to it."""
        if self.is_constant():
            return self.as_constant()
        if self.python_type().__hash__ is not object.__hash__:
            raise Unsupported(Reason.UNSUPPORTED_BUILTIN, hash, given=(self,))
        return self

    def call(self, tx: Translator, args: Sequence[Value], kwargs: Mapping[str, Value]) -> Value:
        """value(*args, **kwargs)."""
        raise Unsupported(Reason.UNKNOWN_CALLABLE, self)

    def call_method(self, tx: Translator, name: str, args: Sequence[Value], kwargs: Mapping[str, Value]) -> Value:
        """value.name(*args, **kwargs); by default the call of the attribute."""
        return self.getattr(tx, name).call(tx, args, kwargs)

    def getattr(self, tx: Translator, name: str) -> Value:
        """value.name; raises ObservedException(AttributeError) as the program would see it."""
        raise Unsupported(Reason.ATTRIBUTE, self, name)

    def setattr(self, tx: Translator, name: str, value: Value) -> None:
        """value.name = value, kept as a side effect until the graph has run."""
        raise Unsupported(Reason.SET_ATTRIBUTE, self, name)

    def getitem(self, tx: Translator, key: Value) -> Value:
        """value[key]."""
        raise Unsupported(Reason.SUBSCRIPT, self)

    def setitem(self, tx: Translator, key: Value, value: Value) -> None:
        """value[key] = value."""
        raise Unsupported(Reason.SET_ITEM, self)

    def delitem(self, tx: Translator, key: Value) -> None:
        """del value[key]."""
        raise Unsupported(Reason.DELETE, detail=f"an item of {self.describe()}")

    def delattr(self, tx: Translator, name: str) -> None:
        """del value.name."""
        raise Unsupported(Reason.DELETE, self, name)

    def base_method(self, tx: Translator, name: str, args: Sequence[Value], kwargs: Mapping[str, Value]) -> Value:
        """The method of a builtin base class, bypassing overrides."""
        raise Unsupported(Reason.UNSUPPORTED_METHOD, self, name)

    def additions(self) -> Value | None:
        """For an existing container: what was added, where nothing else of it was changed or read."""
        return None

    def removals(self) -> Sequence[Value] | None:
        """For an existing dict: the keys that were removed, where nothing else was changed."""
        return None

    def reconstruct(self, codegen: Codegen) -> None:
        """Emit bytecode that pushes this object; only called for values without a source to load from."""
        raise Unsupported(Reason.RECONSTRUCT, self)

    def create(self, codegen: Codegen, cls: type) -> None:
        """Emit bytecode that pushes a new object, still empty, for one that the trace made: an instance of `cls`."""
        codegen.push_function(builtin_new(cls))
        codegen.const(cls)
        codegen.call(1)

    def represents(self) -> object:
        """The callable or class that it is, by which hints are found; None for any other object."""
        return None

    def describe(self) -> str:
        """A short description for messages: "a list of 3", "the module `self.layers`"."""
        where = f" `{display_name(self.source)}`" if self.source is not None else ""
        kind = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", type(self).__name__.strip("_").removesuffix("Value")).lower()
        return f"{'an' if kind[0] in 'aeiou' else 'a'} {kind}{where}"

    def __repr__(self) -> str:
        return f"<{self.describe()}>"


def builtin_new(cls: type) -> Any:
    """The `__new__` that allocates an instance, bypassing those that classes written in Python define."""
    found = (base.__dict__.get("__new__") for base in cls.__mro__)
    return next(new for new in found if isinstance(new, BuiltinFunctionType))


def with_arguments(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """function(*args, **kwargs). Raises Unsupported where the arguments do not fit its parameters: eager raises
    TypeError."""
    try:
        return function(*args, **kwargs)
    except TypeError as error:
        if error.__traceback__ is not None and error.__traceback__.tb_next is None:
            raise Unsupported(Reason.RAISES, detail=f"TypeError: {error}", arguments=True) from error
        raise


class Null(Value):
    """The NULL that CPython pushes below a callable; never a user's object."""

    __slots__ = ()

    def describe(self) -> str:
        """For messages."""
        return "NULL"


NULL = Null()


class Codegen(Protocol):
    """The bytecode that pushes values and makes side effects: what `VariableTracker.reconstruct` writes to. It is
    `effects/reconstruct.py`."""

    @property
    def effects(self) -> SideEffects:
        """What the trace changed."""

    @property
    def plan(self) -> Any:
        """How often each value and source is used."""

    def __call__(self, value: Value) -> None:
        """Push the object that `value` represents."""

    def const(self, value: Any) -> None:
        """Push an object as it is."""

    def call_const(self, function: Any, values: Sequence[Value]) -> None:
        """Push the result of calling a known function."""

    def call(self, count: int, kwnames: tuple[str, ...] = ()) -> None:
        """Call with `count` arguments from the stack."""

    def push_null(self) -> None:
        """Push NULL."""

    def push_function(self, function: Any) -> None:
        """Push a callable, with the NULL that its call expects."""

    def build(self, opname: str, count: int) -> None:
        """BUILD_LIST and its like."""

    def load_attr(self, name: str) -> None:
        """Replace the top of the stack by its attribute."""

    def load_node(self, node: torch.fx.Node) -> None:
        """Push a result of the compiled graph."""

    def load_source(self, source: Source) -> None:
        """Push what a source reads."""

    def emit(self, opname: str, arg: Any = 0) -> None:
        """One instruction."""

    def load_cell_source(self, source: Source) -> None:
        """Push the cell that a source reads."""

    def emit_cell(self, name: str) -> None:
        """Push a cell of the root frame."""

    def new_object(self, value: Value) -> None:
        """Push an object that the trace made."""


class SideEffects(Protocol):
    """What traced code changed outside of the graph: `effects/side_effects.py`."""

    new: dict[Value, type]
    globals: dict[tuple[str, str], Value]
    cells: dict[int, Any]
    attributes: dict[Value, dict[str, tuple[Value, bool]]]
    instance_dicts: dict[Value, Any]
    own_dicts: dict[int, dict[str, Any]]
    of_classes: dict[str, dict[type, Value]]
    made_first: list[Value]
    local_classes: dict[type, tuple[int, Any, Any]]

    def reach_outside(self) -> bool: ...
    def changed_outside(self) -> set[Value]: ...
    def track_new(self, value: Value, cls: type) -> Value: ...
    def is_new(self, value: Value) -> bool: ...
    def store_attr(self, value: Value, name: str, new: Value, raw: bool = False) -> None: ...
    def delete_attr(self, value: Value, name: str) -> None: ...
    def load_attr(self, value: Value, name: str) -> Value | None: ...
    def has_pending(self, value: Value, name: str) -> bool: ...
    def is_deleted(self, value: Value, name: str) -> bool: ...
    def came_back(self, value: Value, name: str) -> bool: ...
    def mutated(self, value: Value) -> None: ...
    def store_global(self, module: str, name: str, new: Value) -> None: ...
    def load_global(self, module: str, name: str) -> Value | None: ...
    def cell_for(self, real: CellType, source: Source | None, name: str = "") -> Any: ...
    def load_cell(self, cell: Any) -> Value | None: ...
    def store_cell(self, cell: Any, new: Value) -> None: ...
    def sealed(self, what: str) -> AbstractContextManager[None]: ...
    def is_sealed(self) -> bool: ...
    def has_changed(self, container: Value) -> bool: ...
    def refills(self, container: Value) -> bool: ...
    def refuse_local_class(self, value: Any) -> None: ...


class Graph(Protocol):
    """The FX graph under construction: `graph/graph.py`."""

    checkpoint: int
    reentrant: bool
    sets_modes: bool
    operations: int
    runtime_assert: Any
    called: Callable[..., Any]
    inputs: dict[Source, torch.fx.Node]
    versions: dict[torch.fx.Node, int | None]
    assigned: list[tuple[torch.Tensor, str]]
    frozen: list[tuple[torch.Tensor, Callable[[], Unsupported]]]
    leaves: list[tuple[torch.Tensor, Callable[[], Unsupported]]]
    rows: list[Any]
    inside: dict[int, Source]
    asks_overrides: bool | None

    @property
    def shapes(self) -> FrameShapes: ...
    @property
    def scopes(self) -> Scopes: ...
    @property
    def fake_mode(self) -> Any: ...
    @property
    def graph(self) -> torch.fx.Graph: ...
    @property
    def shape_env(self) -> Any: ...
    def nested(self) -> AbstractContextManager[Scope]: ...
    def nested_without_writes(self, what: str) -> AbstractContextManager[Scope]: ...
    def make(
        self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any], op: str = "call_function"
    ) -> torch.fx.Node: ...
    def make_number(self, function: Any, args: tuple[Any, ...]) -> torch.fx.Node: ...
    def add_input(self, source: Source, real: Any) -> torch.fx.Node: ...
    def add_placeholder(self, source: Source, fake: Any) -> torch.fx.Node: ...
    def call(
        self, target: Any, args: Sequence[Value], kwargs: Mapping[str, Value], tx: Any, op: str = "call_function"
    ) -> Value: ...
    def run_fake(self, op: str, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any: ...
    def refuse_of_two_runs(self, what: str) -> None: ...
    def refuse_of_rows(self, fake: torch.Tensor, member: str, unrecorded: bool = False) -> None: ...


class Overrides(Protocol):
    """`__torch_function__` overrides: `torch/torch_function_overrides.py`."""

    modes: list[Value]
    on_types: bool
    off: bool
    seen: bool
    classes: set[type]

    @property
    def may_ask(self) -> bool: ...
    def set(self, modes: list[Value], on_types: bool) -> AbstractContextManager[None]: ...


class Trace(Protocol):
    """What all frames of one attempt share: `interpreter/interpreter.py`."""

    step: int
    statement: int
    module_path: str
    modules: tuple[tuple[int, str, type], ...]
    layouts_asked: int
    layouts_assumed: int
    inference_modes: list[Any]
    open_variables: list[Value]
    values_by_source: dict[Source, Value]
    values_by_id: dict[int, Value]
    global_values: dict[tuple[int, str], Value]
    keep_alive: list[Any]
    compared_by_identity: dict[type, dict[Value, None]]
    referents: set[Value]
    reentrant: list[CodeType]
    caught_warnings: list[Any]

    @property
    def identities(self) -> Any: ...
    @property
    def active(self) -> Translator | None: ...
    @property
    def graph(self) -> Graph: ...
    @property
    def guards(self) -> GuardBuilder: ...
    @property
    def effects(self) -> SideEffects: ...
    @property
    def options(self) -> CompileOptions: ...
    @property
    def context(self) -> CompileContext: ...
    @property
    def f_globals(self) -> dict[str, Any]: ...
    @property
    def resumed(self) -> bool: ...
    @property
    def modes(self) -> Modes: ...
    @property
    def overrides(self) -> Overrides: ...
    @property
    def random_calls(self) -> Any: ...
    def spend(self, amount: int = 1) -> None: ...
    def safe_step(self) -> int: ...
    def location(self) -> Location: ...


class Translator(Protocol):
    """A frame that is being interpreted: `interpreter/interpreter.py`. Values reach everything through it."""

    locals_asked: bool

    @property
    def trace(self) -> Trace: ...
    @property
    def graph(self) -> Graph: ...
    @property
    def guards(self) -> GuardBuilder: ...
    @property
    def effects(self) -> SideEffects: ...
    @property
    def code(self) -> CodeType: ...
    @property
    def info(self) -> CodeInfo: ...
    @property
    def current(self) -> Instruction: ...
    @property
    def open_contexts(self) -> Sequence[Any]: ...
    @property
    def f_globals(self) -> dict[str, Any]: ...
    @property
    def function(self) -> Value | None: ...
    @property
    def parent(self) -> Translator | None: ...
    def root(self) -> Translator: ...
    @property
    def locals(self) -> dict[str, Value]: ...
    @property
    def cells(self) -> Mapping[str, Any]: ...
    @property
    def stack(self) -> list[Value]: ...
    @property
    def depth(self) -> int: ...
    def inline(self, function: Any, args: Sequence[Value], kwargs: Mapping[str, Value]) -> Value: ...
    def run_class_body(self, function: Any) -> dict[str, Value]: ...
    def raise_observed(self, exc_type: type[BaseException], *args: Any) -> NoReturn: ...
    def raise_value(self, exception: Value, again: bool = False) -> NoReturn: ...
    def current_exception(self) -> Value | None: ...
    def load_local(self, name: str) -> Value: ...
    def load_cell(self, name: str) -> Value: ...
    def cell_content(self, cell: Any) -> Value | None: ...
    def is_bound(self, name: str) -> bool: ...
    def bound_cells(self) -> list[str]: ...
    def location(self) -> Location: ...
    def own_location(self) -> Location: ...
    def stack_locations(self) -> tuple[Location, ...]: ...
    def in_module(self, path: str, source: Source | None, cls: type) -> AbstractContextManager[None]: ...
