"""How each compilation of this process did while the program ran: the tracer's counters, and those of CUDA graphs."""
from __future__ import annotations

import sys
from collections.abc import Mapping

from ..artifacts.records import Runtime
from ..dependencies import msgspec

_PACKAGE = __package__.rpartition(".")[0]


def run_times() -> Mapping[str, Runtime]:
    """By compile id; empty if nothing was compiled. Loads nothing."""
    dispatch = sys.modules.get(f"{_PACKAGE}.tracer.frames.dispatch")
    found: dict[str, Runtime] = dispatch.runtimes() if dispatch is not None else {}
    statistics = sys.modules.get(f"{_PACKAGE}.engine.runtime.cuda_graphs.statistics")
    for compile_id, graphs in (statistics.records() if statistics is not None else {}).items():
        if compile_id in found:
            found[compile_id] = msgspec.structs.replace(found[compile_id], cuda_graphs=graphs)
    return found
