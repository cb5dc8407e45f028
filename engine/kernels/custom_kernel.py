"""A C++ function that one of ptdebug's custom operators calls: its library is built on first use."""
from __future__ import annotations

import ctypes
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from ...artifacts.records import CodeLine, Kernel
from ..toolchain.cpp_build import BuildFailed, BuiltLibrary, CannotBuild, build, said, vector_report


@dataclass
class OwnKernel:
    """The function `entry` of a C++ source, and the ctypes of its arguments."""

    source: str
    entry: str
    arguments: tuple[Any, ...]

    @cached_property
    def built(self) -> BuiltLibrary:
        """The library; raises BuildFailed or CannotBuild."""
        return build(self.source, [])

    @cached_property
    def function(self) -> Any:
        """What Python calls; raises as `built`."""
        found = ctypes.CDLL(str(self.built.path))[self.entry]
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
