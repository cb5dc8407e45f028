"""The libraries that ptdebug brings along, loaded apart from the program's modules.

A program knows nothing of them: a file of its own may have the name of one, or it may look whether one is there. So
each comes from where packages are installed, whatever stands before that on the path, and is in `sys.modules` only
while it is loaded. Where the program has loaded the same library, that is used.

    from .dependencies import msgspec
"""
from __future__ import annotations

import sys
import threading
from importlib import import_module
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import module_from_spec
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import msgspec as msgspec
    import zstandard as zstandard

_MODULES = {"msgspec": "msgspec", "zstandard": "zstandard", "safetensors_torch": "safetensors.torch"}
_lock = threading.RLock()


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    with _lock:
        if name not in globals():
            globals()[name] = _load(_MODULES[name])
    return globals()[name]


def _load(name: str) -> ModuleType:
    package = name.partition(".")[0]
    spec = _find(package)
    there = sys.modules.get(package)
    if there is not None and getattr(there.__spec__, "origin", None) == spec.origin:
        return import_module(name)
    theirs = _take_out(package)
    try:
        module = sys.modules[package] = module_from_spec(spec)
        assert spec.loader is not None
        spec.loader.exec_module(module)
        return import_module(name)
    finally:
        _take_out(package)
        sys.modules.update(theirs)


def _find(package: str) -> ModuleSpec:
    """Where the package is installed. Raises ModuleNotFoundError."""
    spec = PathFinder.find_spec(package, sorted(sys.path, key=_is_the_programs))
    if spec is None or spec.loader is None:
        raise ModuleNotFoundError(f"No module named {package!r}", name=package)
    return spec


def _is_the_programs(folder: str) -> bool:
    return not folder.rstrip("/\\").endswith(("site-packages", "dist-packages"))


def _take_out(package: str) -> dict[str, ModuleType]:
    """Take the package's modules out of `sys.modules`."""
    names = [name for name in list(sys.modules) if name.partition(".")[0] == package]
    return {name: sys.modules.pop(name) for name in names}
