"""What of a value nobody has written: elements that eager gives otherwise where other numbers were in memory before."""
from __future__ import annotations

from typing import Any

import torch

_NEARLY = (torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.complex64, torch.complex128)


def written(values: tuple[Any, ...], eager: Any, again: Any) -> tuple[Any, ...]:
    """Tensors without the elements that two runs of eager have otherwise; all other values as they are."""
    same = same_elements(eager, again)
    if same is None:
        return values
    alike = [isinstance(v, torch.Tensor) and v.shape == eager.shape for v in values]
    return tuple(v[same] if fits else v for v, fits in zip(values, alike))


def same_elements(eager: Any, again: Any) -> torch.Tensor | None:
    """Where two runs of eager have the same; None where they do everywhere, or are not compared."""
    both = isinstance(eager, torch.Tensor) and isinstance(again, torch.Tensor) and eager.shape == again.shape
    if not both or eager is again or eager.layout is not torch.strided:
        return None
    if eager.dtype in _NEARLY:
        same = torch.isclose(eager, again, rtol=0.01, atol=0.0, equal_nan=True)
    else:
        same = (eager == again) | ((eager != eager) & (again != again))  # NaN, of small floats
    return None if same.all() else same
