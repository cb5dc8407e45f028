"""What nodes are made of: targets and arguments as the code of a graph names them, and as fake values."""
from __future__ import annotations

import enum
import operator
from collections.abc import Iterable, Sequence
from typing import Any

import sympy
import torch
import torch.fx
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols

from ..sources.source import Source


def fake_of(arg: Any) -> Any:
    """`arg` with every node replaced by its fake value."""
    if isinstance(arg, torch.fx.Node):
        return arg.meta["val"]
    kind = type(arg)
    if kind is tuple or kind is list:
        return kind([fake_of(item) for item in arg])
    if kind is dict:
        return {key: fake_of(item) for key, item in arg.items()}
    if kind is slice:
        return slice(fake_of(arg.start), fake_of(arg.stop), fake_of(arg.step))
    if isinstance(arg, tuple) and hasattr(arg, "_fields"):
        return kind(*[fake_of(item) for item in arg])
    return arg


def tensors_in(args: Iterable[Any]) -> list[torch.Tensor]:
    """The tensors among the arguments, and in tuples among them: `out=(values, indices)`."""
    parts = (part for arg in args for part in (arg if isinstance(arg, (tuple, list)) else (arg,)))
    return [part for part in parts if isinstance(part, torch.Tensor)]


def as_code(arg: Any) -> Any:
    """Arguments that generated graph code can name: Python's number types, which torch accepts as dtypes, become
    dtypes, and a combination of flags becomes its integer."""
    if isinstance(arg, enum.IntFlag) and arg.name not in type(arg).__members__:
        return int(arg)
    return _DTYPES_OF_PYTHON.get(arg, arg) if isinstance(arg, type) else arg


_DTYPES_OF_PYTHON: dict[type, torch.dtype] = {
    bool: torch.bool, int: torch.int64, float: torch.float64, complex: torch.complex128
}


def target_name(target: Any) -> str:
    """The name of a function or method that a node calls."""
    return target if isinstance(target, str) else getattr(target, "__name__", str(target))


def as_written(function: Any, args: Sequence[Any]) -> Any:
    """Adapts what torch.fx would print wrongly: `-2 ** n` would be `-(2 ** n)`."""
    negative = function is operator.pow and type(args[0]) in (int, float) and args[0] < 0
    return pow if negative else function


def unbacked_symbols(index: Any) -> set[sympy.Symbol]:
    """The unbacked symbols in an index, or in a part of one."""
    parts = index if isinstance(index, tuple) else (index,)
    return {symbol for part in parts if isinstance(part, torch.SymInt) for symbol in free_unbacked_symbols(part)}


def subject_of(target: Any) -> tuple[Any, str]:
    """What a break at a node's target is about: the function, or a method of tensors."""
    return (torch.Tensor, target) if isinstance(target, str) else (target, "")


def input_name(source: Source) -> str:
    """What the placeholder of an input is called."""
    text = source.expression
    return "".join(c if c.isalnum() else "_" for c in text)
