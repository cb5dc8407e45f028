"""The memory of NumPy's arrays as tensors: for guards, which look at an array through one."""
from __future__ import annotations

from typing import Any

import numpy as np
import torch


def tensor_of(array: Any) -> torch.Tensor | None:
    """A tensor over the memory of a NumPy array; None where torch can have none, or must not write to it."""
    if type(array) is not np.ndarray or not array.flags.writeable:
        return None
    try:
        return torch.from_numpy(array)
    except (TypeError, ValueError):  # a dtype of Python's, strides that are negative or no multiple of the item
        return None
