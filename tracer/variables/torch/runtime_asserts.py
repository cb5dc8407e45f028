"""Conditions on unbacked symbols and data-dependent values, which the graph checks when it runs.

An operator may work for some sizes only: `narrow` for a length that fits, `view` for the same number of items. torch
assumes that such a condition holds, and records it; the graph states it as an operator before. Where it does not hold
the graph raises and its frame is rerun in eager (`eager_fallback.py`), so user code sees what eager does.
"""
from __future__ import annotations

import math
import operator
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import sympy
import torch
import torch.fx

from ...breaks.unsupported import Unsupported
from ..core.base import Value
from ..core.constant import constant
from ..core.late import late
from ..core.operators import apply
from ..python.symbolic_numbers import NumberValue
from .tensor import TensorValue

if TYPE_CHECKING:
    from ..core.base import Graph, Translator

ASSUMED = "a data-dependent number is not what the captured graph assumes"
_ASSERTED = "what the program asserts does not hold"


def check_at_run_time(
    tx: Translator, conditions: Iterable[sympy.Expr], why: Unsupported
) -> None:
    """Have the graph check the conditions. Raises `why` where it cannot compute them here."""
    graph = tx.graph
    nodes = []
    for condition in sorted(conditions, key=str):
        if condition == sympy.true:  # implied by the ranges of its symbols
            continue
        known: dict[sympy.Basic, Any] = {symbol: _node_of(graph, symbol) for symbol in condition.free_symbols}
        if not known or None in known.values():
            raise why
        nodes.append(_computed(graph, condition, known))
    for node in nodes:
        add_check(tx, node, why)


late.check_at_run_time = check_at_run_time


def add_check(tx: Translator, condition: torch.fx.Node, why: Unsupported) -> None:
    """A node that raises unless `condition`, a number, holds; what it says is not shown, as the frame runs again.
    Raises `why` where it cannot."""
    rely_on_rerun(tx, why)
    node = tx.graph.make(torch.ops.aten._assert_scalar.default, (condition, ASSUMED), {})
    node.meta.update(val=None, stack=tx.stack_locations(), module=tx.trace.module_path)
    tx.graph.operations += 1


def assume(tx: Translator, value: Value, why: Unsupported) -> None:
    """The program asserts `value`, which is data-dependent: it does from here on, and the graph
    checks that. Raises `why` where it cannot."""
    rely_on_rerun(tx, why)
    if isinstance(value, TensorValue):
        if value.fake.numel() != 1 or value.fake.device.type != "cpu":  # a failed check makes a CUDA device unusable
            raise why
        holds = value if value.fake.dtype is torch.bool else apply(tx, operator.ne, value, constant(0))
        tx.graph.call(torch.ops.aten._assert_async.msg, [holds, constant(_ASSERTED)], {}, tx)
        return
    if isinstance(value, NumberValue) and not isinstance(value.symbol, torch.SymBool):
        value = apply(tx, operator.ne, value, constant(0))
    tx.graph.call(torch.ops.aten._assert_scalar.default, [value, constant(_ASSERTED)], {}, tx)


def rely_on_rerun(tx: Translator, why: Unsupported) -> None:
    """The graph will check something in the program's place. Raises `why` where it cannot."""
    graph = tx.graph
    if not tx.trace.options.run_again or len(graph.scopes.open) > 1:
        raise why
    if graph.runtime_assert is None:
        place = {"location": tx.own_location(), "stack": tx.stack_locations()}
        graph.runtime_assert = RuntimeAssert(tx.trace.safe_step(), why.again(), place)


@dataclass(frozen=True)
class RuntimeAssert:
    """The first assumption of a graph: the step at which to break instead, with the reason and the location, where the
    graph cannot check it."""

    step: int
    why: Unsupported
    place: Mapping[str, Any]

    def refused(self) -> Unsupported:
        """The error to raise then."""
        return self.why.again(earlier=self.step, **self.place)


def _node_of(graph: Graph, symbol: sympy.Symbol) -> torch.fx.Node | None:
    """A node whose value is that of the symbol; None where none has it."""
    for node in list(graph.graph.nodes):
        value = node.meta.get("val")
        if isinstance(value, torch.SymInt) and value.node._expr == symbol:
            return node
        if isinstance(value, torch.Tensor):
            for i, size in enumerate(value.shape):
                if isinstance(size, torch.SymInt) and getattr(size.node, "_expr", None) == symbol:
                    found = graph.make(torch.ops.aten.sym_size.int, (node, i), {})
                    found.meta["val"] = size
                    return found
    return None


def _computed(graph: Graph, expression: sympy.Expr, known: dict[sympy.Basic, Any]) -> torch.fx.Node:
    """The nodes of an expression; `known` has those of its symbols."""
    from torch.utils._sympy.interp import sympy_interp  # takes 0.1 s, and only frames with such conditions need it

    tracer = torch.fx.proxy.GraphAppendingTracer(graph.graph)
    last = next(iter(reversed(graph.graph.nodes)))
    proxies = {symbol: torch.fx.Proxy(node, tracer) for symbol, node in known.items()}
    result: torch.fx.Node = sympy_interp(_on_proxies(), proxies, expression).node
    made = last.next
    while made.op != "root":
        values: list[Any] = [arg.meta["val"] if isinstance(arg, torch.fx.Node) else arg for arg in made.args]
        made.meta["val"] = made.target(*values)
        made = made.next
    return result


@lru_cache(maxsize=1)
def _on_proxies() -> Any:
    """torch's rules from expressions to Python, except that functions of math, which take no proxies, become nodes."""
    from torch.utils._sympy.reference import PythonReferenceAnalysis

    def node(function: Any) -> staticmethod[[Any, Any], Any]:
        def rule(x: Any, dtype: Any) -> Any:
            return x.tracer.create_proxy("call_function", function, (x,), {})

        return staticmethod(rule)

    rules = {"floor_to_int": math.floor, "ceil_to_int": math.ceil, "trunc_to_int": math.trunc, "round_to_int": round}
    return type("OnProxies", (PythonReferenceAnalysis,), {name: node(made) for name, made in rules.items()})
