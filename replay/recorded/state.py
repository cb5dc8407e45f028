"""The state of the process around a recorded call: read when it is recorded, restored around each replay of it.

torch's results depend on more than its arguments: autocast, default dtype and device, deterministic algorithms, the
precision of float32 products, which libraries may be used, and the state of the random number generators.
"""
from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch.overrides import _get_current_function_mode_stack
from torch.utils._device import DeviceContext

from ...artifacts.records import Autocast, ProcessState

SEED = 0
"""Of each run, so that random operators of all of them draw the same numbers, where the call's own state is unknown."""

AUTOCAST_DEVICES = ("cpu", "cuda")


@dataclass(frozen=True)
class Flag:
    """A global setting of torch: how it is read and set, and the Python that sets it ("{}" is the value)."""

    read: Callable[[], Any]
    set: Callable[[Any], Any]
    text: str


def _c(name: str, setter: str = "") -> Flag:
    setter = setter or f"_set_{name}"
    return Flag(getattr(torch._C, f"_get_{name}"), getattr(torch._C, setter), f"torch._C.{setter}({{!r}})")


def _precision(backend: str, operation: str) -> Flag:
    return Flag(partial(torch._C._get_fp32_precision_getter, backend, operation),
                partial(torch._C._set_fp32_precision_setter, backend, operation),
                f"torch._C._set_fp32_precision_setter({backend!r}, {operation!r}, {{!r}})")


def _set_deterministic(value: str) -> None:
    torch._C._set_deterministic_algorithms(value != "off", warn_only=value == "warn")


def _deterministic() -> str:
    if not torch._C._get_deterministic_algorithms():
        return "off"
    return "warn" if torch._C._get_deterministic_algorithms_warn_only() else "on"


_SDP = ("flash", "mem_efficient", "math", "cudnn", "overrideable", "fa3")
FLAGS: dict[str, Flag] = {
    "deterministic_algorithms": Flag(_deterministic, _set_deterministic, ""),  # see replay/repro/state_source.py
    "fill_uninitialized_memory": _c("deterministic_fill_uninitialized_memory"),
    "float32_matmul_precision": replace(
        _c("float32_matmul_precision"), text="torch.set_float32_matmul_precision({!r})"),
    **{f"fp32_precision.{backend}.{operation}": _precision(backend, operation)
       for backend, operation in (("generic", "all"), *(
           (backend, operation) for backend in ("mkldnn", "cuda") for operation in ("all", "matmul", "conv", "rnn")))},
    **{name: _c(name) for name in (
        "mkldnn_enabled", "mkldnn_deterministic", "nnpack_enabled", "cudnn_enabled", "cudnn_benchmark",
        "cudnn_deterministic", "cublas_allow_fp16_accumulation",
        "cpu_allow_fp16_reduced_precision_reduction", "math_sdp_allow_fp16_bf16_reduction",
    ) if hasattr(torch._C, f"_get_{name}") and hasattr(torch._C, f"_set_{name}")},
    **{f"sdp_{name}": _c(f"{name}_sdp_enabled", f"_set_sdp_use_{name}") for name in _SDP
       if hasattr(torch._C, f"_get_{name}_sdp_enabled")},
}  # fmt: skip
"""By the name in recordings; in the order in which they are set: the narrower one later."""


def read_state() -> ProcessState:
    """torch's global state now."""
    flags = {}
    for name, flag in FLAGS.items():
        with suppress(RuntimeError):  # a mixture of torch's old and new settings, of which it has no single value
            flags[name] = flag.read()
    autocast = {
        device: Autocast(torch.is_autocast_enabled(device), _name(torch.get_autocast_dtype(device)))
        for device in AUTOCAST_DEVICES
    }
    return ProcessState(
        torch.is_grad_enabled(), torch.is_inference_mode_enabled(), _name(torch.get_default_dtype()),
        _default_device(), autocast, torch.is_autocast_cache_enabled(), flags,
    )


def _default_device() -> str:
    """The one that the program has set, "" for none."""
    modes = reversed(_get_current_function_mode_stack())
    return next((str(mode.device) for mode in modes if isinstance(mode, DeviceContext)), "")


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


@contextmanager
def restored(state: ProcessState | None, random: Mapping[str, torch.Tensor] | None = None,
             device: str = "") -> Iterator[None]:
    """Inside, torch's global state is `state`, and each run starts from the states of generators in `random`; on
    `device`, if given, instead of the default device of that time. What torch does not know stays as it is."""
    with ExitStack() as stack:
        start = _START.set(random or {})
        stack.callback(_START.reset, start)
        if state is not None:
            stack.enter_context(_settings(state))
            stack.enter_context(torch.inference_mode(state.inference))
            stack.enter_context(torch.set_grad_enabled(state.grad))
            if state.device:
                stack.enter_context(torch.device(_on(state.device, device)))
        yield


def _on(default: str, device: str) -> str:
    return default if default == "meta" or not device else device


def settings_kept() -> AbstractContextManager[None]:
    """Dtype, autocast and flags are afterwards as they are now."""
    return _settings(read_state())


@contextmanager
def _settings(state: ProcessState) -> Iterator[None]:
    """Dtype, autocast and flags; afterwards as they were."""
    before = read_state()
    torch.autocast_increment_nesting()
    try:
        _apply(state)
        yield
    finally:
        _apply(before)
        if not torch.autocast_decrement_nesting():
            torch.clear_autocast_cache()


def _apply(state: ProcessState) -> None:
    dtype = getattr(torch, state.dtype, None)
    if isinstance(dtype, torch.dtype) and dtype.is_floating_point:
        torch.set_default_dtype(dtype)
    for device, cast in state.autocast.items():
        to = getattr(torch, cast.dtype, None)
        if device in AUTOCAST_DEVICES and isinstance(to, torch.dtype):
            torch.set_autocast_enabled(device, cast.enabled)
            torch.set_autocast_dtype(device, to)
    torch.set_autocast_cache_enabled(state.autocast_cache)
    for name, flag in (*FLAGS.items(), *FLAGS.items()):  # twice: some set others, too
        with suppress(RuntimeError, TypeError):  # a value that this torch does not know
            if name in state.flags and flag.read() != state.flags[name]:
                flag.set(state.flags[name])


# ---- random numbers -------------------------------------------------------------------------------------------------
_START: ContextVar[Mapping[str, torch.Tensor] | None] = ContextVar("start", default=None)


def random_state() -> dict[str, torch.Tensor]:
    """The states of torch's generators, by device."""
    states = {"cpu": torch.get_rng_state()}
    if torch.cuda.is_initialized():
        states |= {f"cuda:{i}": state for i, state in enumerate(torch.cuda.get_rng_state_all())}
    return states


def start_random(states: Mapping[str, torch.Tensor]) -> None:
    """Let random numbers start as they did at the call, or from SEED on devices of which nothing is known."""
    torch.manual_seed(SEED)
    for device, state in states.items():
        if device == "cpu":
            torch.set_rng_state(state)
        elif torch.cuda.is_available() and int(device.rpartition(":")[2]) < torch.cuda.device_count():
            torch.cuda.set_rng_state(state, device)


@contextmanager
def deterministic(states: Mapping[str, torch.Tensor] | None = None) -> Iterator[None]:
    """Random operators start from the same state each time: from `states`, else that of the recorded call, if it was
    kept."""
    cuda = range(torch.cuda.device_count()) if torch.cuda.is_initialized() else ()  # which a child of fork cannot start
    with torch.random.fork_rng(cuda):
        start_random(states or _START.get() or {})
        torch.clear_autocast_cache()
        yield


@contextmanager
def as_compiled() -> Iterator[None]:
    """What follows captured graphs has its casts inside: it runs without autocast."""
    with torch._C._DisableAutocast():
        yield
