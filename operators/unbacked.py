"""Unbacked symbols (data-dependent numbers and sizes): which operator of a graph defines each, and where it is read.

ShapeEnv names them u0, zuf0: `.item()` returns one, and `nonzero` has one in the size of its result.
"""
from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import torch
import torch.fx

if TYPE_CHECKING:  # half a second to import, of which a loaded package has no need
    import sympy


def is_unbacked(symbol: sympy.Symbol) -> bool:
    """Whether `symbol` is unbacked (data-dependent)."""
    from torch.utils._sympy.symbol import SymT, symbol_is_type

    return symbol_is_type(symbol, (SymT.UNBACKED_INT, SymT.UNBACKED_FLOAT))


def unbacked_in(value: Any) -> set[sympy.Symbol]:
    """The unbacked symbols of a tree of tensors, numbers and expressions."""
    return {symbol for expression in _expressions(value) for symbol in expression.free_symbols if is_unbacked(symbol)}


def _expressions(value: Any) -> Iterator[sympy.Basic]:
    if isinstance(value, torch.Tensor):
        if not value._has_symbolic_sizes_strides:  # most tensors of most graphs: checked for each node by each pass
            return
        for number in (*value.size(), *value.stride()):
            yield from _expressions(number)
    elif isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool)):
        yield value.node.expr
    elif isinstance(value, (tuple, list)):
        for item in value:
            yield from _expressions(item)
    elif "sympy" in sys.modules and isinstance(value, sys.modules["sympy"].Basic):
        yield value


def needed(nodes: Iterable[torch.fx.Node]) -> set[sympy.Symbol]:
    """The unbacked symbols in arguments of `nodes`: the nodes that define them cannot be dropped."""
    found: set[sympy.Symbol] = set()
    for node in nodes:
        for argument in (*node.args, *node.kwargs.values()):
            found |= unbacked_in(argument)
    return found
