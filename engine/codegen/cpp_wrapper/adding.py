"""Whether a graph gets a C++ wrapper."""
from __future__ import annotations

from dataclasses import replace

from ....artifacts.context import CompileContext
from ....artifacts.decision_kinds import CPP_WRAPPER_ASKED
from ...graphs.functional_graph import AtenGraph
from ...ir.ir import ExternCall, Group, Plan
from ...kernels import int8, int8_depthwise
from ...unsupported import NoCppWrapper
from ..cpp import CppSource
from .state import NativeSource
from .writer import NativeWriter

FOR_INT8 = "from Python, the call of an int8 layer takes as long as a small one computes"


def _on_integers(item: Group | ExternCall) -> bool:
    """Whether a step is an int8 layer."""
    own = (*int8.SUMS, int8.ROWS_SUM_IN_PLACE, int8_depthwise.OPERATOR)
    return isinstance(item, ExternCall) and (item.target in own or getattr(item.target, "namespace", "") == "onednn")


def _place(aten: AtenGraph, origins: tuple[str, ...]) -> str:
    """The program's line of the first of these nodes that has one."""
    for node in aten.module.graph.nodes:
        if node.name in origins and node.meta.get("stack"):
            location = node.meta["stack"][0]
            return f" ({location.file}:{location.line})"
    return ""


def add_wrapper(
    aten: AtenGraph, plan: Plan, source: CppSource, context: CompileContext
) -> tuple[CppSource, NativeSource | None]:
    """`source` with the wrapper of `plan` after its kernels, and that wrapper; None where Python's is to be used."""
    options, why = ("python", "cpp"), CPP_WRAPPER_ASKED
    if context.cpp_wrapper is None and any(_on_integers(item) for item in plan.items):
        why = FOR_INT8
    elif not context.cpp_wrapper and context.override("wrapper", "graph") != "cpp":
        context.decide("wrapper", "graph", options, "python", "the option cpp_wrapper is off")
        return source, None
    try:
        if not source.body:
            raise NoCppWrapper("the graph has no C++ kernels to put it beside")
        if any(isinstance(item, Group) and item.device.type != "cpu" for item in plan.items):
            raise NoCppWrapper("the graph has kernels of a GPU, too")
        wrapper = NativeWriter(aten, plan, source.entries, context.without_python).write()
    except (NoCppWrapper, NotImplementedError) as reason:
        place = _place(aten, reason.origins) if isinstance(reason, NoCppWrapper) else ""
        context.decide("python-wrapper", "graph", ("python",), "python", f"{reason}{place}")
        return source, None
    if context.decide("wrapper", "graph", options, "cpp", why) == "python":
        return source, None
    return replace(source, body=source.body + wrapper.lines), wrapper
