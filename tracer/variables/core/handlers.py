"""The table of callables that the tracer models: builtins, library functions, classes.

`@handles(len)` registers `handler(tx, args, kwargs) -> Value` for calls of the real object `len`, however user code
reaches it. A callable that only computes a constant from constants needs no handler: `PURE` names it.
"""
from __future__ import annotations

import cmath
import math
import operator
import os.path
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ...runtime.skips import is_installed, is_own, is_program
from .base import Value

if TYPE_CHECKING:
    from .base import Translator

Handler = Callable[["Translator", Sequence[Value], Mapping[str, Value]], Value]

HANDLERS: dict[int, tuple[Any, Handler]] = {}
"""By id of the callable, which is kept alive beside its handler (some callables have no hash)."""


_OF_CLASSES: dict[tuple[type, str], Handler] = {}
"""By class and name: class methods, which are bound anew each time they are read (chain.from_iterable)."""


def handles(*functions: Any) -> Callable[[Handler], Handler]:
    """Register the handler for calls of `functions`."""

    def register(handler: Handler) -> Handler:
        for function in functions:
            HANDLERS[id(function)] = (function, handler)
            if isinstance(getattr(function, "__self__", None), type):
                _OF_CLASSES[function.__self__, function.__name__] = handler
        return handler

    return register


NAMED: dict[tuple[str, str], Handler] = {}
"""By module and name: functions of modules that must not be imported just to name them."""

MEANINGS: dict[str, Callable[[Any], Handler]] = {}
"""What functions of the room that uses the tracer may mean to it; the handler for one of them."""

_DECLARED: dict[tuple[Any, str], str] = {}


def declare(module: str, meanings: Mapping[str, str]) -> None:
    """Say what functions of a module mean, by name: the front door's own `compile`, `graph_break`, compiled modules."""
    _DECLARED.update({(module, name): meaning for name, meaning in meanings.items()})


def handler_of(function: Any) -> Handler | None:
    """The handler for calls of `function`, None when there is none."""
    entry = HANDLERS.get(id(function))
    if entry is not None:
        return entry[1]
    name = getattr(function, "__name__", None)
    if type(name) is not str:
        return None
    owner = getattr(function, "__self__", None)
    if isinstance(owner, type) and (owner, name) in _OF_CLASSES:
        return _OF_CLASSES[owner, name]
    module = getattr(function, "__module__", "")
    if type(module) is not str:
        return None
    meaning = _DECLARED.get((module, name))
    found = NAMED.get((module, name)) if meaning is None else MEANINGS[meaning](function)
    return found if found is not None and comes_from(function, module) else None


def comes_from(function: Any, module: str) -> bool:
    """Whether a function or class that claims to be of a library's module is: a user's file may have that name, and
    `functools.wraps` gives a user's function the names of another."""
    package = module.partition(".")[0]
    folder = os.path.dirname(getattr(sys.modules.get(package), "__file__", None) or "")
    if package not in _TRUSTED and not is_installed(folder + os.sep):
        return False
    code = getattr(function, "__code__", None)
    if code is not None and (code.co_filename.startswith(folder + os.sep) or is_own(code.co_filename)):
        return True  # or one of ptdebug's stubs
    if code is not None and is_program(code.co_filename):
        return False
    if code is None and not isinstance(function, type):
        return True
    return sys.modules[module].__dict__.get(function.__name__) is function  # decorated by the standard library


_TRUSTED = ("torch", "ptdebug")
"""Packages that are not the user's files, wherever they are installed."""


def _public(module: Any) -> list[Any]:
    return [f for name, f in vars(module).items() if callable(f) and not isinstance(f, type) and name[0] != "_"]


PURE: dict[int, Any] = {
    id(function): function
    for function in (
        *_public(math), *_public(cmath), *_public(operator), os.path.join, os.path.basename, os.path.dirname,
        os.path.splitext, os.path.isabs, os.fspath, abs, ascii, bin, chr, format, hash, hex, oct, ord, pow, repr, round,
        complex, bytes, bytearray.fromhex, int.from_bytes, str.maketrans, float.fromhex, bytes.fromhex,
    )
}  # fmt: skip
"""Callables without side effects whose result depends on their (constant) arguments only."""


_PURE_MODULES = ("transformers.utils.import_utils", "packaging.version", "importlib.metadata", "importlib.util")
_PURE_NAMES = frozenset((
    "find_spec", "version", "parse", "is_torch_greater_or_equal", "is_torch_less_or_equal", "get_torch_version",
))  # fmt: skip
"""Modules (and names in them, besides those with "available") whose functions check what is installed: taken as fixed
while the program runs."""


def is_pure(function: Any) -> bool:
    """Whether `function` may be called for real when all its arguments are constants."""
    if id(function) in PURE:
        return True
    name = getattr(function, "__name__", "")
    return getattr(function, "__module__", None) in _PURE_MODULES and ("available" in name or name in _PURE_NAMES)


def pure(*functions: Any) -> None:
    """Add callables to `PURE`."""
    for function in functions:
        PURE[id(function)] = function
