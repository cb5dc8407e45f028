"""For each stage a way of running the recorded graph: node by node, as loop IR, as compiled kernels.

Every rung takes fresh copies of the inputs and returns an `Execution`: what the program would see afterwards, and all
named intermediate values.
"""
from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
import torch.fx
import torch.utils._pytree

from ...artifacts.fx_graphs import PLAN
from ...engine.graphs.functional_graph import LAZY_VIEWS, AtenGraph, Constant, FromGraph, FromInput, ViewOfGraph
from ...engine.graphs.random_fills import RANDOM_FILLS
from ...engine.ir import interpreter
from ...engine.ir.ir import Group, KernelSignature, LoopBody, Plan, Program
from ...engine.runtime.runtime import load
from ..recorded.state import as_compiled

WIDER = {torch.float32: torch.float64, torch.float16: torch.float64, torch.bfloat16: torch.float64}
WIDER_METHODS = {"float": "double", "half": "double", "bfloat16": "double"}


@dataclass
class Execution:
    """The result of a rung. `inputs` are its copies of the inputs after the run; `values` its intermediates by name, as
    they were when they were made; `gradients` those of the inputs that have one, of a training graph.
    """

    outputs: tuple[Any, ...]
    inputs: tuple[Any, ...]
    values: dict[str, Any] = field(default_factory=dict)
    seconds: float = 0.0
    gradients: tuple[Any, ...] = ()

    def observed(self) -> tuple[Any, ...]:
        """Results, then inputs, then gradients: all that the program can see."""
        return (*self.outputs, *self.inputs, *self.gradients)


# ---- graphs ---------------------------------------------------------------------------------------------------------
def run_graph(
    module: torch.fx.GraphModule, inputs: tuple[Any, ...], wide: bool = False, grad: bool = False
) -> Execution:
    """Run a graph node by node in eager. `wide`: compute in float64 what the graph computes in a smaller float; `grad`:
    record for autograd."""
    values: dict[str, Any] = {}
    live: dict[torch.fx.Node, Any] = {}
    supply = iter(inputs)
    outputs: tuple[Any, ...] = ()
    start = time.perf_counter()
    with torch.set_grad_enabled(grad):
        for node in module.graph.nodes:
            args = torch.fx.node.map_arg(node.args, live.__getitem__)
            if node.op == "output":
                outputs = tuple(args[0]) if isinstance(args[0], (tuple, list)) else (args[0],)
                break
            if node.op == "placeholder":
                live[node] = next(supply)
            elif node.op == "get_attr":
                live[node] = _constant(getattr(module, node.target), wide)
            else:
                kwargs = torch.fx.node.map_arg(node.kwargs, live.__getitem__)
                live[node] = _call(node, args, kwargs, wide)
                values[node.name] = _snapshot(live[node])
    return Execution(outputs, inputs, values, time.perf_counter() - start)


def _constant(value: Any, wide: bool) -> Any:
    """An attribute of a graph: a tensor, or the subgraph of a higher-order operator."""
    if not wide:
        return value
    if isinstance(value, torch.fx.GraphModule):
        return _wide_module(value)
    return value.double() if value.dtype in WIDER else value


def _wide_module(module: torch.fx.GraphModule) -> torch.fx.GraphModule:
    """A copy of a graph that computes in float64 what it computes in a smaller float."""
    graph = torch.fx.Graph()
    nodes: dict[torch.fx.Node, torch.fx.Node] = {}
    held = {}
    for node in module.graph.nodes:
        nodes[node] = copy = graph.node_copy(node, nodes.__getitem__)
        copy.args, copy.kwargs = _widened(copy.args), _widened(copy.kwargs)
        copy.target = _wide_target(node)
        if node.op == "get_attr":
            held[node.target] = _constant(getattr(module, node.target), True)
    return torch.fx.GraphModule(held, graph)


def _wide_target(node: torch.fx.Node) -> Any:
    """What a node calls where it is to compute in float64."""
    target: Any = node.target
    if node.op == "call_method":
        return WIDER_METHODS.get(target, target)
    plan = getattr(target, PLAN, None)
    if plan is None:
        return target
    return replace(plan, forward=_wide_module(plan.forward), backward=_wide_module(plan.backward)).function()


def _call(node: torch.fx.Node, args: Any, kwargs: Any, wide: bool) -> Any:
    target: Any = _wide_target(node) if wide else node.target
    if wide:
        args, kwargs = _widened(args), _widened(kwargs)
    if node.op == "call_method":
        return getattr(args[0], target)(*args[1:], **kwargs)
    function = RANDOM_FILLS.get(target, target)
    try:
        return function(*args, **kwargs)
    except RuntimeError:
        dense = torch.utils._pytree.tree_map_only(torch.Tensor, torch.Tensor.contiguous, args)
        if not isinstance(target, torch._ops.OpOverload) or target._schema.is_mutable or _same(dense, args):
            raise
        return function(*dense, **kwargs)  # a pass chose strides for ptdebug's kernels, which ATen's does not read


def _same(one: tuple[Any, ...], other: tuple[Any, ...]) -> bool:
    leaves = torch.utils._pytree.tree_leaves
    return all(a is b for a, b in zip(leaves(one), leaves(other)))


def _widened(tree: Any) -> Any:
    if isinstance(tree, torch.dtype):
        return WIDER.get(tree, tree)
    if isinstance(tree, (tuple, list)):
        return type(tree)(_widened(v) for v in tree)
    if isinstance(tree, dict):
        return {k: _widened(v) for k, v in tree.items()}
    return tree


def _snapshot(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.detach().clone(memory_format=torch.preserve_format)
    if isinstance(value, (tuple, list)):
        return tuple(_snapshot(v) for v in value)
    return value


@as_compiled()
def run_aten(aten: AtenGraph, module: torch.fx.GraphModule, inputs: tuple[Any, ...]) -> Execution:
    """Run an ATen graph and give its results as the program sees them: mutations written back, views made."""
    own = sum(node.op == "placeholder" for node in module.graph.nodes) == len(inputs)
    ran = run_graph(module, inputs if own else _with_folded(aten, inputs))
    offset = len(aten.mutations)
    outputs = _assemble(aten, inputs, ran.outputs[:offset], ran.outputs[offset:])
    return Execution(outputs, inputs, ran.values, ran.seconds)


def _with_folded(aten: AtenGraph, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
    """The inputs of a graph, and those that are computed from frozen ones."""
    folding = aten.folding
    if folding is None:
        return inputs
    with torch.no_grad():
        fold = load(folding.source.text, folding.source.names, "<ptdebug replay folding>")
        return (*inputs, *fold(*(inputs[index] for index in folding.positions)))


def _assemble(
    aten: AtenGraph, inputs: tuple[Any, ...], new: Sequence[torch.Tensor], made: Sequence[Any]
) -> tuple[Any, ...]:
    """The program's results: `new` are the new values of mutated inputs, `made` the graph's own results."""
    for value, index in zip([v.clone() for v in new], aten.mutations.values()):
        inputs[index].copy_(value)
    return results_of(aten, inputs, made)


def results_of(aten: AtenGraph, inputs: tuple[Any, ...], made: Sequence[Any]) -> tuple[Any, ...]:
    results: list[Any] = []
    for output in aten.outputs:
        if isinstance(output, FromInput):
            results.append(inputs[output.index])
        elif isinstance(output, Constant):
            results.append(output.value)
        elif isinstance(output, FromGraph):
            value = made[output.index - len(aten.mutations)]
            results.append(LAZY_VIEWS[output.lazily](value) if output.lazily else value)
        elif isinstance(output, ViewOfGraph):
            owner = made[output.index - len(aten.mutations)]
            fake = aten.module.graph.output_node().args[0][output.index].meta["val"]  # type: ignore[index,union-attr]
            start = output.offset - fake.storage_offset() + owner.storage_offset()
            results.append(owner.as_strided(output.size, output.stride, start))
        else:
            owner = inputs[output.index]
            base = owner if owner.dtype == output.dtype else owner.view(output.dtype)
            start = output.offset - aten.inputs[output.index].storage_offset() + base.storage_offset()
            view = base.as_strided(output.size, output.stride, start)
            results.append(LAZY_VIEWS[output.lazily](view) if output.lazily else view)
    return tuple(results)


# ---- programs -------------------------------------------------------------------------------------------------------
def run_loops(aten: AtenGraph, program: Program, inputs: tuple[Any, ...]) -> Execution:
    """Run a program's loop bodies in the reference interpreter, extern kernels in ATen."""

    def body(step: LoopBody, memory: dict[str, torch.Tensor], symbols: Mapping[Any, int]) -> None:
        interpreter.run_body(step, memory, symbols)

    return _run_steps(aten, program, program.steps, inputs, body)


def run_kernels(
    aten: AtenGraph, plan: Plan, kernels: Mapping[str, Callable[..., int]],
    signatures: Mapping[str, KernelSignature], inputs: tuple[Any, ...],
) -> Execution:
    """Run a plan's compiled kernels one after the other. Each buffer has memory of its own, so all can be seen."""

    def group(step: Group, memory: dict[str, torch.Tensor], symbols: Mapping[Any, int]) -> None:
        signature = signatures[step.kernel]
        pointers = [memory[name].data_ptr() for name in signature.buffers]
        status = kernels[step.kernel](*pointers, *(symbols[s] for s in signature.symbols))
        if status:
            raise IndexError(f"{step.kernel}: index out of range in `{signature.bounds[status - 1]}`")

    return _run_steps(aten, plan.program, plan.items, inputs, group)


@as_compiled()
def _run_steps(
    aten: AtenGraph, program: Program, steps: Sequence[Any], inputs: tuple[Any, ...], run_one: Callable[..., None]
) -> Execution:
    memory: dict[str, torch.Tensor] = dict(program.constants)
    memory |= {n: v for n, v in zip(program.inputs, _with_folded(aten, inputs)) if isinstance(v, torch.Tensor)}
    symbols = interpreter.symbol_values(program, inputs)
    for buffer in program.buffers.values():
        if buffer.role == "intermediate":
            memory[buffer.name] = interpreter.allocate(buffer, symbols)
    values: dict[str, Any] = {}
    start = time.perf_counter()
    with torch.no_grad():
        for step in steps:
            if isinstance(step, (LoopBody, Group)):
                run_one(step, memory, symbols)
            else:
                interpreter.call(step, memory, symbols)
            values |= {name: _snapshot(memory[name]) for name in written(step)}
        made = [interpreter.resolve(out, memory, symbols) for out in program.outputs]
        new = [interpreter.resolve(view, memory, symbols) for view, _ in program.copies]
        outputs = _assemble(aten, inputs, new, made)
    return Execution(outputs, inputs, values, time.perf_counter() - start)


def written(step: Any) -> Iterator[str]:
    """Names of the buffers that a step leaves in memory."""
    if isinstance(step, LoopBody):
        yield from step.writes
    elif isinstance(step, Group):
        for body in step.bodies:
            yield from (name for name in body.writes if name not in step.internal)
    else:
        yield from (name for name in step.outputs if name is not None)
