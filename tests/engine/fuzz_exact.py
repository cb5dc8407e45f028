"""Functions of doubles in more digits: x86's extended precision, 64 bits of significand where a double has 53.

How far eager's doubles are off is else told by float32 in their place. That says too little of kernels which add up
floats in double, as those of variances and running sums do: in float32 they are exact but for the last rounding.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

Numbers = Any  # np.ndarray of np.longdouble
Dims = int | Sequence[int] | None


def _spread(x: Numbers, dims: Dims = None, *, correction: float = 1, keepdim: bool = False) -> Numbers:
    """The variance, by its definition."""
    axes = tuple(range(x.ndim)) if dims is None else tuple(np.atleast_1d(dims)) if x.ndim else ()
    count = np.prod([x.shape[axis] for axis in axes], dtype=np.longdouble)
    squares = (x - np.mean(x, axis=axes, keepdims=True)) ** 2
    return np.sum(squares, axis=axes, keepdims=keepdim) / np.maximum(count - correction, 0)


def _mean(x: Numbers, dims: Dims = None, *, keepdim: bool = False, **_: Any) -> Numbers:
    return np.mean(x, axis=None if dims is None or x.ndim == 0 else tuple(np.atleast_1d(dims)), keepdims=keepdim)


def _root(x: Numbers, *args: Any, **options: Any) -> Numbers:
    return np.sqrt(_spread(x, *args, **options))


EXTENDED: dict[str, tuple[Callable[..., Numbers], ...]] = {
    "torch.var": (_spread,),
    "torch.std": (_root,),
    **{f"torch.{name}": (_spread, _mean) for name in ("var_mean", "ops.aten.var_mean.correction")},
    **{f"torch.{name}": (_root, _mean) for name in ("std_mean", "ops.aten.std_mean.correction")},
    "torch.cumsum": (lambda x, dim: np.cumsum(x, dim).reshape(x.shape),),
    "torch.cumprod": (lambda x, dim: np.cumprod(x, dim).reshape(x.shape),),
}
"""By what a program calls: what makes each of its results, from the same arguments with an array for the tensor."""


def extended(function: str, x: torch.Tensor, *args: Any, **options: Any) -> tuple[torch.Tensor, ...]:
    """The results of a function in `EXTENDED` for a float64 tensor, rounded to float64 at the end."""
    wide = x.cpu().numpy().astype(np.longdouble)
    with np.errstate(all="ignore"):
        made = [np.asarray(way(wide, *args, **options)).astype(np.float64) for way in EXTENDED[function]]
    return tuple(torch.from_numpy(np.ascontiguousarray(one)).view(one.shape).to(x.device) for one in made)
