"""Function modes (`TorchFunctionMode`) that are active where the user calls a compiled function: the call is traced as
if it entered them itself. While it runs they are removed from torch's stack, so that neither tracing nor the compiled
graph calls them again; what runs in eager, such as an instruction that breaks the graph, is under them again."""
from __future__ import annotations

from collections.abc import Callable, Mapping
from types import FunctionType
from typing import Any

import torch
from torch.overrides import _get_current_function_mode_stack
from torch.utils._device import DeviceContext


def take_off() -> tuple[Any, ...]:
    """Remove the user's modes from the stack; returns them, outermost first. None where one is torch's, which may be
    tracing itself, or where function modes are disabled."""
    modes = _get_current_function_mode_stack()
    if not torch._C._is_torch_function_mode_enabled():
        return ()
    while modes and isinstance(modes[0], DeviceContext):  # `with torch.device(...)`, a mode that the tracer models
        del modes[0]
    if any(type(mode).__module__.partition(".")[0] == "torch" for mode in modes):
        return ()
    for _ in modes:
        torch._C._pop_torch_function_stack()
    return tuple(modes)


def put_back(modes: tuple[Any, ...]) -> None:
    """Activate the modes again."""
    for mode in modes:
        torch._C._push_on_torch_function_stack(mode)


class InForce:
    """A block in which a mode is active. The mode's own `__enter__` ran when the user entered it."""

    def __init__(self, mode: Any) -> None:
        self.mode = mode

    def __enter__(self) -> None:
        torch._C._push_on_torch_function_stack(self.mode)

    def __exit__(self, *_: object) -> None:
        torch._C._pop_torch_function_stack()


def under(
    modes: tuple[Any, ...], function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> Any:
    """`function(*args, **kwargs)` under these modes."""
    if not modes:
        return function(*args, **kwargs)
    with InForce(modes[0]):
        return under(modes[1:], function, args, kwargs)


def own_under() -> Callable[..., Any]:
    """`under` with a separate code object: torch keeps entries by code object."""
    code = under.__code__.replace()
    return FunctionType(code, under.__globals__, under.__name__, None, under.__closure__)
