"""What scripts are written from: a recorded compilation."""
from __future__ import annotations

import re
from functools import cached_property
from typing import Any

from ...artifacts.recording import Recording, RecordingError
from ...artifacts.records import Graph, Guards, SavedInput, SavedInputs, TensorMeta
from ..failures.case import Case, Inputs
from ..program.program import is_ours
from ..recorded.graphs import ReplayError
from ..recorded.inputs import bind_symbols, load_inputs, not_saved
from .script import Header, origin
from .tensors import random_tensor
from .values import arguments, intermediates, numeric

RECORDED, RANDOM = "recorded", "random"


class Compilation:
    """What scripts are written from: one compilation's records, and the values of its inputs."""

    def __init__(
        self, recording: Recording, compile_id: str, inputs: str = RECORDED, trust: bool = False, call: int = 0,
    ) -> None:
        self.may_run = trust or is_ours(recording)
        self.recording = recording
        self.id = compile_id
        self.graph: Graph = self.need(Graph, "capture")
        kept = recording.find(SavedInputs, compile_id, "runtime", f"inputs_{call}" if call else "inputs")
        if call and kept is None:
            raise ReplayError(not_saved(recording, compile_id, call))
        self.call = call
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

    @cached_property
    def values(self) -> tuple[Any, ...]:
        """The inputs of the graph: recorded, or random ones of the recorded shapes."""
        values = load_inputs(self.recording.path, self.kept) if self.is_recorded else tuple(
            self._made_up(item) for item in self.kept.inputs)
        metas = [item.meta for item in self.kept.inputs]
        unsaid = self.training and self.compiler == "torch" and not any(m and m.requires_grad for m in metas)
        for value, meta in zip(values, metas):
            if meta is not None and (meta.requires_grad or (unsaid and value.is_floating_point())):
                value.requires_grad_()  # stock's trace does not say which do
        return values

    def _made_up(self, item: SavedInput) -> Any:
        if item.meta is not None:
            return random_tensor(numeric(item.meta, self.known_symbols))
        return self.known_symbols.get(item.value, item.value) if isinstance(item.value, str) else item.value

    @cached_property
    def known_symbols(self) -> dict[str, float]:
        """The values that symbols had when the graph was compiled."""
        guards = self.recording.find(Guards, self.id, "guards")
        known = {s.name: float(s.value) for s in guards.symbols if _is_number(s.value)} if guards else {}
        unknown = [name for name in _symbols(self.graph) if name not in known]
        return {name: float(_MADE_UP + number) for number, name in enumerate(unknown)} | known

    @cached_property
    def symbols(self) -> dict[str, float]:
        """The values that they have for these inputs."""
        return self.known_symbols | bind_symbols(self.graph, self.values)

    @cached_property
    def intermediates(self) -> dict[str, Any]:
        """What is known of the values of its ATen graphs, by name: inputs, and all that the forward computes."""
        known = arguments(self.values)
        for stage in ("joint", "forward"):
            graph = self.recording.find(Graph, self.id, stage)
            if graph is not None:
                return known | intermediates(graph, known, self.symbols) | known
        return known

    @cached_property
    def chosen(self) -> dict[str, str]:
        """What was chosen in each decision."""
        return {decision.id: decision.chosen for _, decision in self.recording.decisions(self.id)}

    def case(self) -> Case:
        """The case of the graph, on these inputs."""
        case = Case.from_recording(self.recording, self.id) if self.kept.file else Case(
            self.graph, Inputs((), {}), self.training)
        return case if self.is_recorded and not self.call else Case(
            case.graph, Inputs.of(self.values, self.sources), self.training, forced=case.forced, options=case.options,
            state=self.kept.state)

    def header(self, what: str, selector: str, *facts: str) -> Header:
        """What is shown, from where, and more facts."""
        return Header(self.title(what), (*self.facts(selector), *facts))

    def facts(self, selector: str) -> list[str]:
        """Header lines: from where."""
        return origin(self.recording, f"{self.recording.name}:{selector}")

    def title(self, what: str) -> str:
        """`The captured graph of Net.forward (model.py:12)`."""
        info = self.recording.compile(self.id)
        return f"{what} of {info.function} ({info.file}:{info.line})."


_MADE_UP = 4  # the first of the sizes that are made up, where no value is recorded


def _symbols(graph: Graph) -> list[str]:
    """The names of the dynamic sizes of a graph's inputs."""
    metas = [node.value for node in graph.nodes if node.op == "placeholder"]
    texts = [str(n) for m in metas for n in ((*m.shape, *m.stride) if isinstance(m, TensorMeta) else (m,))]
    return list(dict.fromkeys(name for text in texts for name in re.findall(r"[a-z]+\d+", text)))


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _described(graph: Graph) -> SavedInputs:
    """The inputs of a graph as its placeholders describe them, where none were kept."""
    return SavedInputs(tuple(
        SavedInput(node.target, *((node.value,) if isinstance(node.value, TensorMeta) else (None, "", node.value)))
        for node in graph.nodes if node.op == "placeholder"))
