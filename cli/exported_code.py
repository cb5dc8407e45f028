"""The machine code of a package, taken out of its entry points."""
from __future__ import annotations

from collections.abc import Sequence

from ..dependencies import msgspec
from ..engine.graph_cache.flow import with_halves
from ..engine.graph_cache.half import Half
from ..engine.kernels.custom_kernel import KERNELS
from ..engine.package.entry import Entry
from ..engine.runtime.cuda_kernels import KernelCode
from ..engine.toolchain.cpp_build import entry_of
from ..engine.unsupported import TritonUnsupported
from .errors import ExportError


class CodeFiles:
    """The machine code of a package, moved out of its entry points: see `Package`."""

    def __init__(self, capabilities: Sequence[int]) -> None:
        self.capabilities = capabilities
        self.kernels: dict[str, tuple[bytes, str]] = {}
        self.own: dict[str, tuple[bytes, str]] = {}
        self.binaries: dict[str, bytes] = {}

    def moved(self, entry: Entry) -> Entry:
        """The entry without it, and without sources. Raises ExportError."""
        for code, half in entry.named_halves():
            self.own |= _own_kernels(half)
            if half.source:
                built = entry_of(half.source)
                assert built is not None
                self.kernels[code] = built[0], half.source
        flow = entry.flow and with_halves(entry.flow, self._without)
        return msgspec.structs.replace(entry, half=self._without(entry.half), flow=flow)

    def _without(self, half: Half) -> Half:
        code: tuple[KernelCode, ...] = ()
        if half.triton:
            from ..engine.graph_cache.machine_code import machine_code_of  # which loads Triton's code generation

            try:
                code, binaries = machine_code_of(half.triton, self.capabilities)
            except TritonUnsupported as reason:
                raise ExportError(f"a kernel cannot be compiled for all addresses and sizes: {reason}") from None
            self.binaries |= binaries
        return msgspec.structs.replace(half, source="", triton=(), code=code)


def _own_kernels(half: Half) -> dict[str, tuple[bytes, str]]:
    """The kernels of ptdebug that a wrapper calls, by function: machine code, and digest of the source."""
    references = [*half.names.values(), *(half.functions.names.values() if half.functions is not None else ())]
    called = {reference.name.split(".")[1] for reference in references
              if reference.kind == "operator" and reference.name.startswith("ptdebug.")}
    functions = half.native.functions if half.native is not None else ()
    return {entry: (kernel.built.path.read_bytes(), kernel.digest) for entry, kernel in KERNELS.items()
            if entry.removeprefix("ptdebug_") in called or entry in functions}
