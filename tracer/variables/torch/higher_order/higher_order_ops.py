"""torch.cond, while_loop, scan, associative_scan: operators whose functions are graphs of their own. torch's own Python
around them is interpreted; the call of the operator itself is a node (`operator_table.py` has the table of operators).

A branch or a body runs a data-dependent number of times: its side effects are left to eager.
"""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
import torch.fx
from torch._subclasses.fake_tensor import FakeTensorMode

from .....operators.layouts import is_one
from ....breaks.reasons import Reason
from ....breaks.unsupported import Unsupported
from ....fx.subgraphs import Scope
from ...containers.sequences import TupleValue
from ...core.base import Value
from ...python.symbolic_numbers import NumberValue
from ..nn.modules import refuse_global_hooks
from ..pytree import flatten, unflatten
from ..tensor import NodeValue, TensorValue
from ..tensor_subclasses import SubclassValue

if TYPE_CHECKING:
    from ...core.base import Translator

Args = Sequence[Value]
_NOTHING = TupleValue((), tuple)


@dataclass(frozen=True)
class Region:
    """A function that was traced into a graph of its own: the graph, not closed yet, the nodes that it returns, and the
    structure (a TreeSpec) of which they are the leaves."""

    scope: Scope
    results: tuple[torch.fx.Node, ...]
    spec: Any


def trace_region(tx: Translator, function: Value, args: Sequence[Value | torch.Tensor], what: str) -> Region:
    """Trace the call of `function`; fake tensors among the arguments are inputs of the region itself."""
    with tx.graph.nested_without_writes(what) as scope, tx.effects.sealed(what):
        given: list[Value] = []
        for i, arg in enumerate(args):
            given.append(_own_input(tx, scope, i, arg) if isinstance(arg, torch.Tensor) else arg)
        leaves, spec = flatten(tx, function.call(tx, given, {}))
        results = []
        for value in leaves:
            if not isinstance(value, TensorValue):
                raise Unsupported(Reason.UNSUPPORTED_HIGHER_ORDER, detail=f"{what} that returns {value.describe()}")
            if tx.graph.scopes.here(value.node).op == "placeholder":  # operators must not return their inputs
                value = tx.graph.call("clone", [value], {}, tx, op="call_method")
            results.append(tx.graph.scopes.here(value.as_proxy()))
    return Region(scope, tuple(results), spec)


def _own_input(tx: Translator, scope: Scope, index: int, fake: torch.Tensor) -> TensorValue:
    value = TensorValue(scope.add_input(f"own_{index}", fake), fake)
    tx.trace.values_by_id[id(fake)] = value
    tx.trace.keep_alive.append(fake)
    return value


def _fresh(tx: Translator, value: Value, first: bool = False) -> torch.Tensor:
    """A fake tensor like that of `value` (like its first slice)."""
    if not isinstance(value, TensorValue):
        raise Unsupported(Reason.UNSUPPORTED_HIGHER_ORDER, detail=f"a loop that carries {value.describe()}")
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
    refuse_classes(tx, operator, [*before, *after])
    register_fake_rules(type(tx.graph.fake_mode))
    lifted = list(dict.fromkeys(node for region in regions for node in region.scope.lifted))
    modules = []
    for region in regions:
        region.scope.align(lifted)
        outputs = region.results[0] if region is condition else region.results
        modules.append(NodeValue(tx.graph.scopes.open[-1].add_module(region.scope.close(outputs))))
    results = tx.graph.call(operator, [*before, *modules, *after, _Nodes(lifted)], {}, tx)
    return unflatten(tx, results.iterate(tx), regions[-1].spec)


def refuse_classes(tx: Translator, operator: Any, args: Args) -> None:
    """Raises Unsupported for tensors of user-defined classes: in torch 2.11 results have the class, in 2.13 not."""
    if any(isinstance(leaf, SubclassValue) for arg in args for leaf in flatten(tx, arg)[0]):
        raise Unsupported(Reason.UNSUPPORTED_HIGHER_ORDER, operator, detail="of a tensor of a user-defined class")


def register_fake_rules(mode: type[FakeTensorMode]) -> None:
    """Register the fake tensor rules of torch's operators for `mode`, too: torch looks for the exact class. All of
    them: a loop with gradients calls another one inside."""
    for operator in torch._ops._higher_order_ops.values():
        rules = operator.python_key_table
        if FakeTensorMode in rules:
            rules.setdefault(mode, _FAKE_RULES.get(operator.name(), rules[FakeTensorMode]))


def _joined(mode: FakeTensorMode, function: Any, xs: Sequence[torch.Tensor], additional: Any) -> tuple[Any, ...]:
    """What an associative_scan gives: joined of pieces, where there are several slices."""
    formats = [torch.preserve_format if is_one(x.shape[0]) else torch.contiguous_format for x in xs]
    with mode:
        return tuple([torch.empty_like(x, memory_format=kind) for x, kind in zip(xs, formats)])


_FAKE_RULES = {"associative_scan": _joined}
"""In the place of torch's, which have the strides of the arguments."""


class _Nodes(Value):
    """A tuple of nodes as an argument."""

    __slots__ = ("nodes",)

    def __init__(self, nodes: Sequence[torch.fx.Node]) -> None:
        super().__init__()
        self.nodes = tuple(nodes)

    def as_proxy(self) -> tuple[torch.fx.Node, ...]:
        """The nodes."""
        return self.nodes


# ---- the operators: parameters have the names that they have in torch ------------------------------------------------
def cond(
    tx: Translator, operator: Any, pred: Value, true_fn: Value, false_fn: Value, operands: Value = _NOTHING
) -> Value:
    """The branch that is known, or both as graphs."""
    given = list(operands.iterate(tx))
    if pred.is_constant() or isinstance(pred, NumberValue):
        return (true_fn if pred.truth(tx) else false_fn).call(tx, given, {})
    names = ("the true branch of torch.cond", "the false branch of torch.cond")
    regions = [trace_region(tx, f, given, what) for f, what in zip((true_fn, false_fn), names)]
    if regions[0].spec != regions[1].spec:
        raise Unsupported(
            Reason.UNSUPPORTED_HIGHER_ORDER, torch.cond, detail="with branches that return different structures"
        )
    return _run(tx, operator, regions, [pred], [])


def while_loop(
    tx: Translator, operator: Any, cond_fn: Value, body_fn: Value, carried_inputs: Value, additional_inputs: Value
) -> Value:
    """The condition and the body as graphs."""
    start, extra = list(carried_inputs.iterate(tx)), list(additional_inputs.iterate(tx))
    parts = []
    for function, what in ((cond_fn, "the condition of a while_loop"), (body_fn, "the body of a while_loop")):
        parts.append(trace_region(tx, function, [*(_fresh(tx, value) for value in start), *extra], what))
    return _run(tx, operator, parts, [], [carried_inputs], condition=parts[0])


def scan(
    tx: Translator, operator: Any, combine_fn: Value, init: Value, xs: Value, additional_inputs: Value
) -> Value:
    """One step as a graph."""
    own = [_fresh(tx, value) for value in init.iterate(tx)] + [_fresh(tx, value, True) for value in xs.iterate(tx)]
    region = trace_region(tx, combine_fn, [*own, *additional_inputs.iterate(tx)], "the function of a scan")
    for value, node in zip(init.iterate(tx), region.results):
        assert isinstance(value, TensorValue)
        before, after = ((fake.dtype, fake.shape, fake.stride()) for fake in (value.fake, node.meta["val"]))
        if before != after:  # eager refuses to carry it
            raise Unsupported(
                Reason.OPERATOR_ERROR, detail=f"scan: it begins with a tensor of {before}, and goes on with {after}"
            )
    return _run(tx, operator, [region], [], [init, xs])


def associative_scan(
    tx: Translator, operator: Any, combine_fn: Value, xs: Value, additional_inputs: Value
) -> Value:
    """The combine function as a graph."""
    own = [_fresh(tx, value, True) for value in (*xs.iterate(tx), *xs.iterate(tx))]
    what = "the function of an associative_scan"
    region = trace_region(tx, combine_fn, [*own, *additional_inputs.iterate(tx)], what)
    return _run(tx, operator, [region], [], [xs])


def map_over_slices(tx: Translator, operator: Any, function: Value, xs: Value, additional: Value) -> Value:
    """The function of one slice as a graph."""
    own = [_fresh(tx, value, True) for value in xs.iterate(tx)]
    region = trace_region(tx, function, [*own, *additional.iterate(tx)], "the function of a map")
    return _run(tx, operator, [region], [], [xs])
