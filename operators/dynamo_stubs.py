"""torch's fake tensors and guards without loading TorchDynamo.

`FakeTensorMode`, `ShapeEnv` and the C++ guard tree read a few settings and classes from `torch._dynamo`, and so import
all of it: 1.7 CPU seconds that a program compiled by ptdebug has no other use for. While `without_dynamo()` is active,
small stubs answer instead. A request for anything else (from another thread that uses the real package, or from a path
of torch not foreseen here) removes the stubs: the real package is imported and answers.

Where the real package is loaded already, no stubs are used.
"""
from __future__ import annotations

import contextlib
import enum
import functools
import importlib
import importlib.abc
import importlib.machinery
import logging
import os
import sys
import threading
import types
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch._guards import Source

from ..artifacts.fork_lock import ForkLock

_PACKAGE = "torch._dynamo"
_lock = ForkLock(threading.RLock)


class GuardManagerType(enum.Enum):
    """C++ compares with this to recognize a guard manager that iterates over a dict in order; by identity, at the first
    use."""

    GUARD_MANAGER = 1
    DICT_GUARD_MANAGER = 2


def guard_manager_type() -> Any:
    """The enum that C++ reads from `torch._dynamo.guards` when it builds its first guard: the stub, or the real one if
    that was loaded first. Call it inside `without_dynamo()`."""
    return importlib.import_module(f"{_PACKAGE}.guards").GuardManagerType


class TorchDynamoException(RuntimeError):
    """The base class of the exception that torch's shape guard validator raises."""


@dataclass(frozen=True, eq=False)
class NamedSource(Source):
    """A source as torch's fake tensors see it: they read its kind and its name."""

    base: Any = None
    detail: Any = None
    idx: Any = None

    @property
    def name(self) -> str:
        return ".".join(str(getattr(p, "name", p)) for p in (self.base, self.detail, self.idx) if p is not None)


_SOURCE_KINDS = (
    "AttrSource", "CallMethodItemSource", "ConstantSource", "EphemeralSource", "FloatTensorSource", "LocalSource",
    "RandomValueSource", "TensorPropertySource",
)


def _nothing(*args: object, **kwargs: object) -> None:
    return None


@contextlib.contextmanager
def _untimed(*args: object, **kwargs: object) -> Iterator[None]:
    yield


def disable(
    function: Callable[..., Any] | None = None, *options: Any, **named_options: Any
) -> Callable[..., Any]:
    """What `torch._disable_dynamo` gets and keeps: the function itself while TorchDynamo is not loaded, and the result
    of the real `torch._dynamo.disable` from then on. Without a function, the corresponding decorator."""
    if function is None:
        return functools.partial(disable, **named_options)
    wrapped = function
    real: list[Callable[..., Any]] = []

    def run(*args: Any, **kwargs: Any) -> Any:
        if not real:
            dynamo = sys.modules.get(_PACKAGE)
            if dynamo is None or dynamo is _standing.get(_PACKAGE):
                return wrapped(*args, **kwargs)
            real.append(dynamo.disable(wrapped, *options, **named_options))
        return real[0](*args, **kwargs)

    run.__dict__["_torchdynamo_disable"] = True  # how TorchDynamo recognizes such a function
    return run


_SETTINGS: dict[str, dict[str, Any]] = {
    "": {"disable": disable},
    # Guards always check tensors: stock skips them while the dict that holds the tensor is unchanged, and so
    # misses `parameter.data = ...`.
    "config": {
        "fake_tensor_cache_enabled": True,
        "fake_tensor_cache_crosscheck_enabled": False,
        "_custom_ops_profile": None,
        "skip_tensor_guards_with_matching_dict_tags": False,
        "max_saved_pointers_for_recursive_dict_tags_check": 256,
        "inline_inbuilt_nn_modules": True,
        "log_compilation_metrics": False,
    },
    "guards": {"GuardManagerType": GuardManagerType, "uninteresting_files": set},
    "exc": {"TorchDynamoException": TorchDynamoException},
    "source": {kind: type(kind, (NamedSource,), {}) for kind in _SOURCE_KINDS},
    "utils": {"dynamo_timed": _untimed, "get_current_node": _nothing},
}


class _StandIn(types.ModuleType):
    """A stub of a module of `torch._dynamo` with the few names of `_SETTINGS`; any other name loads the real module."""

    def __init__(self, name: str, settings: dict[str, Any]) -> None:
        super().__init__(name)
        self.__dict__.update(settings)
        if name == _PACKAGE:
            self.__dict__["__path__"] = []  # its other submodules are found by `_Finder`

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # read by the import system
            raise AttributeError(name)
        _step_aside()
        return getattr(importlib.import_module(self.__name__), name)


class _Known(importlib.abc.Loader):
    """Returns a module that was created while its import was in progress; its code is not run again."""

    def __init__(self, module: types.ModuleType) -> None:
        self.module = module
        self.spec = module.__spec__

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        return self.module

    def exec_module(self, module: types.ModuleType) -> None:
        module.__spec__ = self.spec


class _Finder(importlib.abc.MetaPathFinder):
    """Keeps torch._dynamo complete when it is really imported while stubs exist, or afterwards."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: types.ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if not fullname.startswith(_PACKAGE + "."):
            return None
        if _PACKAGE in _standing:
            _step_aside()
            path = importlib.import_module(_PACKAGE).__path__
        if fullname in sys.modules:
            module = sys.modules[fullname]
            # The import system prefers the spec of a module that is loaded by now to the one returned here.
            module.__spec__ = importlib.machinery.ModuleSpec(fullname, _Known(module))
            return module.__spec__
        others = (finder.find_spec(fullname, path, target) for finder in sys.meta_path if finder is not self)
        spec = next((spec for spec in others if spec is not None), None)
        return _with_our_enum(spec) if fullname == f"{_PACKAGE}.guards" else spec


def _with_our_enum(spec: importlib.machinery.ModuleSpec | None) -> importlib.machinery.ModuleSpec | None:
    """Make torch's guards.py use the enum that C++ got from the stub (C++ keeps the first one it sees)."""
    if spec is not None and spec.loader is not None:
        run = spec.loader.exec_module

        def exec_module(module: types.ModuleType) -> None:
            run(module)
            module.__dict__["GuardManagerType"] = GuardManagerType

        spec.loader.exec_module = exec_module  # type: ignore[method-assign]
    return spec


_finder = _Finder()
_standing: dict[str, types.ModuleType] = {}
_users: list[int] = []


def _step_aside() -> None:
    """Remove the stubs, for good or until the next `without_dynamo`."""
    with _lock.lock:
        for name, module in _standing.items():
            if sys.modules.get(name) is module:
                del sys.modules[name]
        if torch.__dict__.get("_dynamo") is _standing.get(_PACKAGE) and _standing:
            del torch.__dict__["_dynamo"]
        _standing.clear()


@contextlib.contextmanager
def without_dynamo() -> Iterator[None]:
    """While active, torch's own look-ups in torch._dynamo do not import it. May be nested, and used by several threads
    at once.

    Graphs are captured and compiled inside this block; the user's code does not run in it.
    """
    with _lock.lock:
        _users.append(threading.get_ident())
        if len(_users) == 1 and _PACKAGE not in sys.modules:
            _stand_in()
    try:
        yield
    finally:
        with _lock.lock:
            _users.remove(threading.get_ident())
            if not _users:
                _step_aside()


@contextlib.contextmanager
def tensors_always_checked() -> Iterator[None]:
    """Guard trees built in this block check each tensor at each call (see `_SETTINGS["config"]`), even where the real
    TorchDynamo with its own setting is loaded."""
    config: Any = importlib.import_module(f"{_PACKAGE}.config")
    before = config.skip_tensor_guards_with_matching_dict_tags
    config.skip_tensor_guards_with_matching_dict_tags = False
    try:
        yield
    finally:
        config.skip_tensor_guards_with_matching_dict_tags = before


def _stand_in() -> None:
    trace_log = logging.getLogger("torch.__trace")
    for handler in list(trace_log.handlers):
        # Without TORCH_TRACE this handler removes itself at its first message, but that imports torch._inductor,
        # and with it the whole of torch._dynamo.
        if getattr(handler, "root_dir", "") is None:
            trace_log.removeHandler(handler)
    if _finder not in sys.meta_path:
        sys.meta_path.insert(0, _finder)
    for name, settings in _SETTINGS.items():
        full = f"{_PACKAGE}.{name}" if name else _PACKAGE
        _standing[full] = sys.modules[full] = _StandIn(full, settings)
        if name:
            _standing[_PACKAGE].__dict__[name] = _standing[full]


def _after_fork() -> None:
    _users[:] = [user for user in _users if user == threading.get_ident()]
    if not _users:
        _step_aside()


os.register_at_fork(after_in_child=_after_fork)
