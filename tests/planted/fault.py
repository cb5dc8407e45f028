"""Planted bugs: what a fault is, and how the product is changed while one is enabled.

The product has no hooks for this. A fault's patches change it from outside, once a module has been loaded: `Edit`
compiles the module's source again with one line changed, and gives the functions of that source, wherever they are
(tables, closures, other modules), their new code; `Replace` puts another object in the place of a constant or of an
entry of a table.
"""
from __future__ import annotations

import functools
import gc
import importlib
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

VARIABLE = "PTDEBUG_PLANTED"
"""The environment variable that names the fault to enable in child processes (`sitecustomize.py`)."""


class NotPlanted(Exception):
    """A patch does not fit the product any more."""


class Edit:
    """In the source of `module` each old text of `changes` (old, new, old, new, ...), which occurs once, becomes the
    new one. Lines stay where they are."""

    def __init__(self, module: str, *changes: str) -> None:
        self.module, self.changes = module, list(zip(changes[::2], changes[1::2], strict=True))

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Give the functions of the module, while this lasts, the code of the changed source."""
        module = sys.modules[self.module]
        changed = self._changed(module)
        before = [(f, f.__code__) for f in _functions(str(module.__file__)) if _key(f.__code__) in changed]
        if not before:
            raise NotPlanted(f"{self.module}: no function has changed")
        for function, code in before:
            function.__code__ = changed[_key(code)]
        try:
            yield
        finally:
            for function, code in before:
                function.__code__ = code

    def _changed(self, module: ModuleType) -> dict[Any, CodeType]:
        file = str(module.__file__)
        source = changed = Path(file).read_text()
        for old, new in self.changes:
            if source.count(old) != 1 or old.count("\n") != new.count("\n"):
                raise NotPlanted(f"{self.module}: {old!r} occurs {source.count(old)} times")
            changed = changed.replace(old, new)
        was, now = (compile(text, file, "exec", dont_inherit=True) for text in (source, changed))
        return {_key(a): b for a, b in _pairs(was, now) if a.co_name != "<module>" and a != b}


def _pairs(was: CodeType, now: CodeType) -> Iterator[tuple[CodeType, CodeType]]:
    """The code objects of two versions of one source; what a changed function contains may be in one of them only."""
    yield was, now
    inner = [[c for c in code.co_consts if isinstance(c, CodeType)] for code in (was, now)]
    if len(inner[0]) == len(inner[1]):
        for one, other in zip(*inner):
            yield from _pairs(one, other)


def _key(code: CodeType) -> Any:
    """Tells the functions of all modules apart, lambdas of one line included."""
    return code.co_qualname, code.co_firstlineno, tuple(code.co_positions()), code.co_code


def _functions(file: str) -> list[FunctionType]:
    return [f for f in gc.get_objects() if type(f) is FunctionType and f.__code__.co_filename == file]


@dataclass(frozen=True)
class Replace:
    """`module.name`, or the entry `module.name[key]`, becomes `make(what it was)`."""

    module: str
    name: str
    make: Callable[[Any], Any]
    key: Any = None

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Replace it, while this lasts, in every module that has imported it."""
        was = getattr(sys.modules[self.module], self.name)
        if self.key is not None:
            entry = was[self.key]
            was[self.key] = self.make(entry)
            try:
                yield
            finally:
                was[self.key] = entry
            return
        new = self.make(was)
        if new == was:
            raise NotPlanted(f"{self.module}.{self.name} is the same")
        holders = [(space, name) for module in list(sys.modules.values()) if _is_product(module)
                   for space in (vars(module),) for name, value in list(space.items()) if value is was]
        for space, name in holders:
            space[name] = new
        try:
            yield
        finally:
            for space, name in holders:
                space[name] = was


def _is_product(module: Any) -> bool:
    return isinstance(module, ModuleType) and module.__name__.partition(".")[0] == "ptdebug"


def text(old: str, new: str) -> Callable[[str], str]:
    """For `Replace`: a text in which `old`, which occurs in it, is `new`."""

    def change(whole: str) -> str:
        if old not in whole:
            raise NotPlanted(f"{old!r} does not occur")
        return whole.replace(old, new)

    return change


Patch = Edit | Replace


@dataclass(frozen=True)
class Fault:
    """One planted bug, the program that shows it, and what the tools ought to say.

    `stages`: those that replay may name, the right one first. The line of the program that it should name has the
    comment "# here". `decision`: a regular expression for the decisions whose forcing turns wrong into right ("" where
    there is none). `shows`: how the program differs from eager (values, exception, fallback, signal, hang, or
    memory: in some way or other). `program`
    defines `f` and `calls()`, the arguments of its calls. `said`: of what must be named in words (a part of the message
    of an internal error).
    """

    name: str
    stages: tuple[str, ...]
    decision: str
    program: str
    patches: tuple[Patch, ...]
    shows: str = "values"
    said: str = ""
    threads: int = 1
    options: tuple[str, ...] = ()
    environment: dict[str, str] = field(default_factory=dict)


@contextmanager
def planted(fault: Fault) -> Iterator[None]:
    """The product with the fault, while it lasts: nothing is left of it, whatever is raised meanwhile."""
    for patch in fault.patches:
        importlib.import_module(patch.module)
    try:
        with ExitStack() as stack:
            for patch in fault.patches:
                stack.enter_context(patch.applied())
            _forget()
            yield
    finally:
        _forget()


def _forget() -> None:
    """What the product's functions have kept of earlier calls, they may give otherwise now."""
    for found in gc.get_objects():
        if type(found) is functools._lru_cache_wrapper and str(found.__module__).startswith("ptdebug."):
            found.cache_clear()


def matches(pattern: str, subject: str | None) -> bool:
    """Whether the whole subject is what the pattern says."""
    return re.fullmatch(pattern, subject or "") is not None
