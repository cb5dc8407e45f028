"""The library for the guards' fast path: from the engine's cache, or compiled in the background on first use."""
from __future__ import annotations

import contextlib

from ..engine.toolchain.cpp_build import Building, BuiltLibrary, cached
from ..tracer.guards.versions import FUNCTIONS, SOURCE, Versions, possible, tried


class GuardLibrary:
    """Call it to get the library; None until it is built, or forever if it cannot be (`failure` says why)."""

    def __init__(self) -> None:
        self.failure = "" if possible() else "the dicts of this Python have no versions"
        self._building: Building | None = None
        self._versions: Versions | None = None

    def __call__(self) -> Versions | None:
        if self._versions is None and not self.failure:
            try:
                self._advance()
            except Exception as error:  # guards work without it, and the program must not see the error
                self.failure = f"{type(error).__name__}: {error}"
        return self._versions

    def wait(self) -> Versions | None:
        """The same, when the compiler has ended."""
        if self() is None and self._building is not None:
            with contextlib.suppress(Exception):  # told as the failure, by the call
                self._building.wait()
        return self()

    def _advance(self) -> None:
        if self._building is None:
            library = cached(SOURCE, FUNCTIONS)
            if library is None:
                self._building = Building(SOURCE, FUNCTIONS)
        else:
            library = self._building.wait() if self._building.finished() else None
        if library is not None:
            self._try(library)

    def _try(self, library: BuiltLibrary) -> None:
        self._versions = tried(library.functions)
        if self._versions is None:
            self.failure = "it does not see all changes of a dict"
