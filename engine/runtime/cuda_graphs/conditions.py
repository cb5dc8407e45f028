"""Which compiled graphs can be captured: whatever a replay would not repeat, or read anew, is a reason against it."""
from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import torch

from ....artifacts.context import CompileContext
from ...graphs.functional_graph import AtenGraph, FromGraph, ViewOfInput
from ...ir.ir import ExternCall, Foreach, Group, Plan, View
from .facts import GraphFacts

KIND, CAPTURE, LAUNCH = "cudagraphs", "capture", "launch"
_NAMESPACES = ("aten", "prims", "ptdebug", "quantized_decomposed")
_UNSAFE = tuple(getattr(torch.Tag, name) for name in ("data_dependent_output", "cudagraph_unsafe")
                if hasattr(torch.Tag, name))
_INDEXED = (torch.ops.aten.index, torch.ops.aten.index_put, torch.ops.aten.index_put_)
_INPUT = re.compile(r"arg(\d+)")
NO_GPU = "nothing of it runs on a GPU"


def device_of(plan: Plan) -> torch.device | None:
    """The GPU that a graph runs on; None for one that runs on none."""
    devices = [buffer.device for buffer in plan.program.buffers.values() if buffer.device.type == "cuda"]
    return devices[0] if devices else None


def why_not(aten: AtenGraph, plan: Plan) -> str:
    """Why a graph cannot be captured; "" where nothing is known against it."""
    return next(_reasons(aten, plan), "")


def _reasons(aten: AtenGraph, plan: Plan) -> Iterator[str]:
    if device_of(plan) is None:
        yield NO_GPU
    devices = {str(buffer.device) for buffer in plan.program.buffers.values() if buffer.device.type != "cpu"}
    if len(devices) > 1:
        yield f"it runs on several devices: {', '.join(sorted(devices))}"
    if not plan.items:
        yield "it launches nothing"
    for item in plan.items:
        yield from _of_kernel(item, plan) if isinstance(item, Group) else _of_extern(item, plan)
    numbers = {plan.program.inputs[position] for position in _numbers(plan)}
    for name, buffer in plan.program.buffers.items():
        if buffer.device.type == "cpu" and name not in numbers:
            yield f"{name} is in memory of the CPU, which a replay would not read again"
    if any(isinstance(output, FromGraph) and output.lazily for output in aten.outputs):
        yield "a result is lazily conjugated or negated"
    yield from _around_inputs(aten)


def _around_inputs(aten: AtenGraph) -> Iterator[str]:
    """A capture has copies of its inputs' elements, and nothing of what lies between and behind them."""
    inputs = {}
    for node in aten.module.graph.nodes:
        value = node.meta.get("val")
        if not isinstance(value, torch.Tensor) or value.layout is not torch.strided:
            continue
        storage = value.untyped_storage()._cdata
        if node.op == "placeholder":
            inputs[storage] = node
        elif node.target is torch.ops.aten.as_strided.default and storage in inputs:
            if not _lies_within(value, inputs[storage].meta["val"]):
                yield f"as_strided may read memory around the elements of {inputs[storage]}"


def _lies_within(window: torch.Tensor, base: torch.Tensor) -> bool:
    """Whether all that is read of `base` are elements of it, as far as sizes tell."""
    if any(type(n) is not int for t in (window, base) for n in (*t.shape, *t.stride(), t.storage_offset())):
        return False
    last = window.storage_offset() + sum([(n - 1) * s for n, s in zip(window.shape, window.stride())])
    return window.numel() == 0 or (base.is_contiguous() and base.storage_offset() == 0 and last < base.numel())


def _of_kernel(item: Group, plan: Plan) -> Iterator[str]:
    if item.device.type != "cuda":
        yield f"{item.kernel} runs on the CPU"
    elif isinstance(item, Foreach):
        names = {name for body in item.bodies for name in body.reads}
        if any(plan.program.buffers[name].device.type == "cpu" for name in names if name in plan.program.buffers):
            yield f"{item.kernel} reads numbers from the CPU"


def _of_extern(item: ExternCall, plan: Plan) -> Iterator[str]:
    name = str(item.target)
    masks = item.target.overloadpacket in _INDEXED and any(
        plan.program.buffers[view.buffer].dtype in (torch.bool, torch.uint8) for view in _views(item.args[1:2]))
    if item.binds or masks or any(tag in item.target.tags for tag in _UNSAFE):
        yield f"{name} makes sizes or numbers that depend on data, which the CPU waits for"
    if any(isinstance(value, torch.Generator) for value in (*item.args, *item.kwargs.values())):
        yield f"{name} reads a user-defined random generator"


def _numbers(plan: Plan) -> tuple[int, ...]:
    """The positions of the inputs that are one number each in memory of the CPU, and that only kernels read."""
    program = plan.program
    elsewhere = {view.buffer for view in _views(program.outputs)} | {name for _, name in program.copies}
    for item in plan.items:
        if isinstance(item, ExternCall):
            elsewhere |= {view.buffer for view in _views((item.args, item.kwargs))} | set(item.mutates)
        else:
            elsewhere |= {name for body in item.bodies for name in body.writes}
    inputs = [(p, program.buffers[name]) for p, name in enumerate(program.inputs) if name in program.buffers]
    return tuple(p for p, buffer in inputs
                 if buffer.device.type == "cpu" and buffer.size == () and buffer.name not in elsewhere)


def _views(value: Any) -> Iterator[View]:
    """The windows on buffers in a tree of arguments."""
    if isinstance(value, View):
        yield value
    elif isinstance(value, (tuple, list)):
        for each in value:
            yield from _views(each)
    elif isinstance(value, Mapping):
        yield from _views(tuple(value.values()))


def facts_of(aten: AtenGraph, plan: Plan) -> GraphFacts:
    """What a capture must know."""
    program = plan.program
    device = device_of(plan)
    assert device is not None
    index = device.index if device.index is not None else torch.cuda.current_device()
    written = tuple(sorted(set(aten.mutations.values())))
    first_tangent = len(program.inputs) if aten.first_tangent is None else aten.first_tangent
    tensors = tuple(p for p, value in enumerate(program.inputs) if value in program.buffers)
    return GraphFacts(
        index, program.inputs, tensors,
        tuple((position, kind, dimension) for position, kind, dimension in program.symbols.values()),
        written, (*written, *aten.further),
        tuple(p for p in tensors if aten.is_backward and p < first_tangent and not _INPUT.fullmatch(program.inputs[p])),
        tuple(p for p in tensors if p >= first_tangent),
        tuple(k for k, output in enumerate(aten.outputs) if isinstance(output, FromGraph) and output.saved),
        aten.is_backward, _numbers(plan),
        tuple(k for k, output in enumerate(aten.outputs) if isinstance(output, ViewOfInput)),
    )


def chosen(aten: AtenGraph, plan: Plan, context: CompileContext) -> GraphFacts | None:
    """The decision whether a graph is captured: what a capture must know, or None where its kernels are launched."""
    if not context.cuda_graphs and (device_of(plan) is None or not context.asked):
        return None
    against = why_not(aten, plan)
    asked = "the mode or an option asks for CUDA graphs" if context.cuda_graphs else "no mode or option asks for them"
    if against:
        wanted = context.override(KIND, "graph")
        if wanted == CAPTURE:
            context.refuse(KIND, "graph", wanted, LAUNCH, against)
        else:
            context.decide(KIND, "graph", (LAUNCH,), LAUNCH, against)
        return None
    doubtful = _custom(plan)
    why = f"{asked}; {doubtful}" if doubtful else asked
    default = CAPTURE if context.cuda_graphs and not doubtful else LAUNCH
    option = context.decide(KIND, "graph", (CAPTURE, LAUNCH), default, why)
    return facts_of(aten, plan) if option == CAPTURE else None


def _custom(plan: Plan) -> str:
    """Why a graph is not captured unless it is forced: a replay would leave out what an operator does on the CPU."""
    names = [str(item.target) for item in plan.items if isinstance(item, ExternCall)]
    custom = next((name for name in names if name.partition(".")[0] not in _NAMESPACES), "")
    return custom and f"{custom} is a custom operator: what it does on the CPU would not be repeated"
