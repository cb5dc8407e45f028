"""Saves the inputs of compiled graphs for replay: `--inputs none|meta|first|all`.

Each storage is saved once, as one flat tensor of the elements that the inputs touch; `SavedInput.meta` has sizes,
strides and the offset into that flat tensor, so that `as_strided` restores the input, aliasing included.
"""
from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from ..artifacts.context import CompileContext
from ..artifacts.records import SavedInput, SavedInputs, TensorMeta
from ..dependencies import safetensors_torch
from ..tracer.fx.backend_call import CapturedGraph, Compiled
from .session import Session

LITERALS = (bool, int, float, str, type(None))


def saving_inputs(session: Session, captured: CapturedGraph, context: CompileContext, compiled: Compiled) -> Compiled:
    """`compiled`, whose first call (or each, depending on the settings) saves its inputs before it runs."""
    kind = session.settings.inputs
    if not session.recording or kind == "none" or session.folder is None:
        return compiled
    saver = InputSaver(session, captured.input_names, context, kind)
    if kind == "all":

        def each(*args: Any) -> Sequence[Any]:
            saver.save(args)
            return compiled(*args)

        return each
    pending = True

    def first(*args: Any) -> Sequence[Any]:
        nonlocal pending
        if pending:
            pending = False
            saver.save(args)
        return compiled(*args)

    return first


class InputSaver:
    """Writes the inputs of one compilation; never raises: what cannot be saved leaves a note."""

    def __init__(self, session: Session, names: Sequence[str], context: CompileContext, kind: str) -> None:
        self._session = session
        self._names = names
        self._context = context
        self._values = kind != "meta"
        self._calls = 0

    def save(self, args: Sequence[Any]) -> None:
        """Save the inputs of a call, as `inputs` (the first) or `inputs_N`."""
        name = "inputs" if self._calls == 0 else f"inputs_{self._calls}"
        self._calls += 1
        try:
            record = self._save(args, name)
        except Exception as error:
            record = SavedInputs((), note=f"not saved: {type(error).__name__}: {error}")
        self._context.record("runtime", lambda: record, name)

    def _save(self, args: Sequence[Any], name: str) -> SavedInputs:
        names = list(self._names) + [f"input_{i}" for i in range(len(self._names), len(args))]
        tensors = {n: a for n, a in zip(names, args) if isinstance(a, torch.Tensor) and _plain(a)}
        flats, places = _flatten(tensors)
        size = sum(flat.numel() * flat.element_size() for flat in flats.values())
        note = "" if self._values else "metadata only (--inputs meta)"
        other = [a for a in args if isinstance(a, torch.Tensor) and not a.is_meta and not _plain(a)]
        if other and not note:
            note = f"metadata only: an input is a {type(other[0]).__qualname__}, which is not strided memory"
        if self._values and self._session.input_bytes + size > self._session.settings.inputs_limit:
            note = f"metadata only: {size} bytes exceed what is left of --inputs-limit"
        file = ""
        if not note:
            file = f"tensors/{str(self._context.id).replace('/', '-')}-{name}.safetensors"
            self._write(file, flats)
            self._session.input_bytes += size
        inputs = tuple(_saved(n, a, places if file else {}) for n, a in zip(names, args))
        return SavedInputs(inputs, file, note)

    def _write(self, file: str, flats: dict[str, torch.Tensor]) -> None:
        assert self._session.folder is not None
        path = Path(self._session.folder) / file
        path.parent.mkdir(exist_ok=True)
        unfinished = path.with_suffix(".part")
        safetensors_torch.save_file(flats, unfinished)
        unfinished.rename(path)


def _plain(tensor: torch.Tensor) -> bool:
    """Whether a tensor is strided memory, which can be saved; of one on the meta device, nothing is."""
    return tensor.layout is torch.strided and not tensor.is_meta and not tensor.is_quantized and type(tensor) in (
        torch.Tensor, torch.nn.Parameter, torch.nn.Buffer)


def _flatten(tensors: dict[str, torch.Tensor]) -> tuple[dict[str, torch.Tensor], dict[str, tuple[str, int]]]:
    """The flat tensors by key, and for each input its key and its offset there."""
    groups: dict[tuple[Any, ...], list[str]] = {}
    for name, tensor in tensors.items():
        storage = (tensor.untyped_storage().data_ptr(), tensor.dtype, tensor.device)
        groups.setdefault(storage if storage[0] else (name,), []).append(name)
    flats: dict[str, torch.Tensor] = {}
    places: dict[str, tuple[str, int]] = {}
    for names in groups.values():
        spans = [_span(tensors[name]) for name in names]
        start, end = min(s for s, _ in spans), max(e for _, e in spans)
        owner = tensors[names[0]].detach()
        key = f"input_{len(flats)}"
        flats[key] = owner.as_strided((end - start,), (1,), start).to("cpu", copy=True)
        places |= {name: (key, span[0] - start) for name, span in zip(names, spans)}
    return flats, places


def _span(tensor: torch.Tensor) -> tuple[int, int]:
    """The first element of the storage that a tensor touches, and one past the last."""
    start = int(tensor.storage_offset())
    if tensor.numel() == 0:
        return start, start
    return start, start + 1 + sum((size - 1) * int(stride) for size, stride in zip(tensor.shape, tensor.stride()))


def _saved(name: str, value: Any, places: dict[str, tuple[str, int]]) -> SavedInput:
    if not isinstance(value, torch.Tensor):
        return SavedInput(name, None, value=value if isinstance(value, LITERALS) else repr(value))
    key, offset = places.get(name, ("", int(value.storage_offset()) if value.layout is torch.strided else 0))
    strides = tuple(value.stride()) if value.layout is torch.strided else ()
    meta = TensorMeta(
        str(value.dtype).removeprefix("torch."), tuple(value.shape), strides, str(value.device), value.requires_grad,
        offset,
    )
    first = next((other for other, place in places.items() if place[0] == key), name) if key else name
    return SavedInput(name, meta, key, alias_of="" if first == name else first)
