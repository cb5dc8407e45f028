"""torch's global settings (grad mode, autocast, default dtype, ...): their values at compilation, and what changed.

C++ compares them in one guard and reports at most which field differs; here each difference has its public name, the
value before and after, and what would avoid the change.
"""
from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import torch
from torch.autograd import forward_ad
from torch.utils._device import DeviceContext

from .describe import type_name

_AUTOCAST_DEVICES = ("cpu", "cuda")  # the first two of torch's list of devices with autocast; others go by number


@dataclass(frozen=True)
class Setting:
    """The public name of one setting, and what avoids a recompilation when it changes."""

    words: str
    hint: str


_SETTINGS: dict[str, Setting] = {
    "grad_mode": Setting(
        "grad mode",
        "call the function always inside of torch.no_grad() or always outside, or accept one compilation for each",
    ),
    "inference_mode": Setting(
        "inference mode", "call the function always inside of torch.inference_mode() or always outside"
    ),
    "forward_ad": Setting(
        "a level of forward AD", "open it inside of the function: what is called in one runs in eager"
    ),
    "deterministic_algorithms": Setting(
        "torch.use_deterministic_algorithms", "set it once, before the function is called for the first time"
    ),
    "deterministic_algorithms_warn_only": Setting(
        "torch.use_deterministic_algorithms(warn_only=...)", "set it once, before the function is called"
    ),
    "default_dtype": Setting(
        "the default dtype", "set it once (torch.set_default_dtype), before the function is called"
    ),
    "default_device": Setting(
        "the default device", "set it once (torch.set_default_device), before the function is called"
    ),
    "num_threads": Setting("the number of threads", "call torch.set_num_threads once, before the function is called"),
    "allow_tf32": Setting(
        "float32 matrix products in TF32", "set the precision of matrix products once, before the call"
    ),
    "torch_function": Setting("handling of __torch_function__", "call the function under the same handling"),
    "function_modes": Setting(
        "the default device (torch.set_default_device, `with torch.device(...)`) or another torch function mode",
        "set it once before the first call, or call the function always inside of the `with` block or always outside",
    ),
}

Difference = tuple[str, str, str, str]
"""(setting, before, now, hint), as messages show them."""


def settings_now(guard: Any = None) -> dict[str, str]:
    """All settings as strings, by name; those in `guard` (a C++ GlobalStateGuard) as they were when it was made."""
    found = _flat(json.loads(guard.__getstate__())) if hasattr(guard, "__getstate__") else {}
    modes = [torch._C._get_function_stack_at(i) for i in range(torch._C._len_torch_function_stack())]
    found["function_modes"] = ", ".join(map(_mode_text, modes)) or "none"
    found["forward_ad"] = _text(forward_ad._current_level >= 0)
    found["inference_mode"] = _text(torch.is_inference_mode_enabled())
    return found


def differences(before: dict[str, str], now: dict[str, str]) -> list[Difference]:
    """What changed; a setting that only one side has is left out."""
    rows = []
    for name in before:
        if name in now and before[name] != now[name]:
            setting = _SETTINGS.get(name) or _autocast(name)
            rows.append((setting.words, before[name], now[name], setting.hint))
    return rows


def settings_text(settings: dict[str, str]) -> str:
    """The settings in words: grad mode, and all that are on or have a value."""
    off = ("off", "none", "0")
    shown = [f"{(_SETTINGS.get(name) or _autocast(name)).words} {value}" for name, value in settings.items()
             if name == "grad_mode"
             or (value not in off and settings.get(name.replace("autocast's dtype", "autocast")) not in off)]
    return f"torch's settings: {', '.join(shown)}; all others are off"


def _autocast(name: str) -> Setting:
    if name.startswith("autocast"):
        return Setting(name, "call the function always inside of torch.autocast or always outside")
    return Setting(name.replace("_", " "), "set it once, before the function is called")


def _flat(state: dict[str, Any]) -> dict[str, str]:
    found: dict[str, str] = {}
    autocast = state.pop("autocast_state", {})
    for number, enabled in enumerate(autocast.get("enabled", ())):
        device = _AUTOCAST_DEVICES[number] if number < len(_AUTOCAST_DEVICES) else f"device {number}"
        dtype = autocast["dtype"][number]
        found[f"autocast on {device}"] = _text(enabled)
        found[f"autocast's dtype on {device}"] = _DTYPES.get(dtype, str(dtype))
    for name, value in state.items():
        found[name] = _DTYPES.get(value, str(value)) if name == "default_dtype" else _text(value)
    return found


def _mode_text(mode: Any) -> str:
    return f"device {mode.device}" if isinstance(mode, DeviceContext) else type_name(type(mode))


def _text(value: Any) -> str:
    return ("on" if value else "off") if isinstance(value, bool) else str(value)


_DTYPES = {5: "torch.float16", 6: "torch.float32", 7: "torch.float64", 15: "torch.bfloat16"}
"""c10::ScalarType by number, those that may be a default or autocast's."""
