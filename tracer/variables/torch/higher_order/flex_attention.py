"""torch.nn.attention.flex_attention: its operator as the formula that torch runs in eager, written in operators.

The score and mask functions take one score and its indices; four vmaps make them functions of all
(torch/_higher_order_ops/flex_attention.py, math_attention).
"""
from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch.overrides import TorchFunctionMode

from ....breaks.reasons import Reason
from ....breaks.unsupported import Unsupported
from ...core.base import Value
from ...core.constant import constant
from ...core.handlers import NAMED
from ...core.registry import from_python, is_library
from ..tensor import TensorValue

if TYPE_CHECKING:
    from ...core.base import Translator


class IndexByTensors(TorchFunctionMode):
    """`table[head]` as an operator: under vmap, indexing with a tensor of one integer would read its value."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.Tensor.__getitem__:
            index = args[1] if isinstance(args[1], tuple) else (args[1],)
            if all(isinstance(part, torch.Tensor) for part in index):
                return torch.ops.aten.index(args[0], index)
        return func(*args, **(kwargs or {}))


def _over_places(function: Callable[..., Any], prefix: tuple[int | None, ...]) -> Callable[..., Any]:
    for dims in ((None, None, None, 0), (None, None, 0, None), (None, 0, None, None), (0, None, None, None)):
        function = torch.vmap(function, in_dims=prefix + dims)
    return function


def math_attention(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, score_mod: Any, block_mask: Any, scale: float
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """(output, log of the sum of exponentials in base 2, largest scores), as torch computes them without a kernel."""
    groups = query.size(1) // key.size(1)
    value = torch.repeat_interleave(value, groups, dim=1)
    key = torch.repeat_interleave(key, groups, dim=1)
    batch = query.size(0)
    key, value = key.expand((batch, *key.size()[1:])), value.expand((batch, *value.size()[1:]))
    working = torch.float64 if query.dtype == torch.float64 else torch.float32
    scores = query.to(working) @ key.to(working).transpose(-2, -1)
    places = [torch.arange(0, scores.size(i), device=scores.device) for i in range(4)]
    with IndexByTensors():
        scores = (scores * scale).to(working)
        changed = torch.where(
            _over_places(block_mask[-1], ())(*places),
            _over_places(score_mod, (0,))(scores, *places),
            torch.tensor(-float("inf"), dtype=working, device=scores.device),
        )
    sums = changed.logsumexp(dim=-1)
    sums = torch.where(torch.all(changed == -float("inf"), dim=-1), -float("inf"), sums)
    largest = torch.max(changed, dim=-1)[0]
    weights = torch._safe_softmax(changed, dim=-1)
    out = weights.to(query.dtype) @ value.to(query.dtype)
    return out, sums / math.log(2), largest / math.log(2)


def flex_attention(tx: Translator, operator: Any, args: Sequence[Value]) -> Value:
    """The call of the operator. Its result has the query's order of dimensions: here that of a contiguous one."""
    query, others = args[0], args[7:]
    if any(part.iterate(tx) for part in others) or not isinstance(query, TensorValue):
        raise Unsupported(Reason.UNSUPPORTED_HIGHER_ORDER, detail="flex_attention with buffers of its own")
    strides = query.fake.stride()
    if not all(type(n) is int for n in strides) or list(strides) != sorted(strides, reverse=True):
        raise Unsupported(
            Reason.UNSUPPORTED_HIGHER_ORDER, detail="flex_attention of a query whose dimensions lie in another order"
        )
    return tx.inline(from_python(tx, math_attention), args[:6], {})


def _mark_static(tx: Translator, args: Sequence[Value], kwargs: Any) -> Value:
    """Does nothing in torch's own code, whose tensors do not outlive it; the user's marks are kept."""
    if not is_library(tx.f_globals.get("__name__")):
        raise Unsupported(Reason.UNSUPPORTED_HIGHER_ORDER, detail="torch._dynamo.mark_static")
    return constant(None)


NAMED["torch._dynamo.decorators", "mark_static"] = _mark_static
