"""Where NaNs and infinities are born: in the captured graph, or in the first stage that has some of its own."""
from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import torch

from ...artifacts.fx_graphs import target_name
from ...artifacts.input_names import in_words
from ...artifacts.records import Frame, Location, SavedInput
from ..program.lines import first_unknown
from ..program.program import Returned
from ..verdicts.nonfinite import Birth, births, kind_of
from .rungs import Execution


def graph_births(
    module: torch.fx.GraphModule, ran: Execution, exact: Execution | None, inputs: tuple[Any, ...], stage: str,
    lines: Mapping[str, Location | None], names: Mapping[str, str],
) -> list[Birth]:
    """The births among the nodes of a graph that ran on `inputs`; `names` are those of inputs in words."""
    placeholders = [node.name for node in module.graph.nodes if node.op == "placeholder"]
    values = dict(ran.values) | dict(zip(placeholders, inputs))
    wide = dict(exact.values) if exact is not None else {}
    nodes = list(_nodes(module))
    found = births(nodes, values, stage, wide, lines)
    return [_named(birth, names) for birth in found]


def _nodes(module: torch.fx.GraphModule) -> Iterator[tuple[str, str, list[str]]]:
    for node in module.graph.nodes:
        if node.op == "placeholder":
            yield node.name, "an input", []
        elif node.op in ("call_function", "call_method"):
            yield node.name, target_name(node.target), [n.name for n in node.all_input_nodes]


def _named(birth: Birth, names: Mapping[str, str]) -> Birth:

    operands = tuple(replace(o, name=names.get(o.name, o.name)) for o in birth.operands)
    return replace(birth, node=names.get(birth.node, birth.node), operands=operands)


def differs(ran: Execution, eager: Execution) -> bool:
    """Whether results hold NaNs or infinities in one run and not in the other."""
    return [kind_of(value) for value in ran.observed()] != [kind_of(value) for value in eager.observed()]


def input_names(module: torch.fx.GraphModule, items: Iterable[SavedInput]) -> dict[str, str]:
    """The placeholders of a graph as the program's inputs, in words."""
    placeholders = [node.name for node in module.graph.nodes if node.op == "placeholder"]
    return {name: in_words(item.name) for name, item in zip(placeholders, items)}


def unknown_line(ladder: Any, returned: Returned) -> Location | None:
    """The first line of the program with a value that the captured graph has not."""
    known = (*ladder.saved, *ladder.program.eager.values.values(), *ladder.program.eager.observed())
    line, frame = first_unknown(returned.lines.items(), known), ladder.recording.artifact(ladder.compile_id, "frame")
    return Location(frame.file, line, frame.function) if line and isinstance(frame, Frame) else None
