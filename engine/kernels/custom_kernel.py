"""A C++ function that one of ptdebug's custom operators calls: its library is built on first use."""
from __future__ import annotations

import ctypes
import hashlib
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from ...artifacts.records import CodeLine, Kernel
from ..toolchain.cpp_build import BuildFailed, BuiltLibrary, CannotBuild, build, said, vector_report

KERNELS: dict[str, OwnKernel] = {}
"""Those that were defined, by the name of their function."""


@dataclass
class OwnKernel:
    """The function `entry` of a C++ source, and the ctypes of its arguments."""

    source: str
    entry: str
    arguments: tuple[Any, ...]
    packaged: Path | None = None

    def __post_init__(self) -> None:
        KERNELS[self.entry] = self

    @property
    def digest(self) -> str:
        """Says which source it is."""
        return hashlib.sha256(self.source.encode()).hexdigest()[:16]

    def adopt(self, path: Path) -> None:
        """Use the library at `path`, which a package brought along, unless there is one already: no compiler runs."""
        if "function" not in self.__dict__:
            self.packaged = path
            assert self.function

    @cached_property
    def built(self) -> BuiltLibrary:
        """The library; raises BuildFailed or CannotBuild."""
        return build(self.source, [], reported=True)  # once on each machine: before anyone knows who asks

    @cached_property
    def function(self) -> Any:
        """What Python calls; raises as `built`."""
        found = ctypes.CDLL(str(self.packaged or self.built.path))[self.entry]
        found.argtypes = self.arguments
        return found

    @cached_property
    def available(self) -> bool:
        """Whether the kernel is built, or can be."""
        try:
            return bool(self.function)
        except (BuildFailed, CannotBuild):
            return False

    @property
    def address(self) -> int | None:
        """Its address in this process; None if it cannot be built."""
        return ctypes.cast(self.function, ctypes.c_void_p).value if self.available else None

    def record(self, name: str) -> Kernel:
        """The kernel as a recording shows it."""
        built = self.built
        report = vector_report(built.log)
        lines = tuple([CodeLine(line) for line in self.source.split("\n")])
        return Kernel(name, "cpp", lines, (self.entry,), tuple(built.command), said(built.log), built.seconds,
                      built.cached, str(built.path), outputs={"vectors": report} if report else {})
