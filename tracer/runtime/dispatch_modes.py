"""Other observers of a frame, for which it runs in eager: a graph would hide its operators from them."""
from __future__ import annotations

import torch
from torch.autograd import forward_ad
from torch.overrides import _get_current_function_mode_stack
from torch.utils._device import DeviceContext
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack


def current_observer() -> str:
    """The observer in words: a dispatch or function mode, torch.jit.trace, a functorch transform, or a forward AD level
    outside of the frame (fake tensors have no tangents). "" without one."""
    if torch._C._len_torch_dispatch_stack() > 0:
        return f"the dispatch mode {_own_dispatch_mode() or 'of a tracer of torch'}"
    for mode in _get_current_function_mode_stack() if torch._C._len_torch_function_stack() else ():
        if not isinstance(mode, DeviceContext):
            return f"the torch function mode {type(mode).__qualname__}"
    if torch._C._get_tracing_state() is not None:
        return "torch.jit.trace"
    if torch._C._functorch.peek_interpreter_stack() is not None:
        return "a transform of torch.func"
    return "a level of forward AD" if forward_ad._current_level >= 0 else ""


def _own_dispatch_mode() -> str:
    """The name of the user's innermost dispatch mode, "" for none: torch uses some of its own while tracing."""
    modes = [mode for mode in _get_current_dispatch_mode_stack() if not type(mode).is_infra_mode()]
    return type(modes[-1]).__qualname__ if modes else ""


def has_own_dispatch_mode() -> bool:
    """Whether one of the user's dispatch modes is active."""
    return bool(torch._C._len_torch_dispatch_stack() and _own_dispatch_mode())
