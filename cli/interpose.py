"""Acts right after the program imports a module, without importing it first.

`after_import({"torch": install})` calls `install(torch)` when the program's own import of torch has run. The
import system is restored once the last of the modules has been imported.
"""
from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType

from ..artifacts.garbage import fewer_collections

Action = Callable[[ModuleType], None]


def after_import(actions: Mapping[str, Action]) -> None:
    """Call `actions[name](module)` once each module has been imported; at once where it already is.

    Actions must not raise: an exception would break the program's import.
    """
    waiting = {}
    for name, action in actions.items():
        module = sys.modules.get(name)
        if module is None:
            waiting[name] = action
        else:
            action(module)
    if waiting:
        sys.meta_path.insert(0, _Watcher(waiting))


class _Watcher(MetaPathFinder):
    """Lets the other finders find the module, and wraps its loader in an `_ActingLoader`."""

    def __init__(self, waiting: dict[str, Action]) -> None:
        self._waiting = waiting

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        action = self._waiting.pop(fullname, None)
        if action is None:
            return None
        if not self._waiting and self in sys.meta_path:
            sys.meta_path.remove(self)
        spec = find_spec(fullname)  # this finder no longer waits for the name
        if spec is not None and spec.loader is not None:
            spec.loader = _ActingLoader(spec.loader, action)
        return spec


class _ActingLoader(Loader):
    """Loads by another loader, whose module never sees this one, and then acts."""

    def __init__(self, loader: Loader, action: Action) -> None:
        self._loader = loader
        self._action = action

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        module.__loader__ = self._loader
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        with fewer_collections():
            self._loader.exec_module(module)
        self._action(module)
