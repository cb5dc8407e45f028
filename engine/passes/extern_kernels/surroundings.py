"""A matrix product measured with what surrounds it: the loops that can be fused with it, and those that follow.

What a kernel of its own saves shows only there: a library's product leaves its result in memory, where the next loops
read it; in a tile they run on what is in registers. The part of the graph is compiled and timed once for each way.
"""
from __future__ import annotations

import hashlib
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import sympy
import torch
import torch.fx
from torch.utils._pytree import tree_flatten, tree_unflatten

from ....artifacts.context import CompileContext
from ... import scheduler
from ...graphs.functional_graph import AtenGraph, FromGraph
from ...ir import interpreter
from ...ir.ir import ExternCall, Group, Plan, View
from ...kernels.tiled_product import allows_tf32
from ...lowering import lower
from ...lowering.realization import kind_of
from ...lowering.registry import GATHER, POINTWISE, RESHAPE, VIEW
from ...runtime.runtime import callable_of
from ...toolchain.benchmarking import Call, is_kept
from ...toolchain.device_benchmarking import device_costs, made_up, on_device
from ...toolchain.triton_cache import options

Others = Callable[[AtenGraph, CompileContext], object]
"""The passes that choose between the libraries' kernels."""

Change = Callable[[torch.fx.Node], None]
Ways = Mapping[str, Change]
"""What makes a product one of each way; the first leaves it to the library."""

MOST = 48  # nodes that follow the product
LARGEST = 1 << 32  # bytes of the inputs and results: of more, nothing is measured


class Measuring:
    """The measurements of one graph's products. Parts that do the same are compiled and timed once."""

    def __init__(self, others: Others) -> None:
        self.others = others
        self._begun: set[str] = set()

    def begin(self, product: torch.fx.Node, ways: Ways) -> None:
        """Begin to compile what `seconds` will time, several products at once."""
        nodes = _nodes(product)
        subject = _subject(product, nodes, ways) if nodes else ""
        if not subject or subject in self._begun or is_kept(on_device(subject, product.meta["val"].device, True)):
            return
        from ...codegen.triton import begin_timing

        self._begun.add(subject)
        for way in [way for way in ways if way != next(iter(ways))]:
            plan, _, context = _planned(product, nodes, ways[way], self.others)
            begin_timing(plan, context)

    def seconds(self, product: torch.fx.Node, ways: Ways) -> dict[str, float]:
        """Seconds of the product with its surroundings, by way. Empty without a GPU, and where nothing could be
        measured."""
        nodes = _nodes(product)
        if not nodes:
            return {}
        calls = lambda: {way: _compiled(product, nodes, change, self.others) for way, change in ways.items()}
        return device_costs(_subject(product, nodes, ways), product.meta["val"].device, calls, cold=True)


def _subject(product: torch.fx.Node, nodes: set[torch.fx.Node], ways: Ways) -> str:
    from ...codegen.triton import generator

    text = f"{generator()}\n{_text(_part(product, nodes)[0])}"
    return f"product {hashlib.sha256(text.encode()).hexdigest()} {sorted(ways)}"


# ---- which part of the graph -----------------------------------------------------------------------------------------
def _nodes(product: torch.fx.Node) -> set[torch.fx.Node]:
    """The nodes of the part; none where nothing can be measured."""
    if product.meta["val"].device.type != "cuda" or not torch.cuda.is_available():
        return set()
    nodes = _around(product)
    touched = nodes | {source for node in nodes for source in node.all_input_nodes}
    varies = any(_varies(node) for node in touched)
    return set() if varies or sum(map(_bytes, touched)) > LARGEST else nodes


def _around(product: torch.fx.Node) -> set[torch.fx.Node]:
    """The product, what loops compute from it, and what they compute for these alone."""
    found, waiting = {product}, [product]
    while waiting and len(found) < MOST:
        for user in waiting.pop(0).users:
            if user not in found and _in_loops(user):
                found.add(user)
                waiting.append(user)
    waiting = list(found)
    while waiting:
        for source in waiting.pop().all_input_nodes:
            alone = set(source.users) <= found and kind_of(source) in (POINTWISE, GATHER)
            if source not in found and (alone or kind_of(source) in (RESHAPE, VIEW) or _has_no_inputs(source)):
                found.add(source)
                waiting.append(source)
    return found


def _in_loops(node: torch.fx.Node) -> bool:
    if node.target is operator.getitem:
        return kind_of(node.all_input_nodes[0]) is not None
    return kind_of(node) is not None


def _has_no_inputs(node: torch.fx.Node) -> bool:
    return node.op == "call_function" and not node.all_input_nodes and kind_of(node) is not None


def _varies(node: torch.fx.Node) -> bool:
    value = node.meta.get("val")
    if isinstance(value, torch.Tensor):
        return any(not isinstance(size, int) for size in (*value.shape, *value.stride()))
    return isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool))


def _bytes(node: torch.fx.Node) -> int:
    value = node.meta.get("val")
    return int(value.numel()) * value.itemsize if isinstance(value, torch.Tensor) else 0


def _part(product: torch.fx.Node, nodes: set[torch.fx.Node]) -> tuple[AtenGraph, torch.fx.Node]:
    """The part as a graph of its own, and the product there. What it is computed from are inputs."""
    graph, known = torch.fx.Graph(), dict[torch.fx.Node, torch.fx.Node]()
    ordered = [node for node in product.graph.nodes if node in nodes]
    for source in dict.fromkeys(s for node in ordered for s in node.all_input_nodes if s not in nodes):
        known[source] = graph.placeholder(source.name)
        known[source].meta["val"] = source.meta["val"]
    for node in ordered:
        known[node] = graph.node_copy(node, known.__getitem__)
    inputs = tuple([n.meta["val"] for n in graph.nodes if n.op == "placeholder"])
    views = (RESHAPE, VIEW)
    results = [n for n in ordered if not set(n.users) <= nodes and isinstance(n.meta.get("val"), torch.Tensor)
               and (kind_of(n) not in views or n.all_input_nodes[0] in nodes)]
    graph.output(tuple([known[n] for n in results]))
    module = torch.fx.GraphModule({}, graph)
    outputs = tuple([FromGraph(i) for i in range(len(results))])
    return AtenGraph(module, inputs, {}, outputs), known[product]


def _text(part: AtenGraph) -> str:
    """All that the times depend on, besides the device and torch."""
    names = {node: f"n{k}" for k, node in enumerate(part.module.graph.nodes)}
    lines = [options(), str(allows_tf32())]
    for node in part.module.graph.nodes:
        value = node.meta.get("val")
        layout = (value.dtype, tuple(value.shape), value.stride()) if isinstance(value, torch.Tensor) else None
        arguments = torch.fx.node.map_arg((node.args, node.kwargs), names.__getitem__)
        lines.append(f"{names[node]} {node.target if node.op == 'call_function' else node.op} {arguments} {layout}")
    return "\n".join(lines)


# ---- running it ------------------------------------------------------------------------------------------------------
def _planned(
    product: torch.fx.Node, nodes: set[torch.fx.Node], change: Change, others: Others
) -> tuple[Plan, AtenGraph, CompileContext]:
    """The part as it is scheduled one way."""
    part, copy = _part(product, nodes)
    context = CompileContext(max_autotune=True)
    change(copy)
    others(part, context)
    return scheduler.schedule(lower(part.module, context), context), part, context


def _compiled(product: torch.fx.Node, nodes: set[torch.fx.Node], change: Change, others: Others) -> Call:
    """A call of the part, compiled one way, on made-up data."""
    from ...codegen.triton import finished, kernels_for_plan

    plan, part, context = _planned(product, nodes, change, others)
    kernels = finished(kernels_for_plan(plan, context), plan, context)
    inputs = [made_up(v.shape, v.stride(), v.dtype, v.device) for v in part.inputs]
    return runner(plan, kernels, memory_of(plan, inputs))


def memory_of(plan: Plan, inputs: Sequence[torch.Tensor]) -> dict[str, torch.Tensor]:
    """Memory for all buffers of a plan, by name."""
    program = plan.program
    memory: dict[str, torch.Tensor] = {**program.constants, **dict(zip(program.inputs, inputs))}
    for name, buffer in program.buffers.items():
        if name not in memory:
            memory[name] = interpreter.allocate(buffer, {})
    return memory


def runner(plan: Plan, kernels: Mapping[str, Any], memory: dict[str, torch.Tensor]) -> Call:
    """What runs a plan on `memory`, in which the results of library calls are new each time."""
    steps = [_launch(kernels[item.kernel], memory) if isinstance(item, Group) else _call(item, memory)
             for item in plan.items]

    def run() -> None:
        for step in steps:
            step()

    return run


def _launch(kernel: Any, memory: Mapping[str, torch.Tensor]) -> Call:
    names, launch = kernel.signature.buffers, kernel.runner()
    return lambda: launch(*[memory[name].data_ptr() for name in names])


def _call(step: ExternCall, memory: dict[str, torch.Tensor]) -> Call:
    leaves, tree = tree_flatten((step.args, dict(step.kwargs)))
    prepared = [_layout(leaf) for leaf in leaves]
    called = callable_of(step.target)

    def run() -> None:
        tensors = [memory[one[0]].as_strided(*one[1]) if type(one) is tuple else one for one in prepared]
        args, kwargs = tree_unflatten(tensors, tree)
        result = called(*args, **kwargs)
        for name, made in zip(step.outputs, result if isinstance(result, (tuple, list)) else (result,)):
            if name is not None:
                memory[name] = made

    return run


def _layout(leaf: Any) -> Any:
    """(buffer, (sizes, strides, offset)) of a view; what else is an argument, as a number of Python."""
    if isinstance(leaf, View):
        size, stride = ([int(n) for n in numbers] for numbers in (leaf.size, leaf.stride))
        return leaf.buffer, (size, stride, int(leaf.offset))
    return int(leaf) if isinstance(leaf, sympy.Integer) else leaf
