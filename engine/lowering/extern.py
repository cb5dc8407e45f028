"""Extern kernels: calls of ATen for what has no lowering or is better left to a library (matrix products,
convolutions)."""
from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any, cast

import sympy
import torch
import torch.fx

from ...operators.traits import traits_named
from ..graphs.aliasing import viewed
from ..graphs.random_fills import fill_of
from ..ir.affine import sizes
from ..ir.ir import ExternCall
from ..unsupported import EngineUnsupported
from .lazy_tensors import Base, Value

if TYPE_CHECKING:
    from .graph import GraphLowering

aten = torch.ops.aten

OWN = {  # packets of ptdebug's own kernels, and why
    "attention": "attention: ptdebug's kernel, faster here than ATen's",
    "product": "matrix product: ptdebug's kernel, faster here than the libraries'",
    "unaligned_product": "matrix product: several calls of the library, whose rows are aligned",
    "int8_depthwise": "depthwise convolution on integers: ptdebug's kernel, faster here than oneDNN's",
    "depthwise_weight_gradient": "depthwise weight gradient: ptdebug's kernel, faster here than ATen's",
}

COPYING = {aten._conj.default: aten.conj_physical.default, aten._neg_view.default: aten.neg.default}
"""Lazy views, and the operators that compute them eagerly."""


def _copying(node: torch.fx.Node) -> Any:
    """The variant of a lazy view that copies. Raises EngineUnsupported where the copy is observable."""
    root = viewed(node)
    if sum(viewed(result) is root for result in node.graph.output_node().all_input_nodes) > 1:
        raise EngineUnsupported(f"two results share memory through {node.target}")
    return COPYING[node.target]  # type: ignore[index]


def argument_views(graph: GraphLowering, tree: Any, nodes: Any) -> Any:
    """The arguments of a call: every tensor realized and given as a View, every size as an expression.

    `nodes` are the same arguments in the graph. A kernel that queries the memory format of a tensor reads the
    strides of dimensions of size 1 as well: they are the fake tensor's.
    """
    if isinstance(tree, Value):
        fake: Any = nodes.meta.get("val") if isinstance(nodes, torch.fx.Node) else None
        if not isinstance(fake, torch.Tensor) or fake.layout is not torch.strided or fake.dim() != len(tree.size):
            return graph.view_of(tree)
        return graph.view_of(tree, sizes(fake.stride()))
    if isinstance(tree, (list, tuple)):
        return type(tree)([argument_views(graph, a, node) for a, node in zip(tree, nodes)])
    if isinstance(tree, dict):
        return {k: argument_views(graph, a, nodes[k]) for k, a in tree.items()}
    if isinstance(tree, sympy.Expr) and tree.is_Integer:
        return int(tree)
    return tree


def _call_views(graph: GraphLowering, node: torch.fx.Node, args: Any, kwargs: Any) -> tuple[Any, Any]:
    return argument_views(graph, tuple(args), node.args), argument_views(graph, dict(kwargs), node.kwargs)


WRITING = (aten.index_put_.default, aten.copy_.default)
"""What writes a part of an input in place (see passes/reinplace.py)."""


def _write_part(graph: GraphLowering, node: torch.fx.Node, args: Any, kwargs: Any) -> Value:
    """A step that changes the memory of an input; its value, which nothing reads, is what was written to."""
    views, options = _call_views(graph, node, args, kwargs)
    name, why, target = f"write_{node.name}", "in-place write to a part of an input", cast(Any, node.target)
    graph.steps.append(ExternCall(name, target, views, options, (), (views[0].buffer,), (node.name,), why))
    written: Value = args[0]
    return written


def fallback(graph: GraphLowering, node: torch.fx.Node, args: Any, kwargs: Any, why: str) -> Any:
    """Call the node's operator on realized arguments; its results are buffers with the fake tensors' layouts."""
    target: Any = node.target
    if target in WRITING:
        return _write_part(graph, node, args, kwargs)
    packet = getattr(getattr(target, "overloadpacket", None), "__name__", str(target))
    library = traits_named(packet).library
    if library and "has no lowering" in why:
        why = f"{library}: left to ATen"
    if packet in OWN:
        why = OWN[packet]
    if graph.context.recording or graph.context.overrides:
        graph.context.decide("fallback", node.name, ("extern",), "extern", why, origins=(f"forward#{node.name}",))
    fake = node.meta.get("val")
    if target in COPYING:
        target = _copying(node)
    if fill_of(target) is not None:
        args = (_memory_like(graph, args[0]), *args[1:])
    results = fake if isinstance(fake, (tuple, list)) else (fake,)
    outputs: list[str | None] = []
    binds: list[tuple[sympy.Symbol, str, int]] = []
    made: list[Any] = []
    call_args, call_kwargs = _call_views(graph, node, args, kwargs)
    several = isinstance(fake, (tuple, list))
    wanted = {user.args[1] for user in node.users if user.target is operator.getitem}
    for position, result in enumerate(results):
        # A result without users gets no buffer: an operator may return None there (attention's statistics on a GPU).
        if not isinstance(result, torch.Tensor) or (several and position not in wanted):
            outputs.append(None)
            made.append(result)
            continue
        make = graph.base_of if result.layout is torch.strided else graph.given
        base = make(result, node.name)
        base.buffer = graph.new_buffer(base)
        outputs.append(base.buffer)
        made.append(Value(base, base.size))
        told = enumerate(map(_as_told, result.shape))
        binds += [(symbol, base.buffer, d) for d, symbol in told if graph.defines(symbol)]
    name = next((o for o in outputs if o is not None), f"call_{node.name}")
    step = ExternCall(name, target, call_args, call_kwargs, tuple(outputs), (), (node.name,), why, tuple(binds))
    graph.steps.append(step)
    return tuple(made) if several else made[0]


def _as_told(size: Any) -> Any:
    """A size of a new result, before the graph's runtime asserts on it are known: that it is 0, say."""
    return size.node._expr if isinstance(size, torch.SymInt) else size


def _memory_like(graph: GraphLowering, value: Value) -> Value:
    """What a random fill receives for a lazy value, of which it needs only the layout: uninitialized memory."""
    if value.base.buffer or value.reindex is not None:
        return value
    base = Base(graph.node.name, value.size, value.base.stride, value.dtype, value.device)
    base.buffer = graph.new_buffer(base)
    shape = list(base.size), list(base.stride)
    target, layout = torch.ops.aten.empty_strided.default, argument_views(graph, shape, shape)
    options = {"dtype": base.dtype, "device": base.device}
    why = "memory that determines the layout of a random fill"
    graph.steps.append(ExternCall(base.buffer, target, layout, options, (base.buffer,), (), (base.node,), why))
    return Value(base, base.size)


def number_of(graph: GraphLowering, node: torch.fx.Node, args: Any) -> sympy.Basic:
    """`.item()`: a call whose result is a number; what is computed from the number is an expression."""
    expression: sympy.Basic = node.meta["val"].node.expr
    symbols = [symbol for symbol in expression.free_symbols if graph.defines(symbol)]
    if len(symbols) == 1:  # itself, or, for a bool, u0 == 1
        binds = ((symbols[0], "", 0),)
        why = "a number that is read from a tensor (.item())"
        views = argument_views(graph, tuple(args), node.args)
        graph.steps.append(ExternCall(f"call_{node.name}", node.target, views, {}, (), (), (node.name,), why, binds))
    elif symbols:
        raise EngineUnsupported(f"{expression} cannot be solved for its unbacked symbols, from {node.target}")
    return expression
