"""Conditions on dynamic sizes: compiling a graph may evaluate them, and each answer becomes a guard of the frame.

A graph loaded from disk evaluates nothing. So the conditions are kept with it, and evaluated again.
"""
from __future__ import annotations

from typing import Any

from ..graphs.functional_graph import Captured, fake_mode_of


def count(captured: Captured) -> int:
    """How many conditions the graph's ShapeEnv has so far."""
    env = fake_mode_of(captured).shape_env
    return 0 if env is None else len(env.guards)


def since(captured: Captured, before: int) -> tuple[str, ...]:
    """The conditions that were added after `count` was `before`, as Python."""
    env = fake_mode_of(captured).shape_env
    if env is None or len(env.guards) == before:
        return ()
    from torch.utils._sympy.printers import PythonPrinter  # 0.1 s, and only for graphs with symbols

    return tuple(PythonPrinter().doprint(guard.expr) for guard in env.guards[before:])


def assume(captured: Captured, conditions: tuple[str, ...]) -> bool:
    """Make `conditions` guards of the frame. False where one does not hold, which the key rules out."""
    if not conditions:
        return True
    from torch.fx.experimental.symbolic_shapes import SYMPY_INTERP

    env: Any = fake_mode_of(captured).shape_env
    names = {str(symbol): _number(env, symbol) for symbol in env.var_to_range}
    return all(bool(eval(condition, SYMPY_INTERP, names)) for condition in conditions)


def _number(env: Any, symbol: Any) -> Any:
    hint = env.backed_var_to_val[symbol]
    if symbol.is_integer:
        return env.create_symintnode(symbol, hint=int(hint))
    return env.create_symfloatnode(symbol, hint=float(hint))
