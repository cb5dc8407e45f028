"""The steps of a program as nodes of a graph: what each reads, writes and needs."""
from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import sympy
import torch

from ...operators.effects import is_random
from ...operators.unbacked import unbacked_in
from ..ir.ir import Axis, ExternCall, LoopBody, Program, View, scalar_buffer

SYMBOL_HINT = 128  # what a symbolic size counts as in scores


@dataclass(eq=False)
class Node:
    """A step of the schedule while it is being made: bodies that share `axes`, or one library call."""

    id: int
    position: int
    bodies: list[LoopBody]
    axes: tuple[Axis, ...]
    reads: set[str]
    writes: set[str]
    extern: ExternCall | None = None
    device: str = "cpu"
    before: set[int] = field(default_factory=set)  # ids of nodes that must run first
    after: set[int] = field(default_factory=set)

    @property
    def touched(self) -> set[str]:
        return self.reads | self.writes


def hinted(expression: sympy.Expr) -> int:
    """The value of a size expression, symbols counted as `SYMBOL_HINT`."""
    if expression.is_Integer:
        return int(expression)
    return int(expression.xreplace({s: sympy.Integer(SYMBOL_HINT) for s in expression.free_symbols}))


def node_of(step: LoopBody | ExternCall, number: int, position: int, program: Program) -> Node:
    """The node of one step of a program."""
    if isinstance(step, LoopBody):
        device = program.buffers[step.writes[0]].device.type
        return Node(number, position, [step], step.axes, set(step.reads), set(step.writes), device=device)
    reads = {v.buffer for v in views_in((step.args, dict(step.kwargs)))}
    writes = {o for o in step.outputs if o} | set(step.mutates)
    return Node(number, position, [], (), reads, writes, extern=step)


_LIBRARIES = frozenset(("aten", "prims", "mkldnn", "mkl", "ptdebug"))


def is_seen(call: ExternCall) -> bool:
    """Whether the order of a call among others is observable: it consumes random numbers, or is a custom operator, or
    runs inner graphs, which may contain such."""
    target = call.target
    if not isinstance(target, torch._ops.OpOverload):
        return True
    return is_random(target) or target.namespace not in _LIBRARIES


def symbols_of(node: Node, program: Program) -> set[sympy.Symbol]:
    """All symbols that a step needs: in the sizes of what it touches, its loops and indices, its arguments."""
    buffers = [program.buffers[name] for name in node.touched if name in program.buffers]
    found = {s for b in buffers for number in (*b.size, *b.stride) for s in number.free_symbols}
    found |= {s for s in unbacked_scalars(program) if scalar_buffer(s) in node.reads}
    for body in node.bodies:
        found |= {s for a in (*body.axes, *body.reduction_axes) for s in sympy.sympify(a.extent).free_symbols}
        found |= {s for st in body.statements if st.index is not None for s in st.index.free_symbols}
    if node.extern is not None:
        found |= unbacked_in(_expressions_in((node.extern.args, dict(node.extern.kwargs))))
    return found


def unbacked_scalars(program: Program) -> set[sympy.Symbol]:
    """The floats that calls return."""
    return {s for step in program.steps if isinstance(step, ExternCall) for s, *_ in step.binds if not s.is_integer}


def _expressions_in(tree: object) -> list[sympy.Basic]:
    if isinstance(tree, View):
        return [sympy.sympify(number) for number in (*tree.size, *tree.stride, tree.offset)]
    if isinstance(tree, (list, tuple)):
        return [e for item in tree for e in _expressions_in(item)]
    if isinstance(tree, dict):
        return _expressions_in(list(tree.values()))
    return [tree] if isinstance(tree, sympy.Basic) else []


def views_in(tree: object) -> Iterable[View]:
    """The views among the leaves of the arguments of a library call."""
    if isinstance(tree, View):
        yield tree
    elif isinstance(tree, (list, tuple)):
        for item in tree:
            yield from views_in(item)
    elif isinstance(tree, dict):
        for item in tree.values():
            yield from views_in(item)
