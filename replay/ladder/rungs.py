"""Running a graph node by node; what a rung leaves behind.

Every rung takes fresh copies of the inputs and returns an `Execution`: what the program would see afterwards, and all
named intermediate values. `steps.py` runs loop IR and kernels.
"""
from __future__ import annotations

import operator
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

import torch
import torch.fx
import torch.utils._pytree

from ...artifacts.fx_graphs import PLAN
from ...engine.graphs.functional_graph import LAZY_VIEWS, AtenGraph, Constant, FromGraph, FromInput, ViewOfGraph
from ...engine.ir import interpreter
from ...engine.runtime.runtime import CALLED, load
from ...operators.effects import may_draw
from ...operators.layouts import is_expanded
from ..recorded.state import as_compiled

Symbols = Mapping[str, float]
NONE: Symbols = {}
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
        """Results, then inputs, then gradients: all that the program can see. Of a gradient in which elements share
        memory the layout is autograd's own affair."""
        return (*self.outputs, *self.inputs, *map(_spread, self.gradients))


def _spread(gradient: Any) -> Any:
    expanded = isinstance(gradient, torch.Tensor) and gradient.layout is torch.strided and is_expanded(gradient)
    return gradient.contiguous() if expanded else gradient


# ---- graphs ---------------------------------------------------------------------------------------------------------
def run_graph(
    module: torch.fx.GraphModule, inputs: tuple[Any, ...], wide: bool = False, grad: bool = False,
    noise: torch.Generator | None = None, seen: Callable[[str, Any], None] | None = None,
) -> Execution:
    """Run a graph node by node in eager. `wide`: compute in float64 what the graph computes in a smaller float; `grad`:
    record for autograd; `noise`: round each result at random (Monte Carlo arithmetic, Parker 1997); `seen` is called
    with the name and the value of each node."""
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
                if seen is not None:
                    seen(node.name, live[node])
                if noise is not None:
                    live[node] = _rounded_at_random(live[node], args, noise, _terms(node, args, kwargs, live[node]))
                written = args[0] if node.target is operator.setitem else live[node]
                values[node.name] = snapshot(written)
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
    if not wide:
        return _called(node, node.target, args, kwargs, False)
    if may_draw(node) and not node.all_input_nodes:  # in float64 other numbers would be drawn than eager's
        made = _called(node, node.target, args, kwargs, False)
        return made.double() if isinstance(made, torch.Tensor) and made.dtype in WIDER else made
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)  # of what is made of Python's numbers, or of integers
    try:
        return _called(node, _wide_target(node), _widened(args), _widened(kwargs), True)
    finally:
        torch.set_default_dtype(before)


def _called(node: torch.fx.Node, target: Any, args: Any, kwargs: Any, wide: bool) -> Any:
    if node.op == "call_method":
        return getattr(args[0], target)(*args[1:], **kwargs)
    function = CALLED.get(target, target) if isinstance(target, torch._ops.OpOverload) else target
    try:
        return function(*args, **kwargs)
    except RuntimeError:
        if wide:
            return _narrow_call(node, function, args, kwargs)
        dense = torch.utils._pytree.tree_map_only(torch.Tensor, torch.Tensor.contiguous, args)
        if not isinstance(target, torch._ops.OpOverload) or target._schema.is_mutable or _same(dense, args):
            raise
        return function(*dense, **kwargs)  # a pass chose strides for ptdebug's kernels, which ATen's does not read


def _narrow_call(node: torch.fx.Node, function: Any, args: Any, kwargs: Any) -> Any:
    """The call of an operator that has no float64 form, in the smallest float that it takes, and its results wide."""
    for kind in (torch.float32, torch.bfloat16, torch.float16):
        narrow = [torch.utils._pytree.tree_map_only(torch.Tensor, lambda t: _cast(t, torch.float64, kind), tree)  # noqa: B023
                  for tree in (args, kwargs)]
        narrow = [_dtypes_back(tree, kind) for tree in narrow]
        try:
            made = function(*narrow[0], **narrow[1])
        except RuntimeError:
            continue
        return torch.utils._pytree.tree_map_only(torch.Tensor, lambda t: _cast(t, kind, torch.float64), made)  # noqa: B023
    raise RuntimeError(f"{node.target} has no float64 form")


def _cast(tensor: torch.Tensor, one: torch.dtype, other: torch.dtype) -> torch.Tensor:
    return tensor.to(other) if tensor.dtype == one else tensor


def _dtypes_back(tree: Any, kind: torch.dtype) -> Any:
    return torch.utils._pytree.tree_map(lambda leaf: kind if leaf is torch.float64 else leaf, tree)


_SUMS = frozenset(
    "sum nansum mean mm bmm matmul linear dot mv inner einsum addmm addmv addbmm baddbmm cumsum index_add scatter_add "
    "conv1d conv2d conv3d convolution".split())
"""What adds up products or elements, by the name of the function or operator."""
_ROUNDS_EACH = frozenset(("index_add", "scatter_add"))
"""Those of them that round after each addition: the others add up halves in float32."""


def _terms(node: torch.fx.Node, args: Any, kwargs: Any, value: Any) -> Any:
    """For a sum that makes `value` the sum of its absolute terms, of which rounding is a share: the terms may cancel
    out. Times the precision of the sum, in units of that of `value`. Else None."""
    name = (node.target if isinstance(node.target, str) else getattr(node.target, "__name__", "")).partition(".")[0]
    if name not in _SUMS or not isinstance(value, torch.Tensor) or not value.is_floating_point():
        return None
    units = 1.0 if name in _ROUNDS_EACH else min(1.0, torch.finfo(torch.float32).eps / torch.finfo(value.dtype).eps)
    with suppress(Exception), torch.no_grad():
        positive, by_name = torch.utils._pytree.tree_map_only(torch.Tensor, _magnitude, (args, kwargs))
        return _call(node, positive, by_name, False).double() * units
    return None


def _magnitude(tensor: torch.Tensor) -> torch.Tensor:
    """Its absolute values; those of halves in float32, where a sum of them stays finite."""
    if not tensor.is_floating_point():
        return tensor
    return tensor.detach().to(torch.promote_types(tensor.dtype, torch.float32)).abs()


def _rounded_at_random(value: Any, args: Any, noise: torch.Generator, terms: Any = None) -> Any:
    """`value`, each element moved by up to half a unit in the last place, of `terms` if these are larger; views and
    what was written in place stay, and whole numbers that are exact."""
    if isinstance(value, (tuple, list)):
        return type(value)([_rounded_at_random(part, args, noise) for part in value])
    if not isinstance(value, torch.Tensor) or not value.is_floating_point() or value.is_meta or not value.numel():
        return value
    if value.layout is not torch.strided:
        return value
    memory = value.untyped_storage()._cdata
    if any(isinstance(a, torch.Tensor) and a.layout is torch.strided and a.untyped_storage()._cdata == memory
           for a in torch.utils._pytree.tree_leaves(args)):  # fmt: skip
        return value
    moved = torch.rand(value.shape, generator=noise, dtype=torch.float64, device=noise.device).to(value.device) - 0.5
    wide, eps = value.detach().double(), torch.finfo(value.dtype).eps
    size = wide.abs()
    if terms is not None and terms.shape == value.shape:
        size = torch.where(terms.isfinite(), torch.maximum(size, terms), size)
    exact = ~wide.isfinite() | ((wide == wide.round()) & (size < 1 / eps))
    moved = torch.where(exact, wide, wide + eps * size * moved).to(value.dtype)
    return torch.empty_like(value).copy_(moved) if not value.requires_grad else value + (moved - value).detach()


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


def snapshot(value: Any) -> Any:
    """A value as it is now."""
    if isinstance(value, torch.Tensor):
        return value.detach().clone(memory_format=torch.preserve_format)
    if isinstance(value, (tuple, list)):
        return tuple(snapshot(v) for v in value)
    return value


@as_compiled()
def run_aten(
    aten: AtenGraph, module: torch.fx.GraphModule, inputs: tuple[Any, ...], symbols: Symbols = NONE, wide: bool = False
) -> Execution:
    """Run an ATen graph and give its results as the program sees them: mutations written back, views made. `symbols`
    are the values of data-dependent sizes, by name."""
    own = sum(node.op == "placeholder" for node in module.graph.nodes) == len(inputs)
    ran = run_graph(module, inputs if own else with_folded(aten, inputs), wide)
    offset = len(aten.mutations)
    placeholders = [node.name for node in aten.module.graph.nodes if node.op == "placeholder"]
    known = symbols_in(aten.module, ran.values | dict(zip(placeholders, inputs)), symbols)
    outputs = assemble(aten, inputs, ran.outputs[:offset], ran.outputs[offset:], known)
    return Execution(outputs, inputs, ran.values, ran.seconds)


def with_folded(aten: AtenGraph, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
    """The inputs of a graph, and those that are computed from frozen ones."""
    folding = aten.folding
    if folding is None:
        return inputs
    with torch.no_grad():
        fold = load(folding.source.text, folding.source.names, "<ptdebug replay folding>")
        return (*inputs, *fold(*(inputs[index] for index in folding.positions)))


def assemble(
    aten: AtenGraph, inputs: tuple[Any, ...], new: Sequence[torch.Tensor], made: Sequence[Any], symbols: Symbols = NONE
) -> tuple[Any, ...]:
    """The program's results: `new` are the new values of mutated inputs, `made` the graph's own results."""
    for value, index in zip([v.clone() for v in new], aten.mutations.values()):
        inputs[index].copy_(value)
    return results_of(aten, inputs, made, symbols)


def results_of(
    aten: AtenGraph, inputs: tuple[Any, ...], made: Sequence[Any], symbols: Symbols = NONE
) -> tuple[Any, ...]:
    """The results of the program: what the graph made, views of it and of inputs, constants."""

    def numbers(sizes: Any) -> Any:
        return tuple(map(numbers, sizes)) if isinstance(sizes, (tuple, list)) else _known(sizes, symbols)

    results: list[Any] = []
    for output in aten.outputs:
        if isinstance(output, FromInput):
            results.append(inputs[output.index])
        elif isinstance(output, Constant):
            results.append(numbers(output.value))
        elif isinstance(output, FromGraph):
            value = made[output.index - len(aten.mutations)]
            results.append(LAZY_VIEWS[output.lazily](value) if output.lazily else value)
        elif isinstance(output, ViewOfGraph):
            owner = made[output.index - len(aten.mutations)]
            fake = aten.module.graph.output_node().args[0][output.index].meta["val"]  # type: ignore[index,union-attr]
            start = numbers(output.offset - fake.storage_offset()) + owner.storage_offset()
            results.append(owner.as_strided(numbers(output.size), numbers(output.stride), start))
        else:
            owner = inputs[output.index]
            base = owner if owner.dtype == output.dtype else owner.view(output.dtype)
            start = numbers(output.offset - aten.inputs[output.index].storage_offset()) + base.storage_offset()
            view = base.as_strided(numbers(output.size), numbers(output.stride), start)
            results.append(LAZY_VIEWS[output.lazily](view) if output.lazily else view)
    return tuple(results)


def _known(number: Any, symbols: Symbols) -> Any:
    """The value of a symbolic number."""
    if not isinstance(number, (torch.SymInt, torch.SymFloat, torch.SymBool)):
        return number
    expression = number.node.expr
    value = interpreter.evaluate(expression, {s: symbols[s.name] for s in expression.free_symbols})
    kind = float if isinstance(number, torch.SymFloat) else bool if isinstance(number, torch.SymBool) else int
    return kind(value)


def symbols_in(module: torch.fx.GraphModule, values: Mapping[str, Any], symbols: Symbols) -> Symbols:
    """`symbols` and those that are the number, or a size, of a node of `module`, whose `values` are known by name."""
    found = dict(symbols)
    for node in module.graph.nodes:
        for fake, value in _leaves(node.meta.get("val"), values.get(node.name)):
            expression = fake.node.expr if isinstance(fake, (torch.SymInt, torch.SymFloat)) else None
            if expression is not None and expression.is_Symbol:
                found[expression.name] = value
    return found


def _leaves(fake: Any, value: Any) -> Iterator[tuple[Any, Any]]:
    if isinstance(fake, (tuple, list)) and isinstance(value, (tuple, list)):
        for one, other in zip(fake, value):
            yield from _leaves(one, other)
    elif isinstance(fake, torch.Tensor) and isinstance(value, torch.Tensor):
        yield from zip(fake.shape, value.shape)
    elif isinstance(value, (int, float)):
        yield fake, value
