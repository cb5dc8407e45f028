"""Operators on real tensors, while a graph is traced on fake ones."""
from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch.utils._python_dispatch import _disable_current_modes


@contextmanager
def without_modes() -> Iterator[None]:
    """Outside of all dispatch modes and of functionalization, without gradients."""
    functionalize = torch._C.DispatchKeySet(torch._C.DispatchKey.Functionalize)
    with _disable_current_modes(), torch._C._ExcludeDispatchKeyGuard(functionalize), torch.no_grad():
        yield
