"""A mode that notes what is called."""
# mypy: ignore-errors
from __future__ import annotations

from torch.overrides import TorchFunctionMode


class Log(TorchFunctionMode):
    """Notes the functions that are called."""

    def __init__(self):
        self.names = []

    def __torch_function__(self, func, types, args=(), kwargs=None):
        self.names.append(func.__name__)
        return func(*args, **(kwargs or {}))
