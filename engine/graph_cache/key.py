"""The cache key of a compilation: a hash of everything that its result depends on.

The graph: each node with its target, its arguments, and the metadata of its result. The inputs: layout, gradients,
which of them alias. Then dynamic sizes, the settings of torch, this machine, and ptdebug's own sources (`state.py`).

Left out on purpose are the user's source lines that nodes come from: they appear in comments of generated code only. A
recording shows them at every stage: `recorded_key_of` includes them.
"""
from __future__ import annotations

import hashlib
import os
from typing import Any

import torch
import torch.fx
from torch.utils._pytree import tree_leaves

from ...artifacts.context import CompileContext
from ...artifacts.fx_graphs import PLAN
from ...dependencies import msgspec
from ..graphs.functional_graph import Captured, fake_mode_of
from ..toolchain.triton_cache import options
from . import state
from .values import DEVICES, Uncacheable, constant, fake_tensor, memory_of, string, target, text_of

SWITCH = "PTDEBUG_GRAPH_CACHE"
"""The environment variable that turns the cache off ("0")."""

META = ("autograd", "recompute", "checkpoint")
"""What the engine reads of a captured node besides its value; "stack", "module" and "origins" only name places."""

PLACES = ("stack", "module", "origins")


def key_of(captured: Captured, context: CompileContext) -> str:
    """The key of `captured`, compiled now. Raises Uncacheable with the reason where it has none."""
    if os.environ.get(SWITCH) == "0":
        raise Uncacheable(f"{SWITCH}=0")
    if context.overrides or context.target:
        raise Uncacheable("decisions are overridden, or another target is recorded")
    if context.uncached:
        raise Uncacheable(context.uncached)
    parts = [state.of_installation(), state.of_process(), str(context.memory_budget), *_graph(captured.module)]
    quantized = any(map(_is_quantization, captured.module.graph.nodes))
    if context.freezing or context.buckets is not None or quantized:  # which depends on what is a parameter
        parts += [f"freezing {context.freezing}", *captured.input_names]
    parts += [f"cpp_wrapper {context.cpp_wrapper}", f"cuda_graphs {context.cuda_graphs}",
              f"max_autotune {context.max_autotune}", context.way,
              repr(sorted(context.preferred.items())), str(context.buckets)]
    parts += [str(captured.grad_enabled), str(getattr(captured, "inference_mode", False))]
    parts += [*_inputs(captured.inputs), *_gpus(captured)]
    parts.append(state.of_sizes(fake_mode_of(captured).shape_env))
    return hashlib.sha256("\n".join(map(string, parts)).encode()).hexdigest()


def _is_quantization(node: torch.fx.Node) -> bool:
    return getattr(node.target, "namespace", "") == "quantized_decomposed"


def recorded_key_of(key: str, captured: Captured, context: CompileContext) -> str:
    """The key of the graph with what its stages record, where `key` is that of the graph: also the names that records
    use for what comes from outside, and the lines of the program."""
    named = [key, context.part, list(captured.input_names), _places(captured.module)]
    return hashlib.sha256(msgspec.json.encode(named, enc_hook=repr)).hexdigest()


def _places(module: torch.fx.GraphModule) -> list[Any]:
    """Where the nodes come from, of the graphs that they hold as well."""
    found: list[Any] = []
    for node in module.graph.nodes:
        found.append([node.meta.get(name) for name in PLACES])
        plan = getattr(node.target, PLAN, None)
        if plan is not None:
            found += [plan.name, *_places(plan.forward), *_places(plan.backward)]
    return found


def _graph(module: torch.fx.GraphModule) -> list[str]:
    return [_node(node, module) for node in module.graph.nodes]


def _node(node: torch.fx.Node, module: torch.fx.GraphModule) -> str:
    value = node.meta.get("val")
    known = "" if node.op == "output" else text_of(value)
    meta = text_of(tuple(node.meta.get(name) for name in META))
    plan = getattr(node.target, PLAN, None)
    if plan is not None:
        called = _function(plan)
    elif node.op == "call_function":
        called = target(node.target)
    elif node.op == "get_attr":
        called = constant(_attribute(module, str(node.target)))
    elif node.op == "call_module":
        raise Uncacheable("the graph calls a module")
    else:
        called = string(str(node.target))
    return f"{node.op} {string(node.name)} {called} {text_of(node.args)}{text_of(node.kwargs)} {known} {meta}"


def _function(plan: Any) -> str:
    """The text of an autograd function that was traced (a FunctionPlan): that of its two graphs."""
    facts = plan.name, plan.gradients, plan.strides, plan.fixed, plan.dirty, plan.once, plan.materialized
    sides = ["".join(map(string, _graph(side))) for side in (plan.forward, plan.backward)]
    return f"function {text_of(facts)}{''.join(map(string, sides))}"


def _attribute(module: torch.fx.GraphModule, path: str) -> Any:
    found: Any = module
    for name in path.split("."):
        found = getattr(found, name)
    return found


def _inputs(inputs: tuple[Any, ...]) -> list[str]:
    tensors = [value for value in inputs if isinstance(value, torch.Tensor)]
    other = next((tensor.device.type for tensor in tensors if tensor.device.type not in DEVICES), None)
    if other is not None:
        raise Uncacheable(f"the graph runs on the device {other}")
    bases = [fake_tensor(base) if (base := value._base) is not None else "" for value in tensors]
    return [*map(text_of, inputs), memory_of(tensors), *bases]


def _gpus(captured: Captured) -> list[str]:
    """What is compiled for, besides this machine's CPU: which GPUs, and the versions of CUDA, of cuDNN, of Triton."""
    values = [node.meta.get("val") for node in captured.module.graph.nodes if node.op != "output"]
    tensors = [v for v in tree_leaves([*captured.inputs, *values]) if isinstance(v, torch.Tensor)]
    devices = sorted({tensor.device for tensor in tensors if tensor.device.type == "cuda"}, key=str)
    if not devices:
        return []
    found = []
    for device in devices:
        it = torch.cuda.get_device_properties(device)
        found.append(f"{device} {it.name} {it.major}.{it.minor} {it.multi_processor_count} {it.total_memory}")
    return [*found, str(torch.version.cuda), str(torch.backends.cudnn.version()), options()]
