"""Single steps of a graph as Python functions: what a C++ wrapper lets Python do."""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import sympy

from ...artifacts.records import CodeLine
from ..graphs.functional_graph import AtenGraph, ViewOfInput
from ..graphs.wrapper_source import WrapperSource
from ..ir.ir import ExternCall, KernelSignature, Plan
from ..scheduler.steps import views_in
from .wrapper import WrapperWriter


def tensors_of(call: ExternCall) -> tuple[str, ...]:
    """The buffers that a library call is given, in the order of its step's parameters."""
    return tuple(dict.fromkeys(view.buffer for view in views_in((call.args, dict(call.kwargs)))))


def sizes_of(call: ExternCall, plan: Plan) -> tuple[sympy.Symbol, ...]:
    """The sizes that it is given, after those."""
    buffers = plan.program.buffers
    layouts = [(buffers[n].size, buffers[n].stride) for n in (*call.outputs, *tensors_of(call)) if n is not None]
    found = {symbol for value in _numbers((call.args, dict(call.kwargs), layouts)) for symbol in value.free_symbols}
    return tuple(sorted(found, key=str))


def _numbers(value: Any) -> list[sympy.Basic]:
    if isinstance(value, sympy.Basic):
        return [value]
    if hasattr(value, "buffer"):  # a View
        return _numbers((value.size, value.stride, value.offset))
    if isinstance(value, Mapping):
        value = tuple(value.values())
    return [n for item in value for n in _numbers(item)] if isinstance(value, (tuple, list)) else []


def steps(
    aten: AtenGraph, plan: Plan, signatures: Mapping[str, KernelSignature], calls: Sequence[tuple[ExternCall, bool]]
) -> WrapperSource:
    """Source whose `call` returns a function for each of these library calls: from the tensors and sizes that it is
    given to a tuple of results; what it raises is marked where inputs may be written by then. The last one makes the
    views of inputs that the graph returns, if there are any."""
    writer = WrapperWriter(aten, plan, {}, signatures)
    lines: list[CodeLine] = []
    for number, (call, written) in enumerate(calls):
        given = tensors_of(call)
        parameters = ", ".join([*given, *map(str, sizes_of(call, plan))])
        writer.lines, writer.allocated = [], set(given)
        writer.extern(call)
        if written:
            writer.mark_errors(0)
        results = ", ".join(name for name in call.outputs if name is not None)
        writer.line(f"return ({results}{',' if results else ''})")
        lines += [CodeLine(f"def step_{number}({parameters}):"), *writer.lines, CodeLine("")]
    names = "".join(f"step_{number}, " for number in range(len(calls)))
    if any(isinstance(output, ViewOfInput) for output in aten.outputs):
        writer.lines = []
        writer.views()
        lines += writer.lines
        names += "views, "
    lines += [CodeLine("def call():"), CodeLine(f"    return ({names})")]
    return WrapperSource(tuple(lines), writer.names, writer.operators)
