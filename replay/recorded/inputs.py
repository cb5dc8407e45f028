"""The saved inputs of a compiled graph as tensors: same strides, same aliasing."""
from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open

from ...artifacts.files import NotAFileOfIt, plain_file
from ...artifacts.listing import plural
from ...artifacts.recording import Recording, RecordingError
from ...artifacts.records import Graph, SavedInput, SavedInputs, TensorMeta
from .graphs import ReplayError, dtype
from .memory import seen, storage_bytes
from .synthesized import described, synthesized


@dataclass(frozen=True)
class Inputs:
    """The inputs of a call: their record, their values on the CPU, and what was made up ("" if they were kept)."""

    kept: SavedInputs
    values: tuple[Any, ...]
    made_up: str = ""


def load_inputs(folder: Path, saved: SavedInputs) -> tuple[Any, ...]:
    """The values of the graph's placeholders in order, on the CPU.

    Raises ReplayError if the values were not saved or their file is damaged.
    """
    flat = read_tensors(folder, saved)
    return tuple(load_input(item, flat) for item in saved.inputs)


def read_tensors(folder: Path, saved: SavedInputs) -> dict[str, torch.Tensor]:
    """The flat tensors that hold the values of the inputs. Raises ReplayError as `load_inputs` does."""
    if not saved.file:
        why = saved.note or "no reason given"
        raise ReplayError(f"the inputs of this graph were not saved ({why}); record again with --inputs first")
    try:
        path = plain_file(folder, saved.file)
        with safe_open(path, "pt") as file:
            return {key: file.get_tensor(key) for key in file.keys() if not key.startswith(RANDOM)}
    except (OSError, SafetensorError, NotAFileOfIt) as error:
        raise ReplayError(f"{folder / saved.file} cannot be read ({error}): record again") from error


def load_input(item: SavedInput, flat: Mapping[str, torch.Tensor]) -> Any:
    """One input. Raises ReplayError if its metadata does not fit the saved data."""
    meta, value = item.meta, item.value
    if meta is None:
        if not isinstance(value, (bool, int, float, str, type(None))):
            raise ReplayError(f"the recording is damaged: the input {item.name!r} is not a plain value")
        return value
    kind = dtype(meta.dtype)
    try:
        shape, stride, offset = [int(s) for s in meta.shape], [int(s) for s in meta.stride], int(meta.offset)
        if meta.device == "meta":
            return torch.empty_strided(shape, stride, dtype=kind, device="meta")
        memory = flat[item.tensor]
        if memory.dtype not in (kind, torch.uint8):
            raise ValueError(f"its values are {memory.dtype}")
        return seen(memory, kind, shape, stride, offset, item.conjugated, item.negated)  # which checks the sizes
    except (ValueError, KeyError, RuntimeError, OverflowError, TypeError) as error:
        why = str(error).partition("\n")[0]  # torch's errors go on with its own stack
        raise ReplayError(f"the recording is damaged: the input {item.name!r} does not fit the saved data ({why})"
                          ) from error


RANDOM = "random:"
"""Before the names of devices in the file of a call's inputs: the states of their random number generators."""
_OF_A_CALL = re.compile(r"inputs(?:_(\d+))?")  # the name of the record


def load_random(folder: Path, saved: SavedInputs) -> dict[str, torch.Tensor]:
    """The states of the random number generators before the call, by device; empty where they were not kept."""
    if not saved.file:
        return {}
    try:
        with safe_open(plain_file(folder, saved.file), "pt") as file:
            found = {key.removeprefix(RANDOM): file.get_tensor(key) for key in file.keys() if key.startswith(RANDOM)}
    except (OSError, SafetensorError, NotAFileOfIt):
        return {}
    return {device: state for device, state in found.items() if _DEVICE.match(device) and _is_state(device, state)}


_DEVICE = re.compile(r"cpu$|cuda:\d{1,2}$")


def _is_state(device: str, state: torch.Tensor) -> bool:
    """Whether the tensor is what a generator of that device takes."""
    if device == "cpu":
        try:
            torch.Generator().set_state(state)
        except (RuntimeError, TypeError):
            return False
        return True
    return state.dtype is torch.uint8 and state.shape == (16,)


def clones(values: tuple[Any, ...], device: str = "cpu", dtype: torch.dtype | None = None) -> tuple[Any, ...]:
    """Fresh copies of `values` on `device`, floating tensors in `dtype` if given, for a run that shows how far
    rounding may go: tensors that gain no precision by it are perturbed (see `_nudged`).

    Tensors that share storage keep sharing it, with the same offsets. Raises TypeError for `dtype` where tensors see
    one storage with several dtypes, which would no longer be the same bytes.
    """
    copies: dict[int, tuple[torch.dtype, torch.Tensor]] = {}

    def clone(value: Any) -> Any:
        if not isinstance(value, torch.Tensor) or value.is_meta:
            return value
        key = value.untyped_storage()._cdata
        if key not in copies:
            copies[key] = value.dtype, _copy(value, device, dtype)
        seen_as, memory = copies[key]
        if dtype is not None and seen_as != value.dtype:
            raise TypeError("tensors see one storage with several dtypes")
        kind = value.dtype if dtype is None else memory.dtype
        return seen(memory, kind, value.shape, value.stride(), int(value.storage_offset()), value.is_conj(),
                    value.is_neg())

    return tuple(clone(v) for v in values)


def _copy(value: torch.Tensor, device: str, dtype: torch.dtype | None) -> torch.Tensor:
    """The storage of a tensor on `device`, its numbers in `dtype` where they are floating."""
    memory = storage_bytes(value)
    memory = memory[: len(memory) // value.element_size() * value.element_size()].view(value.dtype)
    wanted = value.dtype
    if dtype is not None and (value.is_floating_point() or value.is_complex()):
        wanted = torch.complex128 if value.is_complex() else dtype
    copy = memory.to(device=device, dtype=wanted, copy=True)
    if dtype is not None and wanted == value.dtype and wanted in (torch.float64, torch.complex128):
        return _nudged(copy)
    return copy


def _nudged(numbers: torch.Tensor) -> torch.Tensor:
    """Each number a unit in the last place or so away: how far results then move tells how much of them is rounding
    (as stochastic arithmetic does, Vignes 1993). Integral values stay: programs compare with them."""
    if numbers.is_complex():
        return torch.view_as_complex(_nudged(torch.view_as_real(numbers)))
    generator = torch.Generator().manual_seed(0)
    signs = torch.randint(0, 2, numbers.shape, generator=generator, device="cpu").to(numbers) * 2 - 1
    return torch.where(numbers == numbers.round(), numbers, numbers * (1 + torch.finfo(numbers.dtype).eps * signs))


def kept_or_made_up(recording: Recording, compile_id: str, graph: Graph, call: int = 0) -> Inputs:
    """The inputs of one call of a graph; made up where only their metadata was kept, or nothing.

    Raises ReplayError for a call that was not recorded, and for inputs that cannot be made up."""
    name = f"inputs_{call}" if call else "inputs"
    try:
        kept = recording.artifact(compile_id, "runtime", name)
    except RecordingError:
        if call:
            raise ReplayError(not_saved(recording, compile_id, call)) from None
        kept = described(graph)
    if not isinstance(kept, SavedInputs):
        raise ReplayError(f"{compile_id}:runtime is a {type(kept).__name__}, which it should not be")
    if kept.file or not kept.inputs:
        return Inputs(kept, load_inputs(recording.path, kept))
    return Inputs(kept, synthesized(kept), f"made up from recorded metadata: values were not kept ({kept.note})")


def not_saved(recording: Recording, compile_id: str, call: int) -> str:
    """In words, that the inputs of a call were not saved, and those of which calls were."""
    named = [_OF_A_CALL.fullmatch(i.name) for i in recording.artifacts(compile_id, kind="SavedInputs")]
    calls = sorted(int(name[1] or 0) for name in named if name)
    which = f"those of {plural(len(calls), 'call')} were: {', '.join(map(str, calls))}" if calls else "none were"
    return f"the inputs of call {call} of {compile_id} were not saved ({which}): record with --inputs all"


def recorded_devices(recording: Recording, compile_ids: Iterable[str]) -> set[str]:
    """The kinds of devices that the inputs of these graphs were on."""
    found = set()
    for compile_id in compile_ids:
        try:
            kept = recording.artifact(compile_id, "runtime", "inputs")
        except RecordingError:
            continue
        for item in kept.inputs if isinstance(kept, SavedInputs) else ():
            found.add(item.meta.device.partition(":")[0] if item.meta is not None else "")
    return found


def bind_symbols(graph: Graph, inputs: tuple[Any, ...]) -> dict[str, float]:
    """The value of each symbol of `graph` (a dynamic size or number), read from the inputs whose size it is."""
    symbols: dict[str, float] = {}
    placeholders = [node for node in graph.nodes if node.op == "placeholder"]
    for node, value in zip(placeholders, inputs):
        meta = node.value
        if isinstance(meta, TensorMeta) and isinstance(value, torch.Tensor):
            for names, numbers in ((meta.shape, value.shape), (meta.stride, value.stride())):
                symbols.update({n: int(v) for n, v in zip(names, numbers) if isinstance(n, str) and n.isidentifier()})
        elif isinstance(meta, str) and meta.isidentifier() and isinstance(value, (int, float)):
            symbols[meta] = value
    return symbols
