"""The table of lowerings: which Python function lowers which ATen operator, and how operators mix dtypes."""
from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import sympy
import torch

from .lazy_tensors import Value

POINTWISE = "pointwise"  # one element of each input for one element of the result
RESHAPE = "reshape"  # a view that visits the elements in the same order, or repeats them
VIEW = "view"  # any other rewriting of indices
GATHER = "gather"  # a new tensor that reads its inputs at other indices than its own
REDUCTION = "reduction"  # one body of its own
COMPOSITE = "composite"  # several bodies that may read an input more than once


@dataclass(frozen=True)
class Lowering:
    """How an operator becomes loops: `function(graph, node, *args, **kwargs)` gives a Value or a tuple of them."""

    function: Callable[..., Any]
    kind: str


LOWERINGS: dict[Any, Lowering] = {}


def lowering(*targets: Any, kind: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register the decorated function as the lowering of `targets`."""

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        for target in targets:
            assert target not in LOWERINGS, f"{target} has two lowerings"
            LOWERINGS[target] = Lowering(function, kind)
        return function

    return register


LOOP_DTYPES = frozenset((
    torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.uint16, torch.uint32,
    torch.uint64, torch.float16, torch.bfloat16, torch.float32, torch.float64,
))


def in_loops(dtype: torch.dtype, device: torch.device) -> bool:
    """Whether loops can hold a dtype: not complex numbers, and of 8-bit floats those that a GPU has, there."""
    return dtype in LOOP_DTYPES or (device.type != "cpu" and dtype in (torch.float8_e4m3fn, torch.float8_e5m2))


_CATEGORIES = ((torch.bool,), (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64,
                               torch.uint16, torch.uint32, torch.uint64))


def _category(dtype: torch.dtype) -> int:
    return 0 if dtype in _CATEGORIES[0] else 1 if dtype in _CATEGORIES[1] else 3 if dtype.is_complex else 2


def promoted(operands: Sequence[Any]) -> torch.dtype:
    """The dtype in which torch computes on tensors, 0-d tensors and Python numbers together.

    Tensors with dimensions go before 0-d tensors, and those before numbers, unless the later kind is of a higher
    category (bool < integer < float): torch's type promotion, as in `torch.result_type`.
    """
    ranks: list[torch.dtype | None] = [None, None, None]
    for operand in operands:
        if isinstance(operand, Value):
            rank, dtype = (0 if operand.size else 1), operand.dtype
        elif isinstance(operand, bool):
            rank, dtype = 2, torch.bool
        elif isinstance(operand, float) or (isinstance(operand, sympy.Expr) and not operand.is_integer):
            rank, dtype = 2, torch.get_default_dtype()
        else:
            rank, dtype = 2, torch.int64
        known = ranks[rank]
        ranks[rank] = dtype if known is None else torch.promote_types(known, dtype)
    result: torch.dtype | None = None
    for found in ranks:
        if found is not None and (result is None or _category(found) > _category(result)):
            result = found
    assert result is not None
    return result
