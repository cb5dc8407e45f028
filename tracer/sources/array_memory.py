"""The memory of NumPy arrays as tensors: guards check an array through a tensor."""
from __future__ import annotations

from typing import Any

import numpy as np
import torch


def tensor_of(array: Any) -> torch.Tensor | None:
    """A tensor over the memory of a NumPy array; None where no tensor can have that memory, or writing to it is
    forbidden."""
    if type(array) is not np.ndarray or not array.flags.writeable:
        return None
    try:
        return torch.from_numpy(array)
    except (TypeError, ValueError):  # dtypes that torch lacks; strides that are negative or no multiple of an item
        return None
