"""What a selector names, as a script."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...artifacts.recording import Recording, RecordingError
from ...artifacts.records import Graph, Guards, SavedInput, SavedInputs, TensorMeta
from ..recorded.graphs import ReplayError, size_value
from ..recorded.inputs import load_inputs
from .graphs import graph_repro
from .script import Repro, origin
from .tensors import random_tensor

RECORDED, RANDOM = "recorded", "random"


class Compilation:
    """What scripts are written from: one compilation's records, and the values of its inputs."""

    def __init__(self, recording: Recording, compile_id: str, inputs: str = RECORDED) -> None:
        self.recording = recording
        self.id = compile_id
        self.graph = self.need(Graph, "capture")
        kept = recording.find(SavedInputs, compile_id, "runtime", "inputs")
        self.kept = kept or _described(self.graph)
        self.is_recorded = inputs == RECORDED and bool(self.kept.file)
        self.training = "joint" in recording.stages(compile_id)
        self.compiler = "torch" if recording.meta.get("compiler") == "torch" else "ptdebug"

    def need(self, kind: type[Any], stage: str, name: str = "") -> Any:
        """A record that must be there. Raises ReplayError."""
        try:
            found = self.recording.artifact(self.id, stage, name)
        except RecordingError as error:
            raise ReplayError(f"{error}") from error
        if not isinstance(found, kind):
            raise ReplayError(f"{self.id}:{stage} is a {type(found).__name__}, which it should not be")
        return found

    @property
    def sources(self) -> tuple[str, ...]:
        """Where the frame found each input."""
        return tuple(item.name for item in self.kept.inputs)

    def values(self) -> tuple[Any, ...]:
        """The inputs of the graph: recorded, or random ones of the recorded shapes."""
        values = load_inputs(self.recording.path, self.kept) if self.is_recorded else tuple(
            item.value if item.meta is None else random_tensor(self._known(item.meta)) for item in self.kept.inputs)
        for value, item in zip(values, self.kept.inputs):
            if item.meta is not None and item.meta.requires_grad:
                value.requires_grad_()
        return values

    def _known(self, meta: TensorMeta) -> TensorMeta:
        """Metadata with numbers in place of symbols: those of the compilation."""
        guards = self.recording.find(Guards, self.id, "guards")
        symbols = {s.name: float(s.value) for s in guards.symbols if _is_number(s.value)} if guards else {}
        shape, stride = (tuple(int(size_value(n, symbols)) for n in numbers) for numbers in (meta.shape, meta.stride))
        return TensorMeta(meta.dtype, shape, stride, meta.device, meta.requires_grad)

    def facts(self, selector: str) -> list[str]:
        """Header lines: from where."""
        return origin(self.recording, f"{self.recording.name}:{selector}")

    def title(self, what: str) -> str:
        """`The captured graph of Net.forward (model.py:12)`."""
        info = self.recording.compile(self.id)
        return f"{what} of {info.function} ({info.file}:{info.line})."


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _described(graph: Graph) -> SavedInputs:
    """The inputs of a graph as its placeholders describe them, where none were kept."""
    return SavedInputs(tuple(
        SavedInput(node.target, node.value if isinstance(node.value, TensorMeta) else None)
        for node in graph.nodes if node.op == "placeholder"))


def captured_graph(compilation: Compilation) -> Repro:
    """The captured graph, with the inputs of its first call."""
    return graph_repro(
        compilation.graph, compilation.values(), training=compilation.training, compiler=compilation.compiler,
        title=compilation.title("The captured graph"), facts=compilation.facts(f"{compilation.id}:capture"),
        sources=compilation.sources, source=compilation.recording.source, recorded=compilation.is_recorded,
    )


Writer = Callable[[Compilation, str], Repro]
WRITERS: dict[str, Writer] = {
    "": lambda compilation, name: captured_graph(compilation),
    "capture": lambda compilation, name: captured_graph(compilation),
}


def repro(recording: Recording, compile_id: str, stage: str = "", name: str = "", inputs: str = RECORDED) -> Repro:
    """The script for a compilation, a stage of it, or one artifact. Raises ReplayError."""
    if stage not in WRITERS:
        raise ReplayError(f"no script shows the stage {stage}: one can show {', '.join(filter(None, WRITERS))}")
    return WRITERS[stage](Compilation(recording, compile_id, inputs), name)
