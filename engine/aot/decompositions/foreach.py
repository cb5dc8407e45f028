"""Operators on lists of tensors (`_foreach_add`, ...) as one operator for each tensor, by one rule for all.

List arguments are unpacked, everything else is passed to each. What a name means for one tensor is what the operator of
that name does, but for those in `ONE`. Numbers that are in a tensor are left to ATen, which reads them.
"""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

aten = torch.ops.aten

ONE: dict[str, Callable[..., Any]] = {
    "addcmul": lambda x, y, z, value=1: aten.addcmul.default(x, y, z, value=value),
    "addcdiv": lambda x, y, z, value=1: aten.addcdiv.default(x, y, z, value=value),
    "norm": lambda x, order=2, dtype=None: aten.linalg_vector_norm.default(x, order, dtype=dtype),
    "zero": lambda x: aten.zeros_like.default(x),
    "copy": lambda x, source, non_blocking=False: aten.copy.default(x, source, non_blocking),
    "max": lambda x: aten.max.default(x),
    "maximum": lambda x, y: aten.clamp_min(x, y),
    "minimum": lambda x, y: aten.clamp_max(x, y),
    "powsum": lambda x, order=2, dtype=None: aten.sum.default(aten.pow(aten.abs(x), order), dtype=dtype),
}
"""What a name means for one tensor, where it is not the operator of that name."""


def foreach_rule(operator: torch._ops.OpOverload) -> Callable[..., Any] | None:
    """The rule of a functional `_foreach_` operator; None where there is no operator for one tensor."""
    name = operator._schema.name[len("aten::_foreach_"):]
    one = ONE.get(name) or getattr(aten, name, None)
    in_a_tensor = name in ("addcmul", "addcdiv") and operator._overloadname == "Tensor"
    if operator._schema.is_mutable or one is None or in_a_tensor:
        return None

    def rule(*args: Any, **kwargs: Any) -> list[Any]:
        count = next(len(a) for a in args if isinstance(a, (list, tuple)))
        spread = [a if isinstance(a, (list, tuple)) else [a] * count for a in args]
        return [one(*[s[i] for s in spread], **kwargs) for i in range(count)]

    rule.__name__ = f"foreach_{name}"
    return rule
