"""The state of the process around a call, as statements of a script."""
from __future__ import annotations

from collections.abc import Iterator

from ...artifacts.records import ProcessState
from ..recorded.state import FLAGS, read_state


def state_lines(state: ProcessState | None) -> list[str]:
    """Statements that bring a fresh process (as this one is) to `state`; none for what is so anyway."""
    return list(_lines(state, read_state())) if state is not None else []


def _lines(state: ProcessState, fresh: ProcessState) -> Iterator[str]:
    if state.dtype != fresh.dtype:
        yield f"torch.set_default_dtype(torch.{_word(state.dtype)})"
    if state.device and state.device != fresh.device:
        yield f"torch.set_default_device({state.device!r})"
    for device, cast in state.autocast.items():
        before = fresh.autocast.get(device)
        if cast.enabled and cast != before:
            yield f"torch.set_autocast_enabled({device!r}, True)"
            yield f"torch.set_autocast_dtype({device!r}, torch.{_word(cast.dtype)})"
    if state.autocast_cache != fresh.autocast_cache:
        yield f"torch.set_autocast_cache_enabled({bool(state.autocast_cache)})"
    changed = {name: value for name, value in state.flags.items()
               if name in FLAGS and name in fresh.flags and value != fresh.flags[name]}
    for name, value in changed.items():
        if name == "deterministic_algorithms":
            yield f"torch.use_deterministic_algorithms({value != 'off'}, warn_only={value == 'warn'})"
        elif "float32_matmul_precision" not in changed or not name.startswith("fp32_precision."):  # which it sets
            yield FLAGS[name].text.format(value)


def _word(name: str) -> str:
    """A name of torch; what is recorded may be anything."""
    return name if name.isidentifier() else "float32"
