"""Which dtypes and numbers ATen's kernels take, by asking eager: no list says it.

Fake tensors do not know, and generated loops would compute what eager refuses.
`F.silu` of integers raises in eager, though its fake kernel promises integers, and so does `masked_fill` of a float16
tensor with -1e9. Where a dtype is not float32 or float64, an operator that becomes loops runs once in eager, on a few
zeros of these dtypes: where that is refused, the graph runs in eager, which says so to the program.
"""
from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch.utils._mode_utils import no_dispatch

from ..artifacts.external_exceptions import came_from_outside
from .effects import is_random
from .traits import traits_of

aten = torch.ops.aten

ALWAYS = frozenset((torch.float32, torch.float64, None))  # dtypes that kernels accept, or that are not given
REFUSED = re.compile(r"not implemented for '|[Bb]ool|Integer division|cannot be converted to type")
MOST = 4  # elements of a dimension, and other sizes, in the probing call
USUAL = 100  # numbers up to it are in every dtype

TRACING = torch._C.DispatchKeySet(torch._C.DispatchKey.Functionalize) | torch._C.DispatchKeySet(
    torch._C.DispatchKey.AutocastCPU)
"""What stands between a call and its kernel while a graph is traced."""

_refusals: dict[Any, str] = {}


def refused(operator: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> str:
    """Why ATen's kernel on CPUs takes no arguments of these dtypes, or no such numbers; "" where it takes them."""
    leaves = [leaf for a in args for leaf in (a if isinstance(a, (list, tuple)) else (a,))]
    tensors = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
    common = kwargs.get("dtype") in ALWAYS and all(t.dtype in ALWAYS for t in tensors)
    if common and not any(map(_beyond_float32, (*leaves, *kwargs.values()))):
        return ""
    if operator.is_view or traits_of(operator).kernels_by_size or is_random(operator):
        return ""
    if any(t.device.type != "cpu" or t.layout is not torch.strided for t in tensors):
        return ""
    key = (operator, *map(_kind, leaves), *[(name, _kind(value)) for name, value in kwargs.items()])
    if key not in _refusals:
        _refusals[key] = _refusal(operator, args, kwargs)
    return f"{operator} raises in eager: {_refusals[key]}" if _refusals[key] else ""


def _beyond_float32(value: Any) -> bool:
    return type(value) is float and torch.finfo(torch.float32).max < abs(value) < math.inf


def _kind(value: Any) -> Any:
    """What of an argument may decide whether it is taken."""
    if isinstance(value, torch.Tensor):
        return value.dtype, value.dim()
    if type(value) in (int, float):
        return type(value), None if abs(value) <= USUAL else value
    return value if isinstance(value, (str, bool, torch.dtype)) else type(value)


def _refusal(operator: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> str:
    """The error of eager for these dtypes and numbers; "" where it accepts them, or raises for another reason."""
    counts = operator.overloadpacket is aten.arange  # its numbers say how many elements there are
    numbers = {a.name for a in operator._schema.arguments if "number" in str(a.type) and not counts}
    given = {a.name: value for a, value in zip(operator._schema.arguments, args)} | dict(kwargs)
    try:
        with no_dispatch(), torch._C._DisablePythonDispatcher(), torch._C._ExcludeDispatchKeyGuard(TRACING):
            small = {name: _small(value, name in numbers) for name, value in given.items()}
            operator(*[small[a.name] for a in operator._schema.arguments[:len(args)]], **{k: small[k] for k in kwargs})
    except Exception as error:  # of sizes that do not fit, too
        if came_from_outside(error):
            raise
        text = str(error).partition("\n")[0]
        return text if REFUSED.search(text) else ""
    return ""


def _small(value: Any, is_number: bool) -> Any:
    """An argument of the probing call: a number as it is, sizes and tensors small."""
    if isinstance(value, torch.Tensor):
        shape = [min(_at_hand(n), MOST) for n in value.shape]  # equal ones stay equal
        return torch.zeros(shape, dtype=value.dtype, device=value.device)
    if isinstance(value, (list, tuple)):
        return [_small(part, is_number) for part in value]
    if isinstance(value, (torch.SymInt, torch.SymFloat)):
        return 1
    return max(-MOST, min(value, MOST)) if type(value) in (int, float) and not is_number else value


def _at_hand(size: Any) -> int:
    """The current value of a size, where known."""
    if type(size) is int:
        return size
    return int(size.node.hint) if size.node.has_hint() else MOST
