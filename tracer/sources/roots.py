"""Sources that start at the frame: its variables, those of modules, and state that no object holds."""
from __future__ import annotations

import builtins
import sys
import weakref
from dataclasses import dataclass
from functools import cached_property
from types import FunctionType
from typing import Any

from .source import Source


@dataclass(frozen=True, eq=False)
class LocalSource(Source):
    """A local variable of the frame at entry (the content of a cell or free variable when `cell`)."""

    name: str
    cell: bool = False

    @cached_property
    def expression(self) -> str:
        return f"L[{self.name!r}]"

    @cached_property
    def display_name(self) -> str:
        return self.name

    def read(self, start: Any) -> Any:
        return start.f_locals[self.name]

    def load(self, codegen: Any) -> None:
        codegen.load_variable(self.name)

    def reach(self, tree: Any, manager: Any) -> Any:
        return manager.framelocals_manager(key=(self.name, tree.index_of_local(self.name)), **tree.step(self))


@dataclass(frozen=True, eq=False)
class GlobalSource(Source):
    """A global of the frame's function, or a builtin where the globals have no such name."""

    name: str

    @cached_property
    def expression(self) -> str:
        return f"G[{self.name!r}]"

    @cached_property
    def display_name(self) -> str:
        return self.name

    def read(self, start: Any) -> Any:
        return start.f_globals[self.name] if self.name in start.f_globals else start.f_builtins[self.name]

    def load(self, codegen: Any) -> None:
        codegen.load_global(self.name)

    def reach(self, tree: Any, manager: Any) -> Any:
        variables = tree.frame.scope.f_globals
        holder = tree.variables_manager(variables, "G")
        if self.name not in variables:
            holder.add_dict_contains_guard(False, self.name, tree.imply(self, "BUILTIN", self.name), None)
            holder = tree.variables_manager(vars(builtins), "builtins")
        return holder.dict_getitem_manager(key=self.name, **tree.step(self))


@dataclass(frozen=True, eq=False)
class ModuleGlobalSource(Source):
    """A global of another module: `module` is its key in sys.modules."""

    module: str
    name: str

    @cached_property
    def expression(self) -> str:
        return f"__import_module({self.module!r}).{self.name}"

    @cached_property
    def display_name(self) -> str:
        return f"{self.module}.{self.name}"

    def read(self, start: Any) -> Any:
        return sys.modules[self.module].__dict__[self.name]

    def load(self, codegen: Any) -> None:
        codegen.const(sys.modules[self.module])
        codegen.load_attr(self.name)

    def reach(self, tree: Any, manager: Any) -> Any:
        variables = sys.modules[self.module].__dict__
        holder = tree.variables_manager(variables, f"__import_module({self.module!r}).__dict__")
        return holder.dict_getitem_manager(key=self.name, **tree.step(self))


@dataclass(frozen=True, eq=False)
class WeakrefSource(Source):
    """A class or function that no module has under its name, such as one made inside a function. Held by a weak
    reference."""

    name: str
    at: int

    @classmethod
    def of(cls, found: type | FunctionType) -> WeakrefSource:
        """The source of `found`."""
        source = cls(found.__qualname__, id(found))
        source.__dict__["known"] = weakref.ref(found)  # not a field: dataclasses would ask the metaclass for a hash
        return source

    def value(self) -> type | FunctionType | None:
        """The class or function, None once it has died."""
        found: type | FunctionType | None = self.__dict__["known"]()
        return found

    @cached_property
    def expression(self) -> str:
        return self.name

    @cached_property
    def display_name(self) -> str:
        return self.name

    def read(self, start: Any) -> Any:
        return self.value()

    def load(self, codegen: Any) -> None:
        codegen.const(self.value())

    def reach(self, tree: Any, manager: Any) -> Any:
        return manager.lambda_manager(python_lambda=lambda _: self.value(), **tree.step(self))


@dataclass(frozen=True, eq=False)
class GlobalStateSource(Source):
    """State that no object holds, checked directly (grad mode, autocast, the function mode stack; expressions on
    sizes)."""

    @cached_property
    def expression(self) -> str:
        return "global state"


GLOBAL_STATE = GlobalStateSource()
