"""ATen graphs as scripts, and passes: the graph before a pass and the graph after it, on the same inputs."""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...artifacts.records import Graph, Pass, RuleMatch
from .graph_source import GraphSource, no_source
from .names import Source
from .script import Body, Header, Repro, check_of, compose
from .tensors import Tensors, described

_CHECK = "check_pass.py"


@dataclass(frozen=True)
class Stages:
    """Two forms of one graph, and what led from one to the other."""

    before: Graph
    after: Graph
    matches: tuple[RuleMatch, ...] = ()


def pass_repro(
    stages: Stages, inputs: Sequence[Any], names: Sequence[str], symbols: Mapping[str, float], header: Header,
    source: Source = no_source,
) -> Repro:
    """The script that runs both graphs on the same inputs and compares their results."""
    out = GraphSource(symbols, source, any_strides=True)
    before = out.function(stages.before, "before", names)
    after = out.function(stages.after, "after", names)
    tensors = Tensors()
    tensors.shared(inputs)
    values = [tensors.expression(name, value) for name, value in zip(names, inputs)]
    make = ["return before, after, [", *(f"    {text},  # {name}: {described(value)}"
                                         for text, name, value in zip(values, names, inputs)), "]"]
    constants = {name: tensors.constant(name, data) for name, data in out.constants.items()}
    body = Body(header, [*out.classes, *before, "", "", *after], make, tensors, out.imports, globals=constants)
    return compose(body, check_of(_CHECK))


def rewrites(record: Pass) -> list[str]:
    """Header lines: what the pass did."""
    lines = [f"It made {len(record.matches)} rewrites" + (":" if record.matches else ".")]
    for match in record.matches[:12]:
        change = f"{', '.join(match.removed) or 'nothing'} -> {', '.join(match.added) or 'nothing'}"
        lines.append(f"  {match.rule}: {change}" + (f" ({match.why})" if match.why else ""))
    return lines
