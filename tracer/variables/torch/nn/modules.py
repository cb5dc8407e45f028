"""nn.Module: attributes as `nn.Module.__getattr__` finds them, calls that end in `forward`, and Python modules.

Parameters and buffers become inputs of the graph. Their sources go through `_parameters` and `_modules`, so that
neither guards nor generated code run any Python to reach them.
"""
from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.modules.module as nn_module
from torch.fx._lazy_graph_module import _LazyGraphModule

from ....breaks.reasons import Reason
from ....breaks.unsupported import Unsupported
from ....runtime.skips import is_installed, is_program
from ....sources.display_names import display_name
from ....sources.roots import ModuleGlobalSource
from ....sources.source import AttrSource, ItemSource, Source
from ...containers.mappings import DictValue
from ...core.attributes import MISSING, bind, lookup, type_source
from ...core.base import Value
from ...core.constant import constant
from ...core.handlers import MEANINGS, NAMED, handles
from ...core.identity_guards import guard_library_member
from ...core.late import late
from ...core.opaque import OpaqueValue
from ...core.registry import CONSTANT_TYPES, build, build_constant, builds, from_python, is_library, is_stable
from ...python.instance_checks import is_instance
from ...python.objects import ObjectValue
from ...python.own_dict import own_dict

if TYPE_CHECKING:
    from ...core.base import Codegen, Translator

_TABLES = ("_parameters", "_buffers", "_modules")
_KINDS = {"_parameters": torch.nn.Parameter, "_buffers": torch.Tensor, "_modules": torch.nn.Module}
_MODULE_GETATTR = torch.nn.Module.__getattr__
_MODULE_SETATTR = torch.nn.Module.__setattr__
_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")


class ModuleValue(ObjectValue):
    """An existing nn.Module. `path` is its qualified name below the outermost module, for provenance."""

    __slots__ = ("path",)

    def __init__(self, cls: type, real: torch.nn.Module, source: Source | None) -> None:
        super().__init__(cls, real, source)
        self.path = module_path(source)

    # ---- attributes ------------------------------------------------------------------------------------------------
    def generic_getattr(self, tx: Translator, name: str) -> Value:
        """Attributes of the instance and class, then parameters, buffers and submodules."""
        found = self.find_attr(tx, name)
        if found is not None:
            return found
        fallback = lookup(self.cls, "__getattr__")
        if fallback is not _MODULE_GETATTR:
            return bind(tx, fallback, "__getattr__", self, self.cls, type_source(self)).call(tx, [constant(name)], {})
        return self.registered(tx, name)

    def find_attr(self, tx: Translator, name: str) -> Value | None:
        """As for objects; entries of `_parameters` and the like come first where nothing hides them."""
        if not tx.effects.has_pending(self, name) and name not in self.real.__dict__:
            if lookup(self.cls, name) is MISSING and lookup(self.cls, "__getattr__") is _MODULE_GETATTR:
                entry = self._entry(tx, name)
                if entry is not None:
                    tx.guards.member(self.cls, "__getattr__", _MODULE_GETATTR)
                    tx.guards.member(self.cls, name, None)
                    return entry
        elif name in self.real.__dict__ and lookup(self.cls, name) is MISSING:
            tx.guards.member(self.cls, name, None)  # a property would come first
        return super().find_attr(tx, name)

    def guard_missing(self, tx: Translator, name: str) -> None:
        """Neither an attribute nor, unless the class's own __getattr__ decides, a parameter, buffer or submodule."""
        self.guard_not_hidden(tx, name)
        if lookup(self.cls, "__getattr__") is _MODULE_GETATTR:
            self._guard_unregistered(tx, name)

    def _guard_unregistered(self, tx: Translator, name: str) -> None:
        """None of the tables has the name; the keys of one from which traced code removed it were guarded then."""
        if self.source is not None:
            for table in _TABLES:
                if name not in self.real.__dict__.get(table, ()):
                    tx.guards.add(AttrSource(self.source, table), "NOT_IN_DICT", name)

    def registered(self, tx: Translator, name: str) -> Value:
        """nn.Module.__getattr__."""
        entry = self._entry(tx, name)
        if entry is None:
            self._guard_unregistered(tx, name)
            tx.raise_observed(AttributeError, f"'{self.cls.__name__}' object has no attribute '{name}'")
        return entry

    def _entry(self, tx: Translator, name: str) -> Value | None:
        own = self.real.__dict__
        for table in _TABLES:
            entries = own.get(table)
            known = tx.trace.values_by_id.get(id(entries))
            if isinstance(known, DictValue):  # user code holds the table itself, and may have changed it
                if name in known.items:
                    return known.read(tx, name)
            elif entries is not None and name in entries:
                return self._item(tx, table, name, entries[name])
        return None

    def _item(self, tx: Translator, table: str, name: str, real: Any) -> Value:
        if self.source is None:
            return from_python(tx, real)
        return build(tx, real, ItemSource(AttrSource(self.source, table), name))

    def read(self, tx: Translator, value: Any, name: str) -> Value:
        """An attribute of the instance."""
        if self.source is None:
            return from_python(tx, value)
        source = self.source_of(name)
        if type(value) in CONSTANT_TYPES:
            known = tx.trace.values_by_source.get(source)
            if known is None:
                known = tx.trace.values_by_source[source] = build_constant(tx, value, source)
            return known
        return build(tx, value, source)

    def setattr(self, tx: Translator, name: str, value: Value) -> None:
        """Plain attributes and buffers are side effects; new parameters and submodules are left to eager."""
        custom = lookup(self.cls, "__setattr__")
        if custom is not _MODULE_SETATTR:
            super().setattr(tx, name, value)
        else:
            self.module_setattr(tx, name, value)

    def module_setattr(self, tx: Translator, name: str, value: Value) -> None:
        """nn.Module.__setattr__."""
        if self.source is None:
            raise Unsupported(Reason.SET_ATTRIBUTE, self, name)
        table = next((table for table in _TABLES if self._holds(tx, table, name)), None)
        kind = value.python_type()
        if table in (None, "_buffers") and issubclass(kind, torch.Tensor):
            if is_instance(tx, value, constant(torch.nn.Buffer)):  # which says whether the state dict has it
                raise Unsupported(Reason.SET_ATTRIBUTE, self, name)
        if table is not None:
            if kind is not type(None) and not issubclass(kind, _KINDS[table]):
                raise Unsupported(Reason.SET_ATTRIBUTE, self, name)
            self._store_entry(tx, table, name, value)
        elif issubclass(kind, (torch.nn.Parameter, torch.nn.Module)):
            raise Unsupported(Reason.SET_ATTRIBUTE, self, name)
        elif hasattr(type(lookup(self.cls, name)), "__set__"):
            self.generic_setattr(tx, name, value)
        else:
            own_dict(tx, self, self.real, changes=True)
            tx.effects.store_attr(self, name, value)

    def _holds(self, tx: Translator, table: str, name: str) -> bool:
        """Whether `_parameters`, `_buffers` or `_modules` has an entry for the name now."""
        entries = self.real.__dict__.get(table)
        known = tx.trace.values_by_id.get(id(entries))
        return name in known.items if isinstance(known, DictValue) else entries is not None and name in entries

    def _store_entry(self, tx: Translator, table: str, name: str, value: Value) -> None:
        """Replace a parameter, buffer or submodule. A parameter that the trace made, and hooks that observe
        registration, are left to eager."""
        hooks = f"_global{table.removesuffix('s')}_registration_hooks"
        tx.guards.add(ModuleGlobalSource(nn_module.__name__, hooks), "LENGTH", len(vars(nn_module)[hooks]))
        made = table == "_parameters" and value.source is None and not value.is_constant()
        if made or vars(nn_module)[hooks]:
            raise Unsupported(Reason.SET_ATTRIBUTE, self, name)
        self.getattr(tx, table).setitem(tx, constant(name), value)

    # ---- calls -----------------------------------------------------------------------------------------------------
    def call(self, tx: Translator, args: Sequence[Value], kwargs: Mapping[str, Value]) -> Value:
        """`forward`, or nn.Module's own path with hooks where there are any."""
        custom = lookup(self.cls, "__call__")
        guard_library_member(tx, self.cls, "__call__", custom)
        with tx.in_module(self.path, self.source, self.cls):
            if custom is not torch.nn.Module.__call__ or not is_library(custom.__module__):  # which may be replaced
                return bind(tx, custom, "__call__", self, self.cls, type_source(self)).call(tx, args, kwargs)
            return self.call_module(tx, args, kwargs)

    def call_module(self, tx: Translator, args: Sequence[Value], kwargs: Mapping[str, Value]) -> Value:
        """nn.Module.__call__."""
        if self.real.__dict__.get("_compiled_call_impl") is not None:
            raise Unsupported(Reason.UNSUPPORTED_ARGUMENT, self, detail=", which is compiled on its own")
        written = lookup(self.cls, "_call_impl")
        guard_library_member(tx, self.cls, "_call_impl", written)
        if not is_library(written.__module__):
            return self.getattr(tx, "_call_impl").call(tx, args, kwargs)
        if self._has_hooks(tx):
            function = from_python(tx, torch.nn.Module._call_impl)
            return function.call(tx, [self, *args], kwargs)
        return self.getattr(tx, "forward").call(tx, args, kwargs)

    def _has_hooks(self, tx: Translator) -> bool:
        own = self.real.__dict__
        if self.source is not None:
            for name in _HOOKS:
                tx.guards.add(AttrSource(self.source, name), "LENGTH", len(own[name]))
        return any(_has_entries(tx, table) for table in (*_global_hooks(tx), *[own[name] for name in _HOOKS]))

    def key(self) -> Any:
        """Modules are keys by identity."""
        return self

    def reconstruct(self, codegen: Codegen) -> None:
        """A module without a source is a constant."""
        codegen.const(self.real)

    def describe(self) -> str:
        """Its class and path, or its source."""
        name = self.path or (display_name(self.source) if self.source is not None else self.cls.__name__)
        return f"the module {name} ({self.cls.__name__})"


class ScriptedModule(OpaqueValue):
    """What torch.jit.script or torch.jit.trace made of a module. TorchScript runs it, with parameters of its own that a
    node for the call would not show: Python calls it."""

    __slots__ = ()

    def call(self, tx: Translator, args: Sequence[Value], kwargs: Mapping[str, Value]) -> Value:
        """Left to eager."""
        raise Unsupported(Reason.TORCHSCRIPT, self)

    def getattr(self, tx: Translator, name: str) -> Value:
        """TorchScript has its attributes, and makes new objects for some of them at each read."""
        raise Unsupported(Reason.ATTRIBUTE, self, name)

    def describe(self) -> str:
        """How the program reaches it."""
        assert self.source is not None
        return f"the module {display_name(self.source)} of TorchScript"


def _global_hooks(tx: Translator) -> list[dict[int, Any]]:
    """The tables of global module hooks, whose lengths are guarded."""
    tables = [getattr(nn_module, f"_global{name}") for name in _HOOKS]
    for name, table in zip(_HOOKS, tables):
        tx.guards.add(ModuleGlobalSource(nn_module.__name__, f"_global{name}"), "LENGTH", len(table))
    return tables


def _has_entries(tx: Translator, table: dict[int, Any]) -> bool:
    """Whether a dict has entries, after the changes of traced code."""
    known = tx.trace.values_by_id.get(id(table))
    return bool(table) if known is None else known.truth(tx)


def refuse_global_hooks(tx: Translator, what: str) -> None:
    """Raises Unsupported where global module hooks are registered, or were when the frame began (a graph runs before
    the frame's side effects): they also run for the modules that an operator makes of its functions."""
    if any(table or _has_entries(tx, table) for table in _global_hooks(tx)):
        raise Unsupported(Reason.GLOBAL_HOOKS, detail=what)


def module_path(source: Source | None) -> str:
    """`layers.0.linear` of L['self']._modules['layers']._modules['0']._modules['linear']."""
    parts: list[str] = []
    while source is not None:
        if isinstance(source, ItemSource) and isinstance(source.owner, AttrSource) and source.owner.name == "_modules":
            parts.append(str(source.key))
            source = source.owner.owner
        else:
            break
    return ".".join(reversed(parts))


@builds(torch.nn.Module)
def build_module(tx: Translator, obj: torch.nn.Module, source: Source | None) -> Value:
    """A module: its type is guarded; parameters, attributes and hooks when they are used."""
    if isinstance(obj, torch.jit.ScriptModule) and source is not None:
        tx.guards.add(source, "TYPE_MATCH", type(obj))
        return ScriptedModule(source, type(obj))
    if isinstance(obj, (torch.jit.ScriptModule, torch.nn.parallel.DistributedDataParallel)):
        raise Unsupported(Reason.UNKNOWN_TYPE, type(obj))
    _LazyGraphModule.force_recompile(obj)  # type: ignore[arg-type]  # whose class has no forward until its first call
    if source is not None:
        tx.guards.add(source, "TYPE_MATCH", type(obj))
        if "forward" in obj.__dict__:
            tx.guards.add(AttrSource(source, "__dict__"), "IN_DICT", "forward")
    return ModuleValue(type(obj), obj, source)


@handles(_LazyGraphModule._lazy_forward)
def _lazy_forward(tx: Translator, args: Sequence[Value], kwargs: Mapping[str, Value]) -> Value:
    """For a `forward` that was kept before the first call: the forward that has been generated by now."""
    return args[0].getattr(tx, "forward").call(tx, args[1:], kwargs)


@handles(torch.nn.Module.__getattr__)
def _module_getattr(tx: Translator, args: Sequence[Value], kwargs: Mapping[str, Value]) -> Value:
    owner = args[0]
    if not isinstance(owner, ModuleValue):
        return _as_written(tx, torch.nn.Module.__getattr__, args, kwargs)
    return owner.registered(tx, args[1].as_constant())


@handles(torch.nn.Module.__setattr__)
def _module_setattr(tx: Translator, args: Sequence[Value], kwargs: Mapping[str, Value]) -> Value:
    owner = args[0]
    if not isinstance(owner, ModuleValue):
        return _as_written(tx, torch.nn.Module.__setattr__, args, kwargs)
    owner.module_setattr(tx, args[1].as_constant(), args[2])
    return constant(None)


@handles(torch.nn.Module.__call__)
def _module_call(tx: Translator, args: Sequence[Value], kwargs: Mapping[str, Value]) -> Value:
    owner = args[0]
    if not isinstance(owner, ModuleValue):
        return _as_written(tx, torch.nn.Module.__call__, args, kwargs)
    return owner.call_module(tx, args[1:], kwargs)


def _tagged_init(tx: Translator, args: Sequence[Value], kwargs: Mapping[str, Value]) -> Value:
    """Once TorchDynamo has run in the process (torch.cond of eager runs it), its own function replaces
    `nn.Module.__init__`, which also records new modules."""
    init: Any = torch.nn.Module.__init__
    tagged = init.__code__
    while init.__code__ is tagged:  # replaced once more where traced code calls it
        cells = dict(zip(tagged.co_freevars, init.__closure__ or ()))
        if "init" not in cells:
            raise Unsupported(
                Reason.UNSUPPORTED_ARGUMENT, detail="nn.Module.__init__ with another function in its place"
            )
        init = cells["init"].cell_contents
    return _as_written(tx, init, args, kwargs)


NAMED["torch._dynamo.mutation_guard", "patched_init"] = _tagged_init


def _as_written(
    tx: Translator, function: Callable[..., Any], args: Sequence[Value], kwargs: Mapping[str, Value]
) -> Value:
    """A method of a module that the trace made: an ordinary object, for which torch's own code is interpreted."""
    return tx.inline(late.existing_function(tx, function), args, kwargs)


# ---- Python modules ------------------------------------------------------------------------------------------------
class PythonModuleValue(Value):
    """A Python module."""

    __slots__ = ("module",)

    def __init__(self, module: ModuleType, source: Source | None = None) -> None:
        super().__init__(source)
        self.module = module

    def python_type(self) -> type:
        """module."""
        return type(self.module)

    def is_constant(self) -> bool:
        """Modules are taken as they are."""
        return True

    def as_constant(self) -> ModuleType:
        """The module."""
        return self.module

    def truth(self, tx: Translator) -> bool:
        """Modules are true."""
        return True

    def getattr(self, tx: Translator, name: str) -> Value:
        """A global of the module; what the trace stored there comes first."""
        module_name, own = self.module.__name__, self.module.__dict__
        pending = tx.effects.load_global("" if own is tx.trace.f_globals else module_name, name)
        if pending is not None:
            return pending
        try:
            if name not in own and _is_written_by_the_person(own.get("__getattr__")):
                return self._computed(tx, name)
            found = getattr(self.module, name)
        except AttributeError as error:
            computed = own.get("__getattr__")
            self._guard(tx, name, lambda _: name not in own and own.get("__getattr__") is computed, "is missing")
            tx.raise_observed(AttributeError, *error.args)
        if isinstance(found, ModuleType):
            return from_python(tx, found)
        if name not in own and type(found) in CONSTANT_TYPES:  # a property of the module's class, as in torch.backends
            self._guard(tx, name, lambda _: _is_the_same(found, getattr(self.module, name, None)), f"is {found!r}")
        if sys.modules.get(module_name) is self.module and name in own:
            source = ModuleGlobalSource(module_name, name)
            if is_library(module_name) and _is_model_code(str(tx.f_globals.get("__name__"))):
                _guard_replaced(tx, found, source)
            return build(tx, found, source)
        return build(tx, found, AttrSource(self.source, name)) if self.source is not None else from_python(tx, found)

    def _computed(self, tx: Translator, name: str) -> Value:
        """The result of a user-defined module's `__getattr__` (PEP 562); those of packages load lazily."""
        own = self.module.__dict__
        self._guard(tx, name, lambda _: name not in own, "is missing")
        source = ModuleGlobalSource(self.module.__name__, "__getattr__")
        if sys.modules.get(self.module.__name__) is not self.module:
            raise Unsupported(Reason.ATTRIBUTE, self, name)
        return build(tx, own["__getattr__"], source).call(tx, [constant(name)], {})

    def _guard(self, tx: Translator, name: str, holds: Callable[[Any], bool], words: str) -> None:
        """Guard what no source reads: that the module has no such global, or computes it. Code of a library is
        fixed."""
        if words != "is missing" or not is_library(self.module.__name__):
            tx.guards.add(None, "LAMBDA", (holds, f"{self.module.__name__}.{name} {words}"))

    def setattr(self, tx: Translator, name: str, value: Value) -> None:
        """A side effect on the module's globals."""
        if sys.modules.get(self.module.__name__) is not self.module:
            raise Unsupported(Reason.SET_ATTRIBUTE, self, name)
        own = self.module.__dict__
        tx.trace.global_values[id(own), name] = value
        tx.effects.store_global("" if own is tx.trace.f_globals else self.module.__name__, name, value)

    def reconstruct(self, codegen: Codegen) -> None:
        """Push it."""
        codegen.const(self.module)

    def describe(self) -> str:
        """Its name."""
        return f"the module {self.module.__name__}"


def _is_written_by_the_person(function: Any) -> bool:
    file = function.__code__.co_filename if isinstance(function, FunctionType) else ""
    return bool(file) and is_program(file) and not is_installed(file)


def _is_the_same(found: Any, now: Any) -> bool:
    return type(now) is type(found) and bool(now == found)


def _is_model_code(module: str) -> bool:
    """Whether a module of that name is the user's, or defines layers or models, which read functions in the same
    way."""
    return module.startswith(("torch.nn.modules.", "transformers.")) or not is_library(module)


def _guard_replaced(tx: Translator, found: Any, source: Source) -> None:
    """What is read from a library is guarded: tests and tools replace functions there."""
    if isinstance(found, FunctionType):
        tx.guards.add(source, "FUNCTION_MATCH", found)
    elif isinstance(found, (BuiltinFunctionType, type)):
        tx.guards.add(source, "ID_MATCH", found)


@builds(ModuleType)
def build_python_module(tx: Translator, obj: ModuleType, source: Source | None) -> Value:
    """A Python module; a user's name that is bound to one is guarded."""
    if source is not None and not is_stable(source):
        tx.guards.add(source, "ID_MATCH", obj)
    return PythonModuleValue(obj, source)


def _compiled_module(tx: Translator, args: Sequence[Value], kwargs: Mapping[str, Value]) -> Value:
    """The call of a module that the user compiled: the original is part of this graph."""
    if not isinstance(args[0], ModuleValue):
        raise Unsupported(Reason.SKIPPED_FUNCTION, args[0])
    if any(args[0].getattr(tx, hooks).truth(tx) for hooks in _HOOKS):
        raise Unsupported(Reason.UNSUPPORTED_ARGUMENT, args[0], detail=", a compiled module with hooks of its own")
    return _original(tx, args[0]).call(tx, args[1:], kwargs)


def _original(tx: Translator, compiled: Value) -> Value:
    return compiled.getattr(tx, "_modules").getitem(tx, constant("_orig_mod"))


def _attribute_of_compiled(tx: Translator, args: Sequence[Value], kwargs: Mapping[str, Value]) -> Value:
    """Attributes that it does not have itself are the original's."""
    original, name = _original(tx, args[0]), args[1].as_constant()
    return original if name == "_orig_mod" else original.getattr(tx, name)


def _mode_of_compiled(tx: Translator, args: Sequence[Value], kwargs: Mapping[str, Value]) -> Value:
    """Its property `training`, read."""
    return _original(tx, args[0]).getattr(tx, "training")


def _class_of_compiled(tx: Translator, args: Sequence[Value], kwargs: Mapping[str, Value]) -> Value:
    """The class that a compiled module reports."""
    assert isinstance(args[0], ModuleValue)
    return from_python(tx, args[0].real.__class__)


NAMED["torch._dynamo.eval_frame", "__call__"] = _compiled_module
NAMED["torch._dynamo.eval_frame", "__getattr__"] = _attribute_of_compiled
NAMED["torch._dynamo.eval_frame", "training"] = _mode_of_compiled
MEANINGS["call of a compiled module"] = lambda _: _compiled_module
MEANINGS["attribute of a compiled module"] = lambda _: _attribute_of_compiled
MEANINGS["mode of a compiled module"] = lambda _: _mode_of_compiled
MEANINGS["class of a compiled module"] = lambda _: _class_of_compiled
