"""The saved inputs of a compiled graph as tensors: same strides, same aliasing."""
from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open

from ...artifacts.files import NotAFileOfIt, plain_file
from ...artifacts.records import Graph, SavedInput, SavedInputs, TensorMeta
from .graphs import ReplayError, dtype


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
            return {key: file.get_tensor(key) for key in file.keys()}
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
        if flat[item.tensor].dtype != kind:
            raise ValueError(f"its values are {flat[item.tensor].dtype}")
        return flat[item.tensor].as_strided(shape, stride, offset)  # which checks them against the memory
    except (ValueError, KeyError, RuntimeError, OverflowError, TypeError) as error:
        why = str(error).partition("\n")[0]  # torch's errors go on with its own stack
        raise ReplayError(f"the recording is damaged: the input {item.name!r} does not fit the saved data ({why})"
                          ) from error


def clones(values: tuple[Any, ...], device: str = "cpu", dtype: torch.dtype | None = None) -> tuple[Any, ...]:
    """Fresh copies of `values` on `device`, floating tensors in `dtype` if given, for a run that shows how far
    rounding may go: tensors that gain no precision by it are perturbed (see `_nudged`).

    Tensors that share storage keep sharing it, with the same offsets.
    """
    storages: dict[tuple[int, torch.dtype], torch.Tensor] = {}

    def clone(value: Any) -> Any:
        if not isinstance(value, torch.Tensor) or value.is_meta:
            return value
        wanted = dtype if dtype is not None and value.is_floating_point() else value.dtype
        if dtype is not None and value.is_complex():
            wanted = torch.complex128
        key = (value.untyped_storage()._cdata, value.dtype)
        if key not in storages:
            count = value.untyped_storage().nbytes() // value.element_size()
            whole = value.as_strided((count,), (1,), 0)
            storages[key] = whole.to(device=device, dtype=wanted, copy=True)
            if dtype is not None and wanted == value.dtype and wanted in (torch.float64, torch.complex128):
                storages[key] = _nudged(storages[key])
        return storages[key].as_strided(value.shape, value.stride(), value.storage_offset())

    return tuple(clone(v) for v in values)


def _nudged(numbers: torch.Tensor) -> torch.Tensor:
    """Each number a unit in the last place or so away: how far results then move tells how much of them is rounding
    (as stochastic arithmetic does, Vignes 1993). Integral values stay: programs compare with them."""
    if numbers.is_complex():
        return torch.view_as_complex(_nudged(torch.view_as_real(numbers)))
    signs = torch.randint(0, 2, numbers.shape, generator=torch.Generator().manual_seed(0)).to(numbers) * 2 - 1
    return torch.where(numbers == numbers.round(), numbers, numbers * (1 + torch.finfo(numbers.dtype).eps * signs))


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


_SPELLINGS = (
    (re.compile(r"\b[LG]\['(\w+)'\]"), r"\1"),
    (re.compile(r"(?:\._modules|\._parameters|\._buffers|\.__dict__)\['(\d+)'\]"), r"[\1]"),
    (re.compile(r"(?:\._modules|\._parameters|\._buffers|\.__dict__)\['(\w+)'\]"), r".\1"),
)


def in_words(name: str) -> str:
    """An input's name as in the source: `model.layers[0].weight`, without the dicts that modules keep."""
    for pattern, spelling in _SPELLINGS:
        name = pattern.sub(spelling, name)
    return name
