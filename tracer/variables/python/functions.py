"""User-defined functions: interpreted when they are called."""
from __future__ import annotations

import functools
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Mapping, Sequence
from types import CellType, CodeType, FunctionType
from typing import TYPE_CHECKING, Any

from ...breaks.reasons import Reason
from ...breaks.unsupported import Unsupported
from ...runtime.compile_wrappers import is_compiled
from ...sources.source import AttrSource, CellSource, DefaultSource, ItemSource, Source
from ..core.base import Value
from ..core.binding import Signature, bind_arguments
from ..core.constant import constant
from ..core.disabled_functions import is_compiled_by_stock, is_marked_for_others, refuse_marked
from ..core.identity_guards import guard_unchanged
from ..core.late import late
from ..core.registry import build, from_python, is_library, is_stable
from .cells import CellValue
from .partials import MethodValue, PartialValue

if TYPE_CHECKING:
    from ..core.base import Codegen, Translator


_MUTABLE = (list, dict, set, deque, OrderedDict, defaultdict)


CODES: dict[CodeType, Callable[..., Value]] = {}
"""By code: functions that the standard library makes one by one, `handler(tx, function, args)`."""


class FunctionValue(Value):
    """A Python function: `function` when it exists outside the trace, else made by MAKE_FUNCTION.

    Closure and defaults of an existing function are read, and guarded, when it is first called.
    """

    __slots__ = (
        "_closure", "_defaults", "_kwdefaults", "annotations", "attributes", "code", "f_globals", "function", "name",
        "tx", "wrapped",
    )  # fmt: skip

    def __init__(
        self,
        code: CodeType,
        name: str,
        f_globals: dict[str, Any],
        defaults: tuple[Value, ...] = (),
        kwdefaults: dict[str, Value] | None = None,
        closure: tuple[CellValue, ...] = (),
        function: FunctionType | None = None,
        source: Source | None = None,
        tx: Translator | None = None,
    ) -> None:
        super().__init__(source)
        self.code = code
        self.name = name
        self.f_globals = f_globals
        self.function = function
        self.tx = tx
        self.attributes: dict[str, Value] = {}
        self.annotations: Value | None = None  # names and their annotations, alternating
        self.wrapped: Value | None = None  # the function that functools.update_wrapper made it look like
        made = function is None
        self._defaults: tuple[Value, ...] | None = defaults if made else None
        self._kwdefaults: dict[str, Value] | None = (kwdefaults or {}) if made else None
        self._closure: tuple[CellValue, ...] | None = closure if made else None

    @property
    def globals_source(self) -> Source | None:
        """The source of the function's globals, for functions of no module."""
        return AttrSource(self.source, "__globals__") if self.source is not None else None

    @property
    def closure(self) -> tuple[CellValue, ...]:
        """The cells of the free variables."""
        if self._closure is None:
            cells = self.function.__closure__ or ()  # type: ignore[union-attr]
            self._closure = tuple(self._cell(i, cell) for i, cell in enumerate(cells))
        return self._closure

    def _cell(self, index: int, cell: Any) -> CellValue:
        assert self.tx is not None
        if self.source is not None:
            source = CellSource(self.source, index, self.code.co_freevars[index])
            known = self.tx.effects.cell_for(cell, source)
            if known.source is not source and not is_stable(source):
                self._guard_shared(known, source)
            return known
        if type(cell.cell_contents) in _MUTABLE:  # changes of it must reach the real one
            raise Unsupported(
                Reason.ATTRIBUTE, detail=f"a free variable of {self.describe()}, which no expression reaches"
            )
        content = from_python(self.tx, cell.cell_contents)
        return CellValue(content, real=cell)

    def _guard_shared(self, known: CellValue, source: CellSource) -> None:
        """A second path to a closure variable: it must stay the same one. No guard can reach the cells of the frame's
        own function, but their contents are comparable."""
        assert self.tx is not None
        if isinstance(known.source, CellSource):
            self.tx.guards.add(source.cell, "DUPLICATE_INPUT", known.source.cell)
        elif known.real is not None and not _is_empty(known.real):
            build(self.tx, known.real.cell_contents, source)

    @property
    def defaults(self) -> tuple[Value, ...]:
        """Defaults of the last positional parameters."""
        if self._defaults is None:
            real = self.function.__defaults__ or ()  # type: ignore[union-attr]
            self._defaults = tuple(self._default(i, value) for i, value in enumerate(real))
        return self._defaults

    @property
    def kwdefaults(self) -> dict[str, Value]:
        """Defaults of keyword-only parameters. Raises Unsupported where traced code has changed the dict of them."""
        if self.function is not None and self.tx is not None:
            read = self.tx.trace.values_by_id.get(id(self.function.__kwdefaults__))
            if read is not None and self.tx.effects.has_changed(read):
                raise Unsupported(Reason.ATTRIBUTE, self, "__kwdefaults__", detail="after changes of it")
        if self._kwdefaults is None:
            real = self.function.__kwdefaults__ or {}  # type: ignore[union-attr]
            self._kwdefaults = {name: self._default(name, value) for name, value in real.items()}
        return self._kwdefaults

    def complete(
        self,
        defaults: tuple[Value, ...] | None = None,
        kwdefaults: dict[str, Value] | None = None,
        closure: tuple[CellValue, ...] | None = None,
        annotations: Value | None = None,
    ) -> None:
        """Set one part of a function that was just made, as SET_FUNCTION_ATTRIBUTE of 3.13 does."""
        self._defaults = self._defaults if defaults is None else defaults
        self._kwdefaults = self._kwdefaults if kwdefaults is None else kwdefaults
        self._closure = self._closure if closure is None else closure
        self.annotations = self.annotations if annotations is None else annotations

    def _default(self, key: int | str, value: Any) -> Value:
        assert self.tx is not None
        if self.source is not None and not is_stable(self.source):
            return build(self.tx, value, self._default_source(self.source, key))
        try:
            return from_python(self.tx, value)
        except Unsupported:
            if self.source is None:
                raise
            return build(self.tx, value, self._default_source(self.source, key))

    @staticmethod
    def _default_source(owner: Source, key: int | str) -> Source:
        """The source of a default; of one by name that by which the program reads it, too."""
        if isinstance(key, str):
            return ItemSource(AttrSource(owner, "__kwdefaults__"), key)
        return DefaultSource(owner, key)

    def python_type(self) -> type:
        """function."""
        return FunctionType

    def key(self) -> Any:
        """The function itself where it exists."""
        return self.function if self.function is not None else self

    def truth(self, tx: Translator) -> bool:
        """Functions are true."""
        return True

    def signature(self) -> Signature:
        """The parameters."""
        return Signature(self.code, self.name, self.defaults, self.kwdefaults)

    def bind(self, tx: Translator, args: Sequence[Value], kwargs: Mapping[str, Value]) -> dict[str, Value]:
        """The locals at the start of a call. Wrong arguments raise TypeError in traced code."""
        self.tx = tx
        if self.function is not None:
            code = self.code
            names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
            given = (*names[: min(len(args), code.co_argcount)], *kwargs)
            self._guard_defaults(tx, [name for name in names if name not in given])
        return bind_arguments(tx, self.signature(), args, kwargs)

    def _guard_defaults(self, tx: Translator, missing: Sequence[str]) -> None:
        """The call gives no arguments for these parameters: guard which of them have defaults and, where nothing else
        guards the defaults, these. User code may replace them."""
        function = self.function
        if not missing or function is None or is_library(function.__module__):
            return
        source, by_name = self.source, self.code.co_varnames[self.code.co_argcount :]
        if source is None or is_stable(source):
            guard_unchanged(tx, function, _Defaults(function).holds, "defaults")
            return
        if any(name not in by_name for name in missing):
            many = function.__defaults__
            tx.guards.add(AttrSource(source, "__defaults__"), "NONE" if many is None else "LENGTH")
        for name in missing:
            if name in by_name and name not in (function.__kwdefaults__ or ()):
                none = function.__kwdefaults__ is None
                tx.guards.add(AttrSource(source, "__kwdefaults__"), *(("NONE",) if none else ("NOT_IN_DICT", name)))

    def call(self, tx: Translator, args: Sequence[Value], kwargs: Mapping[str, Value]) -> Value:
        """Interpret the call."""
        self.tx = tx
        if self.function is not None:
            if is_compiled(self.function):  # by itself: here it is part of this graph
                return self.getattr(tx, "_ptdebug_original").call(tx, args, kwargs)
            if is_marked_for_others(self.function) or is_compiled_by_stock(self.function):
                return self.getattr(tx, "_torchdynamo_orig_callable").call(tx, args, kwargs)
            refuse_marked(self.function)
            known = CODES.get(self.code)
            if known is not None:
                return known(tx, self, args)
        return tx.inline(self, args, kwargs)

    def bound_to(self, owner: Value) -> Value:
        """The function as a method of `owner`."""
        return MethodValue(self, owner)

    def getattr(self, tx: Translator, name: str) -> Value:
        """Attributes of the function object."""
        if name in self.attributes:
            return self.attributes[name]
        if tx.effects.has_pending(self, name):
            return tx.effects.load_attr(self, name) or tx.raise_observed(AttributeError, name)
        if name == "__get__":
            return PartialValue(from_python(tx, FunctionType.__get__), [self], {})
        if name == "__dict__" and self in tx.effects.attributes:
            raise Unsupported(Reason.ATTRIBUTE, self, "__dict__", detail="after stores to it")
        if self.function is not None:
            if name == "__defaults__":
                self._guard_defaults(tx, self.code.co_varnames[: self.code.co_argcount])
                return late.make_tuple(tx, self.defaults) if self.function.__defaults__ else constant(None)
            if name == "__closure__":
                return late.make_tuple(tx, self.closure) if self.function.__closure__ else constant(None)
            if name == "__kwdefaults__" and (self._kwdefaults is None or not self.function.__kwdefaults__):
                if self.source is not None and not is_stable(self.source):
                    return build(tx, self.function.__kwdefaults__, AttrSource(self.source, name))
            if name in _PARTS and getattr(self.function, name):
                raise Unsupported(Reason.ATTRIBUTE, self, name)
            try:
                found = getattr(self.function, name)
            except AttributeError as error:
                if self.source is not None and not is_stable(self.source):
                    tx.guards.add(self.source, "NO_ATTR", name)
                tx.raise_observed(AttributeError, *error.args)
            if self.source is not None and (name in self.function.__dict__ or name in ("__annotations__", "__dict__")):
                return build(tx, found, AttrSource(self.source, name))
            if name in _TEXTS and not is_library(self.function.__module__):
                guard_unchanged(tx, self.function, lambda function: getattr(function, name) == found, name)
            return from_python(tx, found)
        if name in ("__name__", "__qualname__"):
            return constant(self.name.rpartition(".")[2] if name == "__name__" else self.name)
        if name in ("__module__", "__doc__"):
            known = {"__module__": self.f_globals.get("__name__"), "__doc__": _docstring(self.code)}
            return constant(known[name])
        if name == "__code__":
            return constant(self.code)
        if name == "__annotations__":
            if self.wrapped is not None:
                return self.wrapped.getattr(tx, name)
            parts = self.annotations.iterate(tx) if self.annotations is not None else ()
            self.attributes[name] = made = late.make_dict(tx, parts[::2], parts[1::2])
            return made
        if name == "__dict__":
            own = {constant(n): value for n, value in self.attributes.items() if n not in (*_TEXTS, "__annotations__")}
            return late.make_dict(tx, list(own), list(own.values()))
        if name == "__closure__":
            return late.make_tuple(tx, self.closure) if self.closure else constant(None)
        if name in ("__kwdefaults__", "__defaults__") and not self.defaults and not self.kwdefaults:
            return constant(None)
        if not hasattr(FunctionType, name):
            tx.raise_observed(AttributeError, f"'function' object has no attribute '{name}'")
        raise Unsupported(Reason.ATTRIBUTE, self, name)

    def setattr(self, tx: Translator, name: str, value: Value) -> None:
        """Attributes of a function made in the trace; those of existing functions are side effects."""
        if self.function is None:
            if hasattr(FunctionType, name) and name not in _TEXTS:
                raise Unsupported(Reason.SET_ATTRIBUTE, self, name)
            self.attributes[name] = value
        elif self.source is not None and (not hasattr(FunctionType, name) or name in _TEXTS):
            tx.effects.store_attr(self, name, value)
        else:
            raise Unsupported(Reason.SET_ATTRIBUTE, self, name)

    def reconstruct(self, codegen: Codegen) -> None:
        """The function itself, or MAKE_FUNCTION again."""
        if self.function is not None:
            codegen.const(self.function)
            return
        codegen.push_null()
        codegen.const(make_real_function)
        codegen.const(self.code)
        codegen.const(self.f_globals)
        codegen.const(self.name)
        for group in (self.defaults, tuple(self.kwdefaults.values()), self.closure):
            for value in group:
                codegen(value)
            codegen.build("BUILD_TUPLE", len(group))
        codegen.const(tuple(self.kwdefaults))
        for part in (self.annotations, self.wrapped):
            codegen.const(None) if part is None else codegen(part)
        codegen.const(tuple(self.attributes))
        for value in self.attributes.values():
            codegen(value)
        codegen.build("BUILD_TUPLE", len(self.attributes))
        codegen.call(11)

    def describe(self) -> str:
        """The function's name."""
        return f"the function {self.code.co_qualname}"


class _Defaults:
    """The defaults of a function, by identity."""

    def __init__(self, function: FunctionType) -> None:
        self.defaults, self.by_name = function.__defaults__, dict(function.__kwdefaults__ or {})

    def holds(self, function: FunctionType) -> bool:
        """Whether the function has these defaults."""
        now: dict[str, Any] = function.__kwdefaults__ or {}
        same = function.__defaults__ is self.defaults and len(now) == len(self.by_name)
        return same and all(name in now and now[name] is value for name, value in self.by_name.items())


_TEXTS = ("__module__", "__name__", "__qualname__", "__doc__")
"""Attributes of a function made in the trace that user code may set, besides its own."""


_PARTS = ("__kwdefaults__", "__globals__", "__closure__")
"""What a call reads and user code may change through the function."""


def _docstring(code: CodeType) -> str | None:
    first = code.co_consts[0] if code.co_consts else None
    return first if isinstance(first, str) else None


_COPIED = {"__annotations__", "__type_params__"}.intersection(functools.WRAPPER_ASSIGNMENTS)


def make_real_function(
    code: CodeType, f_globals: dict[str, Any], name: str, defaults: Any, kwvalues: Any, closure: Any, kwnames: Any,
    annotations: tuple[Any, ...] | None, wrapped: Any, names: tuple[str, ...], attributes: tuple[Any, ...],
) -> FunctionType:  # fmt: skip
    """The function object for one that the trace made. Where it wraps another, it has that one's annotations."""
    function = FunctionType(code, f_globals, name.rpartition(".")[2], defaults or None, closure or None)
    function.__kwdefaults__ = dict(zip(kwnames, kwvalues)) or None
    function.__qualname__ = name
    if annotations:
        function.__annotations__ = dict(zip(annotations[::2], annotations[1::2]))
    if wrapped is not None:  # the rest of what `update_wrapper` copies is among the attributes, in the program's order
        for name in _COPIED.intersection(dir(wrapped)):
            setattr(function, name, getattr(wrapped, name))
    for attribute, value in zip(names, attributes):
        setattr(function, attribute, value)
    return function


def _is_empty(cell: CellType) -> bool:
    return cell == CellType()  # cells compare by content, and an empty one equals no other


def make_existing(tx: Translator, function: FunctionType, source: Source | None = None) -> FunctionValue:
    """An existing function, whose code is interpreted when it is called."""
    code = function.__code__
    return FunctionValue(code, function.__qualname__, function.__globals__, function=function, source=source, tx=tx)


def make_function(
    tx: Translator,
    code: CodeType,
    f_globals: dict[str, Any],
    defaults: tuple[Value, ...],
    kwdefaults: dict[str, Value],
    closure: tuple[CellValue, ...],
    annotations: Value | None,
) -> FunctionValue:
    """A function made by MAKE_FUNCTION."""
    function = FunctionValue(code, code.co_qualname, f_globals, defaults, kwdefaults, closure)
    function.complete(annotations=annotations)
    return function


late.existing_function = make_existing
