"""The library of the guards' brief form, compiled in the background by the engine's compiler when first wanted."""
from __future__ import annotations

from ..engine.build import BuildFailed, Building, CompilerMissing
from ..tracer.guards.versions import FUNCTIONS, SOURCE, Versions, possible, tried


class GuardLibrary:
    """Called for the library; None while it is not there, and for good where it cannot be had (`failure` says why)."""

    def __init__(self) -> None:
        self.failure = "" if possible() else "the dicts of this Python have no versions"
        self._building: Building | None = None
        self._versions: Versions | None = None

    def __call__(self) -> Versions | None:
        if self._versions is None and not self.failure:
            if self._building is None:
                self._building = Building(SOURCE, FUNCTIONS)
            elif self._building.finished():
                self._load(self._building)
        return self._versions

    def _load(self, building: Building) -> None:
        try:
            self._versions = tried(building.wait().functions)
        except (CompilerMissing, BuildFailed, OSError) as error:
            self.failure = str(error)
        else:
            self.failure = "" if self._versions is not None else "it does not see all changes of a dict"
