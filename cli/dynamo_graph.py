"""The Dynamo backend "ptdebug": PyTorch's own capture, ptdebug's engine.

Dynamo's graph becomes a `CapturedGraph`: its tensor attributes become inputs, and its fake values, stacks and module
paths go where the engine's stages expect them. Only what comes after capture is recorded.
"""
from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Any

import torch
from torch._guards import CompileContext as StockContext

from ..artifacts.context import CompileId
from ..artifacts.fx_graphs import graph_record
from ..artifacts.records import Frame, Location
from ..tracer.fx.backend_call import CapturedGraph
from . import session
from .wiring import engine_backend

_FRAME = re.compile(r'^\s*File "(.+)", line (\d+), in (.+)$', re.MULTILINE)
WHY = "PyTorch's own capture (backend=\"ptdebug\") does not provide this"


def compile_dynamo_graph(module: torch.fx.GraphModule, example_inputs: Sequence[Any]) -> Callable[..., Any]:
    """Compile a graph as Dynamo hands it to a backend: a callable of the placeholders' values.

    Attributes of the module that are tensors are bound as they are now; mutations of them are kept.
    """
    captured, constants = as_captured(module, example_inputs)
    stock_id = StockContext.current_compile_id()
    compile_id = CompileId(*(int(part) for part in str(stock_id).split("/")[-2:])) if stock_id else CompileId(0, 0)
    context = session.current().context(compile_id)
    where = _place(captured)
    if context.recording:
        context.recorder.begin(str(compile_id), where.function, where.file, where.line)
        context.recorder.source_file(where.file)
        context.record("frame", lambda: Frame(where.function, where.file, where.line))
        context.record("capture", lambda: graph_record(captured.module.graph, "capture", "bytecode"))
        for stage in ("bytecode", "output_bytecode", "breaks", "guards"):
            context.absent(stage, WHY)
    with context.timed("total"):
        compiled = engine_backend(captured, context)
    if context.recording:
        status = "eager" if context.fallback else "compiled"
        context.recorder.end(str(compile_id), status, context.fallback, context.seconds)
    return (lambda *args: compiled(*args, *constants)) if constants else compiled


def as_captured(
    module: torch.fx.GraphModule, example_inputs: Sequence[Any]
) -> tuple[CapturedGraph, list[torch.Tensor]]:
    """The captured graph, and the tensors for its further inputs (former attributes)."""
    graph = torch.fx.Graph()
    copies: dict[torch.fx.Node, torch.fx.Node] = {}
    examples = iter(example_inputs)
    attributes = [n for n in module.graph.nodes if n.op == "get_attr"]
    held = [n for n in attributes if isinstance(attrgetter(n.target)(module), torch.Tensor)]
    inputs: list[Any] = []
    names: list[str] = []
    for node in (n for n in module.graph.nodes if n.op == "placeholder"):
        example = next(examples)
        copies[node] = graph.node_copy(node, copies.__getitem__)
        inputs.append(node.meta.get("example_value", example))
        names.append(node.meta["grapharg"].source.name if "grapharg" in node.meta else node.name)
        copies[node].meta = _meta(node, inputs[-1])
    fake_mode = next((v.fake_mode for v in inputs if isinstance(v, torch._subclasses.FakeTensor)), None)
    constants = [attrgetter(node.target)(module) for node in held]
    for node, tensor in zip(held, constants):
        copies[node] = graph.placeholder(node.name)
        inputs.append(fake_mode.from_tensor(tensor) if fake_mode is not None else tensor)
        names.append(node.target)
        copies[node].meta = _meta(node, inputs[-1])
    for node in module.graph.nodes:
        if node not in copies:
            copies[node] = graph.node_copy(node, copies.__getitem__)
            copies[node].meta = _meta(node, node.meta.get("example_value"))
    _tell_inner(module)
    lifted = torch.fx.GraphModule(module, graph)
    modes = torch.is_grad_enabled(), torch.is_inference_mode_enabled()
    return CapturedGraph(lifted, tuple(inputs), tuple(names), *modes), constants


def _tell_inner(module: torch.fx.GraphModule) -> None:
    """The same metadata for the subgraphs of higher-order operators (`torch.cond`)."""
    for node in module.graph.find_nodes(op="get_attr"):
        inner = attrgetter(node.target)(module)
        if isinstance(inner, torch.fx.GraphModule):
            for own in inner.graph.nodes:
                own.meta.update(_meta(own, own.meta.get("example_value")))
            _tell_inner(inner)


def _meta(node: torch.fx.Node, value: Any) -> dict[str, Any]:
    """The metadata that the stages expect: `val`, `stack` (innermost last), `module`."""
    frames = _FRAME.findall(node.meta.get("stack_trace") or "")
    modules = list((node.meta.get("nn_module_stack") or {}).values())
    return {"val": value, "stack": tuple(Location(file, int(line), function) for file, line, function in frames),
            "module": str(modules[-1][0]) if modules else ""}


def _place(captured: CapturedGraph) -> Location:
    for node in captured.module.graph.nodes:
        if node.meta.get("stack"):
            return node.meta["stack"][0]
    return Location("?", 0, "?")
