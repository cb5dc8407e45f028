"""The program's own names of a graph's inputs: `self.fc.weight` where a graph has `arg1`.

A captured graph names an input by the expression that reaches it, spelled as one word; a graph of ATen operators by its
position. Names are given where they are certain: an input without one keeps the graph's name.
"""
from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

from ..dependencies import msgspec
from .decode import EncodedNodes
from .listing import Line, Listing
from .recording import Recording
from .records import Graph, Guards, Node, Pass, SavedInputs, TensorMeta, split_ref
from .stages import ATEN

_SPELLINGS = (
    (re.compile(r"\b[LG]\['(\w+)'\]"), r"\1"),
    (re.compile(r"(?:\._modules|\._parameters|\._buffers|\.__dict__)\['(\d+)'\]"), r"[\1]"),
    (re.compile(r"(?:\._modules|\._parameters|\._buffers|\.__dict__)\['(\w+)'\]"), r".\1"),
)
_NAME = re.compile(r"(?![LG]\[)[A-Za-z_]\w*(\.\w+|\[[\w'\"-]+\])*")
_WORDS = re.compile(r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|\w+""")
_POSITION = re.compile(r"arg(\d+)")


def in_words(name: str) -> str:
    """An input's name as in the source: `model.layers[0].weight`, without the dicts that modules keep."""
    for pattern, spelling in _SPELLINGS:
        name = pattern.sub(spelling, name)
    return name


def input_names(recording: Recording, compile_id: str, stage: str, name: str, graph: Graph) -> dict[str, str]:
    """For the inputs of a graph of a compilation, what the program calls them; without those that are not known, and
    those whose name something else in the graph has. None where another graph that says so is damaged."""
    try:
        return _input_names(recording, compile_id, stage, name, graph)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):  # in a node of a large graph
        return {}


def _input_names(recording: Recording, compile_id: str, stage: str, name: str, graph: Graph) -> dict[str, str]:
    inputs = _inputs(graph) if stage == "capture" else recording.of_capture(compile_id, _inputs)
    if inputs is None:
        return {}
    sources = _sources(recording, compile_id, inputs)
    if stage == "capture":
        found = {node.id: sources[node.id] for node in inputs if node.id in sources}
    elif stage in ATEN and _part_of(stage, name) == "":
        found = _by_position(graph, inputs, sources)
        forward = _graph(recording, compile_id, "forward") if stage == "backward" else None
        if forward is not None and found:  # of which the backward's notes speak
            found = _by_position(forward, inputs, sources) | found
    else:
        return {}
    if not found:
        return {}
    taken = {node.id for node in graph.nodes if node.id not in found}
    counts = list(found.values())
    return {key: text for key, text in found.items() if text not in taken and counts.count(text) == 1}


def _inputs(graph: Graph) -> list[Node]:
    if isinstance(graph.nodes, EncodedNodes):
        return list(graph.nodes.of("placeholder"))
    return [node for node in graph.nodes if node.op == "placeholder"]


def _graph(recording: Recording, compile_id: str, stage: str) -> Graph | None:
    return recording.large_graph(compile_id, stage) or recording.find(Graph, compile_id, stage)


def _part_of(stage: str, name: str) -> str:
    """The part of the compilation that an ATen graph belongs to; "" for the whole, halves of a training graph too."""
    owners = name.split(".")[:-1] if stage == "passes" else [name]
    return ".".join(owner for owner in owners if owner not in ("", "joint", "backward"))


def _sources(recording: Recording, compile_id: str, inputs: list[Node]) -> dict[str, str]:
    """The name of each input of the captured graph: that of its guard, or its source in words."""
    guards = recording.find(Guards, compile_id, "guards")
    saved = recording.find(SavedInputs, compile_id, "runtime", "inputs")
    known = {guard.source: guard.name for guard in guards.guards if guard.name} if guards is not None else {}
    sources = {_one_word(source): source for source in known}
    if saved is not None:
        sources |= {_one_word(item.name): item.name for item in saved.inputs}
    found = {}
    for node in inputs:
        source = sources.get(node.target)
        text = (known.get(source) or in_words(source)) if source is not None else ""
        if _NAME.fullmatch(text):
            found[node.id] = text
    return found


def _one_word(source: str) -> str:
    """A source as the name of a placeholder has it."""
    return "".join(c if c.isalnum() else "_" for c in source)


def _by_position(graph: Graph, inputs: list[Node], sources: Mapping[str, str]) -> dict[str, str]:
    """`argN` is the N-th input, if it has the same shape and dtype: a tensor of a subclass is several."""
    found = {}
    for node in graph.nodes:
        at = _POSITION.fullmatch(node.id) if node.op == "placeholder" else None
        if at is None or int(at[1]) >= len(inputs):
            continue
        given = inputs[int(at[1])]
        if given.id in sources and _alike(node.value, given.value):
            found[node.id] = sources[given.id]
        elif not _alike(node.value, given.value):
            return {}
    return found


def _alike(one: object, other: object) -> bool:
    if isinstance(one, TensorMeta) and isinstance(other, TensorMeta):
        return (one.dtype, one.shape, one.stride) == (other.dtype, other.shape, other.stride)
    return one == other


def named_text(text: str, names: Mapping[str, str]) -> str:
    """A text of a graph's nodes with the program's names for its inputs; what stands in quotes stays."""
    return _WORDS.sub(lambda word: names.get(word[0], word[0]), text) if names else text


def named_listing(listing: Listing, names: Mapping[str, str]) -> Listing:
    """The listing of a graph with the program's names for its inputs; each input's line has the graph's name, too."""
    if not names:
        return listing
    return replace(listing, lines=tuple(_named_line(line, names) for line in listing.lines))


def _named_line(line: Line, names: Mapping[str, str]) -> Line:
    stage, _, item = split_ref(line.ref)
    if stage == "source" or not (item or line.text.startswith("# ")):
        return line
    if item in names and line.text.strip().startswith(f"{item},"):
        before, _, typed = line.text.partition(f"{item},")
        return replace(line, text=f"{before}{names[item]},  # {item}{': ' if typed else ''}{typed.strip(' #')}")
    text = named_text(line.text, names)
    return line if text == line.text else replace(line, text=text)


def graph_of(record: Graph | Pass) -> Graph:
    """The graph of a graph's record, or of that after a pass."""
    return record.graph if isinstance(record, Pass) else record
