"""torch.cond, while_loop, scan, associative_scan: operators that take functions. torch's own Python around them is
interpreted; the call of the operator itself is a node whose functions are graphs of their own.

A branch or a body runs as often as the data says, not once: what it changes outside of itself is left to eager.
"""
from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
import torch.fx
from torch._ops import HigherOrderOperator
from torch._subclasses.fake_tensor import FakeTensorMode

from ....breaks.unsupported import Unsupported
from ....fx.subgraphs import Scope, refuse_writes, versions
from ....sources.source import Source
from ...core.base import Value
from ...core.handlers import NAMED
from ...core.registry import builds
from ...python.builtin_functions import BuiltinValue
from ...python.symbolic_numbers import NumberValue
from ..nn.modules import refuse_global_hooks
from ..pytree import flatten, unflatten
from ..tensor import NodeValue, TensorValue
from ..tensor_subclasses import SubclassValue
from .flex_attention import flex_attention

if TYPE_CHECKING:
    from ...core.base import Translator

Args = Sequence[Value]


@dataclass(frozen=True)
class Region:
    """A function that was traced into a graph of its own: the graph, not closed yet, the nodes that it returns, and the
    structure (a TreeSpec) of which they are the leaves."""

    scope: Scope
    results: tuple[torch.fx.Node, ...]
    spec: Any


def trace_region(tx: Translator, function: Value, args: Sequence[Value | torch.Tensor], what: str) -> Region:
    """Trace the call of `function`; fake tensors among the arguments are inputs of the region's own."""
    before = versions(tx.graph.scopes.open[0].graph)
    with tx.graph.nested() as scope, tx.effects.sealed(what):
        given: list[Value] = []
        for i, arg in enumerate(args):
            given.append(_own_input(tx, scope, i, arg) if isinstance(arg, torch.Tensor) else arg)
        leaves, spec = flatten(tx, function.call(tx, given, {}))
        results = []
        for value in leaves:
            if not isinstance(value, TensorValue):
                raise Unsupported("call", f"{what} that returns {value.describe()}")
            if tx.graph.scopes.here(value.node).op == "placeholder":  # operators must not return their inputs
                value = tx.graph.call("clone", [value], {}, tx, op="call_method")
            results.append(tx.graph.scopes.here(value.as_proxy()))
    refuse_writes(tx.graph.scopes.open[0].graph, before, what)
    return Region(scope, tuple(results), spec)


def _own_input(tx: Translator, scope: Scope, index: int, fake: torch.Tensor) -> TensorValue:
    value = TensorValue(scope.add_input(f"own_{index}", fake), fake)
    tx.trace.values_by_id[id(fake)] = value
    tx.trace.keep_alive.append(fake)
    return value


def _fresh(tx: Translator, value: Value, first: bool = False) -> torch.Tensor:
    """A fake tensor like that of `value` (like its first slice)."""
    if not isinstance(value, TensorValue):
        raise Unsupported("call", f"a loop that carries {value.describe()}")
    with tx.graph.fake_mode, torch.no_grad():
        like = value.fake[0] if first else value.fake
        return torch.empty_like(like, requires_grad=False)


def _run(
    tx: Translator,
    operator: Any,
    regions: Sequence[Region],
    before: Args,
    after: Args,
    condition: Region | None = None,
) -> Value:
    """The node `operator(*before, *graphs, *after, lifted)`, whose graphs all take the same lifted inputs. Its results
    are the leaves of what the last region returned."""
    refuse_global_hooks(tx, operator.name())
    _teach(type(tx.graph.fake_mode))
    lifted = list(dict.fromkeys(node for region in regions for node in region.scope.lifted))
    modules = []
    for region in regions:
        region.scope.align(lifted)
        outputs = region.results[0] if region is condition else region.results
        modules.append(NodeValue(tx.graph.scopes.open[-1].add_module(region.scope.close(outputs))))
    results = tx.graph.call(operator, [*before, *modules, *after, _Nodes(lifted)], {}, tx)
    return unflatten(tx, results.iterate(tx), regions[-1].spec)


def _teach(mode: type[FakeTensorMode]) -> None:
    """Give the rules that torch's operators have for fake tensors to `mode`, too: torch looks for the exact class. All
    of them: a loop with gradients calls another one inside."""
    for operator in torch._ops._higher_order_ops.values():
        rules = operator.python_key_table
        if FakeTensorMode in rules:
            rules.setdefault(mode, rules[FakeTensorMode])


class _Nodes(Value):
    """A tuple of nodes as an argument."""

    __slots__ = ("nodes",)

    def __init__(self, nodes: Sequence[torch.fx.Node]) -> None:
        super().__init__()
        self.nodes = tuple(nodes)

    def as_proxy(self) -> tuple[torch.fx.Node, ...]:
        """The nodes."""
        return self.nodes


# ---- the operators ---------------------------------------------------------------------------------------------------
def _cond(tx: Translator, operator: Any, args: Args) -> Value:
    predicate, on_true, on_false, operands = args
    given = list(operands.iterate(tx))
    if predicate.is_constant() or isinstance(predicate, NumberValue):
        return (on_true if predicate.truth(tx) else on_false).call(tx, given, {})
    names = ("the true branch of torch.cond", "the false branch of torch.cond")
    regions = [trace_region(tx, f, given, what) for f, what in zip((on_true, on_false), names)]
    if regions[0].spec != regions[1].spec:
        raise Unsupported("call", "torch.cond with branches that return different structures")
    return _run(tx, operator, regions, [predicate], [])


def _while_loop(tx: Translator, operator: Any, args: Args) -> Value:
    condition, body, carried, additional = args[:4]
    start, extra = list(carried.iterate(tx)), list(additional.iterate(tx))
    parts = []
    for function, what in ((condition, "the condition of a while_loop"), (body, "the body of a while_loop")):
        parts.append(trace_region(tx, function, [*(_fresh(tx, value) for value in start), *extra], what))
    return _run(tx, operator, parts, [], [carried], condition=parts[0])


def _scan(tx: Translator, operator: Any, args: Args) -> Value:
    combine, init, xs, additional = args
    own = [_fresh(tx, value) for value in init.iterate(tx)] + [_fresh(tx, value, True) for value in xs.iterate(tx)]
    region = trace_region(tx, combine, [*own, *additional.iterate(tx)], "the function of a scan")
    for value, node in zip(init.iterate(tx), region.results):
        assert isinstance(value, TensorValue)
        before, after = ((fake.dtype, fake.shape, fake.stride()) for fake in (value.fake, node.meta["val"]))
        if before != after:  # eager refuses to carry it on
            raise Unsupported("operator-error", f"scan: it begins with a tensor of {before}, and goes on with {after}")
    return _run(tx, operator, [region], [], [init, xs])


def _associative_scan(tx: Translator, operator: Any, args: Args) -> Value:
    combine, xs, additional = args
    own = [_fresh(tx, value, True) for value in (*xs.iterate(tx), *xs.iterate(tx))]
    region = trace_region(tx, combine, [*own, *additional.iterate(tx)], "the function of an associative_scan")
    return _run(tx, operator, [region], [], [xs])


def _map(tx: Translator, operator: Any, args: Args) -> Value:
    function, xs, additional = args
    own = [_fresh(tx, value, True) for value in xs.iterate(tx)]
    region = trace_region(tx, function, [*own, *additional.iterate(tx)], "the function of a map")
    return _run(tx, operator, [region], [], [xs])


_OPERATORS: dict[str, Callable[[Any, Any, Args], Value]] = {
    "cond": _cond, "while_loop": _while_loop, "scan": _scan, "associative_scan": _associative_scan,
    "map_impl": _map, "flex_attention": flex_attention,
}  # fmt: skip
"""By the operator's name: how its functions become graphs."""


class HigherOrderValue(BuiltinValue):
    """An operator that takes functions."""

    __slots__ = ()

    def call(self, tx: Translator, args: Args, kwargs: Mapping[str, Value]) -> Value:
        """Its entry of the table."""
        trace = _OPERATORS.get(self.function.name())
        if trace is None or not set(kwargs) <= {"additional_inputs"}:
            raise Unsupported("call", self.describe())
        given = [*args, *kwargs.values()]
        if any(isinstance(leaf, SubclassValue) for arg in given for leaf in flatten(tx, arg)[0]):
            # by torch 2.11 the results have its class, by torch 2.13 they do not
            raise Unsupported("call", f"{self.describe()} of a tensor of a class of the program's")
        return trace(tx, self.function, given)


def _marked_region(tx: Translator, args: Args, kwargs: Mapping[str, Value]) -> Value:
    """A function marked with torch.compiler.nested_compile_region: part of the graph like any other."""
    return args[0].call(tx, args[1:], kwargs)


NAMED["torch._higher_order_ops.invoke_subgraph", "invoke_subgraph_placeholder"] = _marked_region


@builds(HigherOrderOperator)
def build_higher_order(tx: Translator, obj: Any, source: Source | None) -> Value:
    """One of torch.ops.higher_order."""
    if source is not None:
        tx.guards.add(source, "ID_MATCH", obj)
    return HigherOrderValue(obj, source)
