"""The modes of torch that traced code sets: gradients, autocast, default dtype, attention, functorch levels.

They are set for real while a frame is traced, so that fake results are what eager would give. Each attempt to trace,
and each run of a graph that sets modes, restores the previous modes when it raises.
"""
from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from functools import wraps
from typing import Any, ParamSpec, TypeVar

import torch
import torch.autograd.forward_ad as forward_ad
from torch._C import _functorch
from torch.autograd.grad_mode import _exit_inference_mode
from torch.overrides import _get_current_function_mode_stack
from torch.utils import _device
from torch.utils._python_dispatch import _pop_mode

from ...operators.graph_calls import INFERENCE_MODES, set_deterministic

_DEVICES = ("cpu", "cuda")

_SHARED = frozenset(("default_dtype", "deterministic", "anomaly", "attention"))
"""Modes that all threads share: where a frame sets none of them, a change comes from another thread."""

P = ParamSpec("P")
R = TypeVar("R")


@dataclass(frozen=True)
class Modes:
    """The modes at one moment. A graph may leave those of `LASTING` changed; the others end with the block that sets
    them."""

    inference: bool
    grad: bool
    forward_grad: bool
    autocast: tuple[tuple[bool, torch.dtype], ...]
    autocast_cache: bool
    autocast_depth: int
    default_dtype: torch.dtype
    deterministic: tuple[bool, bool]
    anomaly: tuple[bool, bool]
    attention: tuple[tuple[bool, ...], tuple[int, ...]]
    in_place_requires_grad: bool
    saved_tensors_error: str | None
    functorch_depth: int
    default_device: tuple[Any, ...]

    @classmethod
    def now(cls) -> Modes:
        """The current modes of this thread."""
        return cls(
            inference=torch.is_inference_mode_enabled(),
            grad=torch.is_grad_enabled(),
            forward_grad=torch._C._is_fwd_grad_enabled(),
            autocast=tuple([(torch.is_autocast_enabled(d), torch.get_autocast_dtype(d)) for d in _DEVICES]),
            autocast_cache=torch.is_autocast_cache_enabled(),
            autocast_depth=_autocast_depth(),
            default_dtype=torch.get_default_dtype(),
            deterministic=(
                torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled(),
            ),
            anomaly=(torch.is_anomaly_enabled(), torch.is_anomaly_check_nan_enabled()),
            attention=_attention(),
            in_place_requires_grad=_functorch.get_inplace_requires_grad_allowed(),
            saved_tensors_error=torch._C._autograd._saved_tensors_hooks_get_disabled_error_message(),
            functorch_depth=_functorch.get_dynamic_layer_stack_depth(),
            default_device=(_device.CURRENT_DEVICE, *_get_current_function_mode_stack()),
        )

    def autocast_dtype(self, device: str) -> torch.dtype:
        """Autocast's dtype on a device type; the current one where no trace sets it."""
        return self.autocast[_DEVICES.index(device)][1] if device in _DEVICES else torch.get_autocast_dtype(device)

    def differences(self, other: Modes, shared: bool = True) -> tuple[str, ...]:
        """The names of the modes in which `other` differs. `shared`: also modes that all threads share."""
        names = [f.name for f in fields(self) if shared or f.name not in _SHARED]
        return tuple([name for name in names if getattr(self, name) != getattr(other, name)])

    def entered_device(self, function: Any, kwargs: Mapping[str, Any]) -> dict[str, torch.device]:
        """The arguments that the innermost traced `with torch.device(...)` adds to a call of a torch function."""
        modes = _get_current_function_mode_stack()[len(self.default_device) - 1 :]
        devices = [mode.device for mode in modes if isinstance(mode, _device.DeviceContext)]
        if not devices or kwargs.get("device") is not None or function not in _device._device_constructors():
            return {}
        return {"device": devices[-1]}

    def restore(self, shared: bool = True) -> None:
        """Set these modes again, except the inference mode, which ends with the object that holds it. `shared`: also
        modes that all threads share."""
        if shared:  # like forward AD's level
            _leave_dual_level()
        now = Modes.now()
        if now == self:
            return
        _leave_levels(self.functorch_depth)
        for name in self.differences(now, shared):
            if name in _SETTERS:
                _SETTERS[name](getattr(self, name))
        torch._C._set_grad_enabled(self.grad)


def inference_modes_entered() -> int:
    """How many inference modes this thread's traces and graphs are in."""
    return len(INFERENCE_MODES.modes)


def leave_blocks(inference_modes: int, levels: int) -> None:
    """Leave all but so many inference modes and levels of torch.func, innermost first: each puts back settings of torch
    that the other sets, too."""
    while len(INFERENCE_MODES.modes) > inference_modes:
        held, below = INFERENCE_MODES.modes.pop()
        _leave_levels(below)
        _exit_inference_mode(held)
    _leave_levels(levels)


def _leave_levels(depth: int) -> None:
    while _functorch.get_dynamic_layer_stack_depth() > depth:
        _LEAVE_LEVEL[_functorch.peek_interpreter_stack().key()]()


def _leave_dual_level() -> None:
    """Leave the forward AD level that a graph left open. C++ has at most one, and only reports it by refusing a
    second."""
    if forward_ad._current_level >= 0:
        return
    try:
        level = torch._C._enter_dual_level()
    except RuntimeError:
        level = 0
    torch._C._exit_dual_level(level=level)


_LEAVE_LEVEL = {
    _functorch.TransformType.Vmap: _functorch._vmap_decrement_nesting,
    _functorch.TransformType.Grad: _functorch._grad_decrement_nesting,
    _functorch.TransformType.Jvp: _functorch._jvp_decrement_nesting,
    _functorch.TransformType.Functionalize: _functorch._func_decrement_nesting,
}

_KINDS = ("flash", "mem_efficient", "math", "cudnn", "overrideable", "fa3")
ATTENTION = [name for name in _KINDS if hasattr(torch._C, f"_set_sdp_use_{name}")]
"""The attention backends that can be enabled."""


def _set_autocast(states: Sequence[tuple[bool, torch.dtype]]) -> None:
    for device, (enabled, dtype) in zip(_DEVICES, states):
        torch.set_autocast_enabled(device, enabled)
        torch.set_autocast_dtype(device, dtype)
    torch.clear_autocast_cache()


def _autocast_depth() -> int:
    """How many autocast blocks are open. torch returns it only from the functions that count."""
    torch.autocast_increment_nesting()
    return torch.autocast_decrement_nesting()


def _set_autocast_depth(depth: int) -> None:
    """Set the nesting depth of autocast. torch clears its cache of cast weights only at depth 0; with a wrong depth a
    weight that changes would not be cast again."""
    while _autocast_depth() < depth:
        torch.autocast_increment_nesting()
    while _autocast_depth() > depth:
        torch.autocast_decrement_nesting()
    if depth == 0:
        torch.clear_autocast_cache()


def _attention() -> tuple[tuple[bool, ...], tuple[int, ...]]:
    """Which attention backends are enabled, and in which order they are tried."""
    enabled = tuple([getattr(torch._C, f"_get_{name}_sdp_enabled")() for name in ATTENTION])
    return enabled, tuple(torch._C._get_sdp_priority_order())


def _set_attention(state: tuple[tuple[bool, ...], tuple[int, ...]]) -> None:
    for name, on in zip(ATTENTION, state[0]):
        getattr(torch._C, f"_set_sdp_use_{name}")(on)
    torch._C._set_sdp_priority_order(list(state[1]))


def set_saved_tensors_error(message: str | None) -> None:
    """Set the message with which saved tensors hooks are refused; None: they are allowed."""
    if message is None:
        torch._C._autograd._saved_tensors_hooks_enable()
    else:
        torch._C._autograd._saved_tensors_hooks_disable(message)


def _set_default_device(state: tuple[Any, ...]) -> None:
    """(the device of torch.set_default_device, the function modes, `with torch.device(...)` among them)."""
    _device.CURRENT_DEVICE, *modes = state
    while torch._C._len_torch_function_stack():
        torch._C._pop_torch_function_stack()
    for mode in modes:
        torch._C._push_on_torch_function_stack(mode)


_SETTERS: dict[str, Callable[[Any], None]] = {
    "grad": torch._C._set_grad_enabled,
    "forward_grad": torch._C._set_fwd_grad_enabled,
    "autocast": _set_autocast,
    "autocast_cache": torch.set_autocast_cache_enabled,
    "autocast_depth": _set_autocast_depth,
    "default_dtype": torch.set_default_dtype,
    "deterministic": set_deterministic,
    "anomaly": lambda state: torch._C.set_anomaly_enabled(*state),
    "attention": _set_attention,
    "in_place_requires_grad": _functorch.set_inplace_requires_grad_allowed,
    "saved_tensors_error": set_saved_tensors_error,
    "default_device": _set_default_device,
}

LASTING: dict[str, Callable[[Any], Any]] = {
    "grad": torch._C._set_grad_enabled, "default_dtype": torch.set_default_dtype, "deterministic": set_deterministic,
}  # fmt: skip
"""Modes that a plain call sets for good, with their setters: the frame sets them again after its graph."""


@contextmanager
def keeping_modes() -> Iterator[None]:
    """Restore the modes when the block raises: the exception may have come between the start of a mode and its end.
    Expects no dispatch mode before."""
    before = Modes.now()
    try:
        yield
    except BaseException:
        while torch._C._len_torch_dispatch_stack():
            _pop_mode()
        torch._C._set_only_lift_cpu_tensors(False)
        before.restore(shared=False)
        raise


def without_overrides(function: Callable[P, R]) -> Callable[P, R]:
    """`function` with `__torch_function__` overrides disabled: the tracer reads tensors, not the user."""

    @wraps(function)
    def run(*args: P.args, **kwargs: P.kwargs) -> R:
        with torch._C.DisableTorchFunctionSubclass():
            return function(*args, **kwargs)

    return run


@contextmanager
def without_saved_tensors_hooks() -> Iterator[None]:
    """Hide the user's saved tensors hooks from fake tensors."""
    if torch._C._autograd._top_saved_tensors_default_hooks(True) is None:
        yield
        return
    torch._C._autograd._push_saved_tensors_default_hooks(_unchanged, _unchanged)
    try:
        yield
    finally:
        torch._C._autograd._pop_saved_tensors_default_hooks()


def _unchanged(tensor: torch.Tensor) -> torch.Tensor:
    return tensor


def protected(graph: Callable[..., Sequence[Any]], before: Modes) -> Callable[..., Sequence[Any]]:
    """`graph`, which sets modes itself, restoring `before` when it raises, as eager leaves its blocks then.

    `before` are the modes that guards check at each call, so a call that succeeds need not look.
    """

    def run(*inputs: Any) -> Sequence[Any]:
        entered = inference_modes_entered()
        try:
            return graph(*inputs)
        except BaseException:
            leave_blocks(entered, before.functorch_depth)
            before.restore()
            raise

    return run
