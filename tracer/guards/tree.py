"""Torch's C++ guard tree under construction: what the kinds of guards install themselves on.

The tree mirrors how guarded objects are reached: a manager for each object, an accessor for each step from one to the
next, which the source of the object adds (`Source.reach`). A manager checks its own guards first, then its accessors;
each object is reached once however many guards are below it. Conditions on symbols come last, when everything that they
read has been checked.
"""
from __future__ import annotations

import sys
import types
from collections.abc import Callable
from typing import Any

import torch
from torch._C._dynamo import guards as cpp

from ...operators.dynamo_stubs import guard_manager_type
from ..runtime.eval_frame import local_indices
from ..shapes.conditions import ShapeGuard
from ..shapes.frame_shapes import FrameShapes
from ..sources.computed import ComputedSource
from ..sources.roots import GLOBAL_STATE
from ..sources.source import AttrSource, CallSource, Source
from .conditions import on_frame, on_number
from .describe import type_name
from .fast_path import with_brief
from .guarded_frame import GuardedFrame
from .interrupted import protected
from .python_guards import GuardFunction, PythonGuardManager
from .read import reader
from .same_constants import is_same_constant
from .spec import Check, GuardSpec
from .versions import Versions

Manager = Any
"""torch._C._dynamo.guards.GuardManager"""

_DICTS_OF_OBJECTS_LIE = sys.version_info >= (3, 13)
"""C++ skips the constants in a dict that it has not seen change. From CPython 3.13 on, an attribute can be stored
without notifying the watchers of the object's `__dict__`, so what may be one is read by other accessors there."""


class GuardTree:
    """A C++ guard tree under construction."""

    def __init__(self, frame: GuardedFrame, asked: int) -> None:
        self.frame = frame
        self.shapes: FrameShapes = frame.shapes
        self.plain = guard_manager_type().GUARD_MANAGER
        self.root: Manager = cpp.RootGuardManager()
        self.watched: dict[int, Any] = {}
        self.implied: list[Check] = []  # checks that no value requested, implied by the others
        self._asked = asked  # how many guards values asked for
        self._locals = local_indices(frame.code)
        self._managers: dict[Source, Manager] = {GLOBAL_STATE: self.root}
        self._in_cpp: dict[Source, Manager] = {}
        self._asks = True  # whether the object being reached belongs to C++, which reads the `__class__` of an example
        self._functions: dict[Source, tuple[Manager, GuardFunction]] = {}
        self._unaliased: list[tuple[Source, torch.Tensor, Manager]] = []

    def value(self, source: Source) -> Any:
        """The real object behind `source`."""
        return self.frame.value(source)

    def parts(self, spec: GuardSpec) -> list[str]:
        """What C++ reports when the guard fails: its index."""
        return [str(spec.index)]

    def watch(self, value: Any) -> None:
        """Drop the entry when `value`, which a guard compares by id, dies."""
        self.watched[id(value)] = value

    def imply(self, source: Source, kind: str, expectation: Any) -> list[str]:
        """Note a check that the tree adds itself; returns what C++ reports for it."""
        check = Check(self._asked + len(self.implied), source, kind, expectation, None)
        self.implied.append(check)
        return [str(check.index)]

    def manager(self, source: Source) -> Manager:
        """The manager of the object behind `source`, created with all on the way to it: a `PythonGuardManager` for a
        module and below one, else C++'s."""
        manager = self._managers.get(source)
        if manager is None:
            owner = source.base
            manager = self._reach(source, None if owner is None else self.manager(owner))
            if not isinstance(manager, PythonGuardManager):
                self._in_cpp[source] = manager
                if issubclass(type(self.value(source)), torch.nn.Module):
                    manager = self._module_function(source, manager)
            self._managers[source] = manager
            self._keep_dict(source, manager)
        return manager

    def cpp_manager(self, source: Source) -> Manager:
        """The C++ manager of the object behind `source`, wherever it is."""
        manager = self._in_cpp.get(source)
        if manager is None:
            owner = source.base
            manager = self._reach(source, None if owner is None else self.cpp_manager(owner))
            self._in_cpp[source] = manager
            self._keep_dict(source, manager)
        return manager

    def _reach(self, source: Source, owner: Manager | None) -> Manager:
        before, self._asks = self._asks, not isinstance(owner, PythonGuardManager)
        try:
            return source.reach(self, self.root if owner is None else owner)
        finally:
            self._asks = before

    def _module_function(self, source: Source, manager: Manager) -> PythonGuardManager:
        different = (f"the tensors of {source}",)
        function = GuardFunction(
            self.value(source), lambda: self.imply(GLOBAL_STATE, "NO_ALIASING", different)
        )
        self._functions[source] = manager, function
        return function.root

    def finish_modules(self, versions: Callable[[], Versions | None] | None) -> dict[Source, tuple[int, ...]]:
        """Add the guards of each outermost module as one guard that calls a function. Returns their indices, by
        module."""
        for manager, function in self._functions.values():
            check, parts = function.compiled()
            manager.add_lambda_guard(with_brief(function, check, versions), parts, None)
        return {source: function.indices() for source, (_, function) in self._functions.items()}

    def forget(self) -> None:
        """Release the user's objects: they may have to die before the garbage collector finds this tree."""
        for _, function in self._functions.values():
            function.forget()
        for known in (self._functions, self._managers, self._in_cpp, self._unaliased):
            known.clear()

    def _keep_dict(self, source: Source, manager: Manager) -> None:
        """C++ watches the version of an object that was a dict, and raises when it finds something else there."""
        value = self.value(source)
        if issubclass(type(value), dict):
            self.watch(type(value))
            parts = self.imply(source, "TYPE_MATCH", type_name(type(value)))
            manager.add_type_match_guard(id(type(value)), parts, None)

    def step(self, source: Source, value: Any = None) -> dict[str, Any]:
        """The arguments common to all C++ accessor methods and those of a PythonGuardManager."""
        example = self.value(source) if value is None else value
        return {
            "source": source.expression,
            "example_value": None if self._asks and _tells_its_class(example) else example,
            "guard_manager_enum": self.plain,
        }

    def below(self, expression: str, value: Any) -> dict[str, Any]:
        """The same for a step to a `value` that no source stands for."""
        return {"source": expression, "example_value": value, "guard_manager_enum": self.plain}

    def index_of_local(self, name: str) -> int:
        """Where the frame has a local variable."""
        return self._locals[name]

    def variables_manager(self, variables: dict[str, Any], expression: str) -> Manager:
        """The manager of the globals of a module."""
        return self.root.globals_dict_manager(f_globals=variables, **self.below(expression, variables))

    def sees_stores(self, manager: Manager) -> bool:
        """Whether the items of a dict may be reached by key: the manager sees each of them change."""
        return not _DICTS_OF_OBJECTS_LIE or isinstance(manager, PythonGuardManager)

    def reader(self, source: Source) -> Callable[[dict[str, Any]], Any]:
        """What `source` computes, as a function of the frame's locals."""
        return reader(source, self.frame.scope.f_globals, self.frame.scope.f_builtins)

    def equals_on_frame(self, source: Source, value: Any) -> Callable[[dict[str, Any]], bool]:
        """Returns a function of a frame's locals: whether what `source` computes there equals `value`."""
        read = self.reader(source)
        return lambda f_locals: is_same_constant(value, read(f_locals))

    def alias(self, first: Source, second: Source, parts: list[str]) -> None:
        """Both sources must lead to the same object."""
        one, other = self.manager(first), self.manager(second)
        if (
            isinstance(one, PythonGuardManager)
            and isinstance(other, PythonGuardManager)
            and one.function is other.function
        ):
            one.must_be(other, parts)
        else:
            cpp.install_object_aliasing_guard(self.cpp_manager(first), self.cpp_manager(second), parts, None)

    # ---- attributes -------------------------------------------------------------------------------------------------
    def attribute_manager(self, owner: Source, name: str) -> Manager:
        """The manager of an attribute; reaching it checks that it exists."""
        return self.manager(AttrSource(owner, name))

    def forbid_attribute(self, owner: Source, name: str, parts: list[str]) -> None:
        """Check that `owner` has no attribute `name`, without running nn.Module.__getattr__."""
        value, manager = self.value(owner), self.manager(owner)
        if not _has_stock_getattr(value) or hasattr(type(value), name):
            manager.add_no_hasattr_guard(name, parts, None)
            return
        own = self.instance_dict(owner, manager)
        own.add_dict_contains_guard(False, name, parts, None)
        for store in ("_parameters", "_buffers", "_modules"):
            held = value.__dict__.get(store)
            if type(held) is dict:
                self._entry(own, held, store, f"{owner}.{store}").add_dict_contains_guard(False, name, parts, None)

    def instance_dict(self, owner: Source, manager: Manager) -> Manager:
        """The manager of `owner.__dict__`, below that of `owner`."""
        return manager.get_generic_dict_manager(**self.below(f"{owner}.__dict__", self.value(owner).__dict__))

    def _entry(self, manager: Manager, value: Any, key: Any, name: str) -> Manager:
        return manager.dict_getitem_manager(key=key, **self.below(name, value))

    def module_attribute(self, manager: Manager, source: AttrSource) -> Manager | None:
        """An nn.Module's attribute through its dicts, as cheaply as possible; None where getattr has to decide."""
        module, name = self.value(source.owner), source.name
        own = module.__dict__
        if name in own:
            if not self.sees_stores(manager):
                return None
            return self._entry(self.instance_dict(source.owner, manager), own[name], name, source.expression)
        if hasattr(type(module), name) or not _has_stock_getattr(module):
            return None
        for store in ("_parameters", "_buffers", "_modules"):
            held = own.get(store)
            if type(held) is dict and name in held:
                stored = self._entry(self.instance_dict(source.owner, manager), held, store, f"{source.owner}.{store}")
                return self._entry(stored, held[name], name, source.expression)
        return None

    # ---- conditions and aliasing ------------------------------------------------------------------------------------
    def add_conditions(self) -> None:
        """Conditions on symbols: on a single number where that number is read, on several at the very end."""
        groups: dict[Source, list[ShapeGuard]] = {}
        for guard in self.shapes.conditions():
            alone = len(set(guard.sources)) == 1 and not isinstance(guard.sources[0], ComputedSource)
            home = guard.sources[0] if alone else GLOBAL_STATE
            groups.setdefault(home, []).append(guard)
        for home, guards in groups.items():
            parts = self.imply(home, "SHAPE_ENV", tuple(guards))
            if home is GLOBAL_STATE:
                holds = on_frame(guards, self.frame.scope.f_globals, self.reader)
                self.root.add_epilogue_lambda_guard(protected(holds), parts, None)
            else:
                self.manager(home).add_lambda_guard(protected(on_number(guards)), parts, None)

    def add_to_alias_check(self, source: Source, tensor: torch.Tensor, manager: Manager) -> None:
        """Tensors that were different must stay different."""
        if isinstance(source, CallSource) and source.function == "tensor_of":  # a new one each time, of the same array
            manager = self.manager(source.owner)
            tensor = self.value(source.owner)
        if self.frame.stays_different(source, tensor):
            self._unaliased.append((source, tensor, manager))

    def finish_alias_check(self) -> None:
        """One guard over all of them."""
        different = {id(tensor): (source, manager) for source, tensor, manager in reversed(self._unaliased)}
        if len(different) > 1:
            names = [source.expression for source, _ in different.values()]
            parts = self.imply(GLOBAL_STATE, "NO_ALIASING", tuple(names))
            cpp.install_no_tensor_aliasing_guard([m for _, m in different.values()], names, parts, None)


def _has_stock_getattr(value: Any) -> bool:
    cls = type(value)
    return (
        issubclass(cls, torch.nn.Module)
        and cls.__getattr__ is torch.nn.Module.__getattr__
        and cls.__getattribute__ is object.__getattribute__
    )


def _tells_its_class(value: Any) -> bool:
    """Whether user code computes the `__class__` of an object. torch's modules are excluded."""
    cls = type(value)
    if issubclass(cls, torch.nn.Module):
        return False
    told = any("__class__" in vars(base) for base in cls.__mro__[:-1])
    return told or type(cls.__getattribute__) is types.FunctionType
