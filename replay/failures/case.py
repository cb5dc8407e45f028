"""What is run to see whether it fails: a captured graph on its inputs, with decisions forced; or a script.

Cases are data. A search makes new ones with `dataclasses.replace`; `key()` is a hash of all that a case says, by which
outcomes are remembered.
"""
from __future__ import annotations

import functools
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from ...artifacts.decision_kinds import CPP_WRAPPER_ASKED
from ...artifacts.decode import revive
from ...artifacts.recording import Recording, RecordingError
from ...artifacts.records import Decision, Graph, ProcessState, SavedInput, SavedInputs, TensorMeta
from ...dependencies import msgspec
from ..recorded.graphs import ReplayError, dtype
from ..recorded.inputs import RANDOM, load_input, load_random, read_tensors
from ..recorded.synthesized import described

COMPILERS = ("ptdebug", "torch:eager", "torch:aot_eager", "torch:inductor")


class Inputs:
    """The inputs of a graph: their records, and the flat tensors of the memory they are in. Those also hold the states
    of random number generators before the call, as in the file of a recording (`random:cpu`)."""

    def __init__(self, records: tuple[SavedInput, ...], flats: Mapping[str, torch.Tensor]) -> None:
        self.records = records
        self.flats = dict(flats)

    def values(self) -> tuple[Any, ...]:
        """The inputs in order, on the CPU. They share memory with each other as in the program."""
        return tuple(load_input(item, self.flats) for item in self.records)

    def random(self) -> dict[str, torch.Tensor]:
        """The states of generators by device, where they were recorded."""
        return {name.removeprefix(RANDOM): flat for name, flat in self.flats.items() if name.startswith(RANDOM)}

    @functools.cached_property
    def key(self) -> str:
        """A hash of values and layouts."""
        digest = hashlib.sha256(msgspec.json.encode(self.records))
        for name, flat in sorted(self.flats.items()):
            digest.update(f"\0{name} {flat.dtype} {flat.numel()}\0".encode())
            digest.update(flat.detach().contiguous().view(torch.uint8).numpy().data)
        return digest.hexdigest()

    @classmethod
    def of(cls, values: tuple[Any, ...], names: tuple[str, ...]) -> Inputs:
        """Those of tensors (and plain numbers) that share no memory."""
        records: list[SavedInput] = []
        flats: dict[str, torch.Tensor] = {}
        for name, value in zip(names, values, strict=True):
            if not isinstance(value, torch.Tensor):
                records.append(SavedInput(name, None, value=value))
                continue
            kind = str(value.dtype).removeprefix("torch.")
            key = f"input_{len(flats)}"
            span = 1 + sum((n - 1) * s for n, s in zip(value.shape, value.stride())) if value.numel() else 0
            flats[key] = value.detach().as_strided((span,), (1,)).to("cpu", copy=True)
            meta = TensorMeta(kind, tuple(value.shape), tuple(value.stride()), str(value.device), value.requires_grad)
            records.append(SavedInput(name, meta, key))
        return cls(tuple(records), flats)


@dataclass(frozen=True)
class Case:
    """One captured graph, compiled and run on its inputs, and compared with eager.

    `forced` are decisions (ids, or patterns) and the options that they take; `options` those of the compilation
    (memory_budget, freezing, cpp_wrapper, way; of stock's, settings of Inductor). `imports` are loaded first, each
    MODULE or MODULE:FUNCTION, which is called: for operators of other libraries. `slow` makes it a failure to take so
    many times as long as eager. What is compiled runs `repeat` times, and fails if it does once. Of inputs that are
    `made_up`, only the layouts were recorded. `state` is torch's global state around the call: autocast, default dtype,
    determinism, ...
    """

    graph: Graph
    inputs: Inputs
    training: bool = False
    device: str = "cpu"
    compiler: str = "ptdebug"
    forced: Mapping[str, str] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)
    imports: tuple[str, ...] = ()
    slow: float = 0.0
    repeat: int = 1
    trust: bool = False
    made_up: bool = False
    state: ProcessState | None = None

    @classmethod
    def from_recording(cls, recording: Recording, compile_id: str, device: str = "", trust: bool = False) -> Case:
        """The case that a compilation was, with what its decisions were forced to; where it was recorded, unless a
        `device` is given. Raises ReplayError."""
        graph = _artifact(recording, compile_id, "capture", "", Graph)
        stock = str(recording.meta.get("compiler", "")) == "torch"
        trains = stock and "joint" in recording.stages(compile_id)  # which does not say what needs gradients
        saved = _saved(recording, compile_id, graph) if not stock else SavedInputs(
            tuple(SavedInput(n.id, n.value) for n in graph.nodes if n.op == "placeholder"))
        made_up = not saved.file
        inputs = synthesized(saved.inputs, trains) if made_up else Inputs(
            saved.inputs, {**read_tensors(recording.path, saved), **_random(recording.path, saved)})
        decisions = [decision for _, decision in recording.decisions(compile_id)]
        device = device or _device(saved.inputs)
        return cls(graph, inputs, trains or is_training(graph), device, "torch:inductor" if stock else "ptdebug",
                   {d.id: d.chosen for d in decisions if d.forced}, _options(decisions), trust=trust, made_up=made_up,
                   state=saved.state)

    @property
    def grad_enabled(self) -> bool:
        """Whether autograd recorded around the call: of a graph that turns it on by itself, it need not."""
        return self.training and (self.state is None or self.state.grad)

    def key(self) -> str:
        """A hash of all that the case says."""
        return hashlib.sha256(self.header() + self.inputs.key.encode()).hexdigest()

    def header(self) -> bytes:
        """The case without the values of its inputs, as JSON."""
        stored = _Stored(self.graph, self.inputs.records, self.training, self.device, self.compiler, dict(self.forced),
                         dict(self.options), self.imports, self.slow, self.repeat, self.trust, self.made_up,
                         self.state)
        return bytes(msgspec.json.encode(stored))

    @classmethod
    def of_header(cls, header: bytes, flats: Mapping[str, torch.Tensor]) -> Case:
        """The case of `header`, on these values. Raises ReplayError."""
        try:
            stored = msgspec.json.decode(header, type=_Stored)
            graph = revive(stored.graph)
        except msgspec.MsgspecError as error:
            raise ReplayError(f"the case is damaged: {error}") from error
        assert isinstance(graph, Graph)
        return cls(graph, Inputs(stored.inputs, flats), stored.training, stored.device, stored.compiler, stored.forced,
                   stored.options, stored.imports, stored.slow, stored.repeat, stored.trust, stored.made_up,
                   stored.state)

    def save(self, path: Path) -> None:
        """Write the case as one safetensors file."""
        save_file({k: v.contiguous() for k, v in self.inputs.flats.items()}, path, {"case": self.header().decode()})

    @classmethod
    def load(cls, path: Path) -> Case:
        """Read what `save` wrote. Raises ReplayError."""
        try:
            with safe_open(path, "pt") as file:
                metadata = file.metadata() or {}
                flats = {key: file.get_tensor(key) for key in file.keys()}
        except (OSError, SafetensorError) as error:
            raise ReplayError(f"{path} cannot be read: {error}") from error
        if "case" not in metadata:
            raise ReplayError(f"{path} has no case")
        return cls.of_header(metadata["case"].encode(), flats)


@dataclass(frozen=True)
class ScriptCase:
    """A command that runs a script, and what makes it a failure.

    `command` is what `ptdebug run` takes after its options. `check` is a shell command that exits with 0 where all is
    well (it finds the script's output on stdin); `match` a regular expression that the output of a failing run has;
    without both, an exit code other than 0 is the failure, which with `check_calls` a call gives that is not what it is
    in eager. `files` are contents that take the place of files.
    """

    command: tuple[str, ...]
    folder: str = "."
    check: str = ""
    match: str = ""
    check_calls: bool = False
    compiler: str = "ptdebug"
    forced: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)

    def key(self) -> str:
        """A hash of all that the case says."""
        return hashlib.sha256(msgspec.json.encode(self)).hexdigest()


def is_training(graph: Graph) -> bool:
    """Whether some value that the graph computes needs gradients."""
    return any(_requires_grad(node.value) for node in graph.nodes if node.op not in ("placeholder", "output"))


def synthesized(records: tuple[SavedInput, ...], trains: bool = False, seed: int = 0) -> Inputs:
    """Inputs of the recorded layouts with random values: normal, or 0 and 1. `trains`: all floating ones need
    gradients, whatever is recorded. Raises ReplayError where a size is not a number."""
    generator = torch.Generator().manual_seed(seed)
    values = []
    for item in records:
        meta = item.meta
        if meta is None:
            values.append(item.value)
            continue
        if not isinstance(meta, TensorMeta) or not all(isinstance(n, int) for n in (*meta.shape, *meta.stride)):
            raise ReplayError(f"no inputs were recorded, and none can be made: {item.name} has dynamic sizes")
        kind = dtype(meta.dtype)
        made = torch.empty_strided(meta.shape, meta.stride, dtype=kind, device="cpu")  # type: ignore[arg-type]
        wide = kind.is_floating_point or kind.is_complex
        made.copy_(torch.randn(made.shape, generator=generator, device="cpu") if wide else torch.randint(
            0, 2, made.shape, generator=generator, device="cpu"))
        values.append(made.requires_grad_(meta.requires_grad or (trains and kind.is_floating_point)))
    return Inputs.of(tuple(values), tuple(item.name for item in records))


def _saved(recording: Recording, compile_id: str, graph: Graph) -> SavedInputs:
    """The inputs of the recorded call; of a graph that was never called, since its compilation did not end, what the
    graph says of them."""
    if not any(info.name == "inputs" for info in recording.artifacts(compile_id, "runtime")):
        return described(graph)
    saved: SavedInputs = _artifact(recording, compile_id, "runtime", "inputs", SavedInputs)
    return saved


def _random(folder: Path, saved: SavedInputs) -> dict[str, torch.Tensor]:
    return {RANDOM + device: state for device, state in load_random(folder, saved).items()}


def _device(records: Sequence[SavedInput]) -> str:
    """The GPU, if inputs were there and one is here."""
    recorded = any(item.meta is not None and item.meta.device.startswith("cuda") for item in records)
    return "cuda" if recorded and torch.cuda.is_available() else "cpu"


def _options(decisions: Sequence[Decision]) -> dict[str, Any]:
    """The options of a compilation, as its decisions tell them."""
    options: dict[str, Any] = {d.subject: msgspec.json.decode(d.chosen) for d in decisions if d.kind == "config"}
    if any(d.kind == "freezing" and d.chosen == "fold" for d in decisions):
        options["freezing"] = True
    if any(d.kind == "wrapper" and d.chosen == "cpp" and d.why == CPP_WRAPPER_ASKED for d in decisions):
        options["cpp_wrapper"] = True
    if any(d.kind == "cudagraphs" and d.chosen == "capture" for d in decisions):
        options["cuda_graphs"] = True
    way = next((d.chosen for d in decisions if d.id == "compile:graph"), "kernels")
    if way != "kernels":
        options["way"] = way
    budget = next((d.chosen for d in decisions if d.kind == "memory-budget"), "")
    return {**options, "memory_budget": float(budget)} if budget else options


def _requires_grad(value: Any) -> bool:
    if isinstance(value, TensorMeta):
        return value.requires_grad
    return isinstance(value, (tuple, list)) and any(map(_requires_grad, value))


def _artifact(recording: Recording, compile_id: str, stage: str, name: str, kind: type[Any]) -> Any:
    try:
        found = recording.artifact(compile_id, stage, name)
    except RecordingError as error:
        raise ReplayError(f"{error}") from error
    if not isinstance(found, kind):
        raise ReplayError(f"{compile_id}:{stage} is a {type(found).__name__}, which it should not be")
    return found


class _Stored(msgspec.Struct):
    graph: Graph
    inputs: tuple[SavedInput, ...]
    training: bool
    device: str
    compiler: str
    forced: dict[str, str]
    options: dict[str, Any]
    imports: tuple[str, ...]
    slow: float
    repeat: int
    trust: bool
    made_up: bool = False
    state: ProcessState | None = None
