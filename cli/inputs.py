"""Saves the inputs of compiled graphs for replay: `--inputs none|meta|first|all`.

Each piece of memory is saved once, as one flat tensor of what the inputs touch; `SavedInput.meta` has sizes, strides
and the offset into that flat tensor, so that `as_strided` restores the input, aliasing included. Saved with them are
the state of the process around the call and what the call is known by.
"""
from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import torch

from ..artifacts.context import CHANGED_INPUTS, CompileContext
from ..artifacts.records import CallIdentity, SavedInput, SavedInputs, TensorMeta
from ..dependencies import safetensors_torch
from ..replay.program.identity import identify
from ..replay.recorded.memory import Piece, pieces
from ..replay.recorded.state import random_state, read_state
from ..tracer.fx.backend_call import CapturedGraph, Compiled
from .session import Session

LITERALS = (bool, int, float, str, type(None))
MAX_CALLERS = 60
"""Frames between the compiled graph and the function that calls it, at most."""


def saving_inputs(session: Session, captured: CapturedGraph, context: CompileContext, compiled: Compiled) -> Compiled:
    """`compiled`, whose first call (or each, depending on the settings) saves its inputs before it runs; of later calls
    the first that raises does so then, unless it has written to them."""
    kind = session.settings.inputs
    if not session.recording or kind == "none" or session.folder is None:
        return compiled
    saver = InputSaver(session, captured.input_names, context, kind)
    if kind == "all":
        return saver.around(compiled)
    marked = context.restartable or context.marks_changes  # what is raised after a write to an input says so
    calls, raised = 0, False

    def first(*args: Any) -> Sequence[Any]:
        nonlocal calls, raised
        number, calls = calls, calls + 1
        if number == 0:
            saver.save(args, random_state())
            return compiled(*args)
        before = [] if marked else _writes(args)
        try:
            return compiled(*args)
        except Exception as error:
            unchanged = not hasattr(error, CHANGED_INPUTS) and (
                marked or (None not in before and before == _writes(args)))
            if not raised and unchanged:
                raised = True
                saver.save(args, {}, number)
            raise

    return first


def _writes(args: Sequence[Any]) -> list[int | None]:
    """How often each tensor was written; None where that is not counted (made in inference mode)."""
    return [None if arg.is_inference() else arg._version for arg in args if isinstance(arg, torch.Tensor)]


class InputSaver:
    """Writes the inputs of one compilation; never raises: what cannot be saved leaves a note."""

    def __init__(self, session: Session, names: Sequence[str], context: CompileContext, kind: str) -> None:
        self._session = session
        self._names = names
        self._context = context
        self._values = kind != "meta"
        self._calls = 0
        self._random = True  # whether the last call drew random numbers

    def around(self, compiled: Compiled) -> Callable[..., Sequence[Any]]:
        """`compiled`, each call of which saves its inputs first."""

        def saving(*args: Any) -> Sequence[Any]:
            before = random_state()
            self.save(args, before if self._random else {})
            results = compiled(*args)
            after = random_state()
            self._random = after.keys() != before.keys() or not all(torch.equal(after[k], before[k]) for k in after)
            return results

        return saving

    def save(self, args: Sequence[Any], random: dict[str, torch.Tensor], number: int | None = None) -> None:
        """Save the inputs of the next call, or of that `number`, as `inputs` (the first) or `inputs_N`."""
        number = self._calls if number is None else number
        name = f"inputs_{number}" if number else "inputs"
        self._calls = number + 1
        self._context.record("runtime", lambda: self._saved(args, name, random), name)

    def _saved(self, args: Sequence[Any], name: str, random: dict[str, torch.Tensor]) -> SavedInputs:
        try:
            return self._save(args, name, random)
        except Exception as error:
            return SavedInputs((), note=f"not saved: {type(error).__name__}: {error}")

    def _save(self, args: Sequence[Any], name: str, random: dict[str, torch.Tensor]) -> SavedInputs:
        state, call = read_state(), self._call()
        names = list(self._names) + [f"input_{i}" for i in range(len(self._names), len(args))]
        tensors = {n: a for n, a in zip(names, args) if isinstance(a, torch.Tensor) and not _unsaved(a)}
        found = pieces(tensors)
        size = sum(piece.bytes for piece in found)
        note = "" if self._values else "metadata only (--inputs meta)"
        other = [why for a in args if isinstance(a, torch.Tensor) and (why := _unsaved(a)) and not a.is_meta]
        if other and not note:
            note = f"metadata only: an input is {other[0]}"
        if self._values and self._session.input_bytes + size > self._session.settings.inputs_limit:
            note = f"metadata only: {size} bytes exceed what is left of --inputs-limit"
        file = ""
        if not note:
            prefix = getattr(self._session.recorder, "file_prefix", "")
            file = f"tensors/{prefix}{str(self._context.id).replace('/', '-')}-{name}.safetensors"
            flats = {f"input_{number}": piece.values() for number, piece in enumerate(found)}
            self._write(file, flats | {f"random:{device}": state for device, state in random.items()})
            self._session.input_bytes += size
        places = {name: place for place in enumerate(found) for name in place[1].offsets}
        inputs = tuple(_described(n, a, places.get(n), bool(file)) for n, a in zip(names, args))
        return SavedInputs(inputs, file, note, state, call)

    def _call(self) -> CallIdentity | None:
        """What the call that runs now is known by; None for a graph that no frame of that code is calling."""
        seconds = round(time.perf_counter() - self._session.started, 3)
        original = self._context.code
        frame = _caller(original) if original is not None else None
        if original is None or frame is None:
            return None
        code, variables = original, frame.f_locals
        count = code.co_argcount + code.co_kwonlyargcount + bool(code.co_flags & 4) + bool(code.co_flags & 8)
        try:
            return identify(code, variables, frame.f_globals, self._context.guarded, code.co_varnames[:count], seconds)
        finally:
            if type(variables) is dict:  # a snapshot, which would keep alive what the function drops
                variables.clear()

    def _write(self, file: str, flats: dict[str, torch.Tensor]) -> None:
        assert self._session.folder is not None
        path = Path(self._session.folder) / file
        path.parent.mkdir(exist_ok=True)
        unfinished = path.with_suffix(".part")
        safetensors_torch.save_file(flats, unfinished)
        unfinished.rename(path)


def _caller(code: CodeType) -> FrameType | None:
    """The running function of that code, which calls the graph."""
    frame: FrameType | None = sys._getframe(1)
    for _ in range(MAX_CALLERS):
        if frame is None:
            return None
        own = frame.f_code
        if own.co_flags & 1 and _place(own) == _place(code):  # a function's, rewritten
            return frame
        frame = frame.f_back
    return None


def _place(code: CodeType) -> tuple[str, str, int]:
    return code.co_filename, code.co_name, code.co_firstlineno


def _unsaved(tensor: torch.Tensor) -> str:
    """Why the values of a tensor are not saved; "" for strided memory."""
    if type(tensor) not in (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer):
        return f"a {type(tensor).__qualname__}, which is made of other tensors"
    if tensor.is_quantized:
        return "quantized"
    if tensor.layout is not torch.strided:
        return f"{str(tensor.layout).removeprefix('torch.')}, which is not strided memory"
    return "on the meta device" if tensor.is_meta else ""


def _described(name: str, value: Any, place: tuple[int, Piece] | None, kept: bool) -> SavedInput:
    """The record of an input; `place` is the piece of memory that it lies in, with its number, if that is saved."""
    if not isinstance(value, torch.Tensor):
        return SavedInput(name, None, value=value if isinstance(value, LITERALS) else repr(value))
    number, piece = place if place is not None else (0, None)
    strided = value.layout is torch.strided
    offset = piece.offsets[name] if piece else int(value.storage_offset()) if strided else 0
    meta = TensorMeta(
        str(value.dtype).removeprefix("torch."), tuple(value.shape), tuple(value.stride()) if strided else (),
        str(value.device), value.requires_grad, offset,
    )
    first = next(iter(piece.offsets)) if piece else name
    return SavedInput(
        name, meta, f"input_{number}" if piece and kept else "", alias_of="" if first == name else first,
        conjugated=strided and value.is_conj(), negated=strided and value.is_neg(),
        unsaved="" if value.is_meta else _unsaved(value),
    )
