"""Dynamo's introspection under `ptdebug run`, answered about ptdebug's work: `torch._dynamo.explain`, and the counters
of `torch._dynamo.utils`."""
from __future__ import annotations

import traceback
from collections.abc import Callable
from types import ModuleType
from typing import Any

import torch

from ..artifacts.records import Break
from ..artifacts.render_lists import guard_text
from ..tracer.runtime.statistics import STATISTICS
from .explain import explain


def dynamo_explain(f: Any, *extra_args: Any, **extra_kwargs: Any) -> Any:
    """`torch._dynamo.explain(f)(*args)`: Dynamo's ExplainOutput with ptdebug's graphs and breaks."""

    def inner(*args: Any, **kwargs: Any) -> Any:
        from torch._dynamo.backends.debugging import ExplainOutput  # the program has loaded Dynamo

        graphs: list[torch.fx.GraphModule] = []

        def keep(graph: torch.fx.GraphModule, _inputs: Any) -> Callable[..., Any]:
            graphs.append(graph)
            return graph.forward

        found = explain(_original(f), backend=keep)(*args, **kwargs)
        ops = [[node.target for node in graph.graph.nodes if node.op.startswith("call_")] for graph in graphs]
        return ExplainOutput(
            graphs, len(graphs), len(found.graph_breaks), [_reason(each) for each in found.graph_breaks],
            sum(map(len, ops)), ops, [guard_text(guard) for guard in found.guards],  # type: ignore[misc]
        )

    return inner(*extra_args, **extra_kwargs) if extra_args or extra_kwargs else inner


def _original(f: Any) -> Any:
    """What was compiled, where `f` is what came out."""
    return getattr(f, "_orig_mod", None) or getattr(f, "_ptdebug_original", f)


def _reason(found: Break) -> Any:
    from torch._dynamo.output_graph import GraphCompileReason

    stack = [traceback.FrameSummary(place.file, place.line, place.function)
             for place in found.stack or (found.location,)]
    return GraphCompileReason(f"{found.message} [{found.code}]", stack, graph_break=True)


def count_as_dynamo(utils: ModuleType) -> None:
    """Keep `torch._dynamo.utils.counters` as we count, beginning with what was counted so far."""
    counters = utils.counters

    def add(group: str, name: str, number: int) -> None:
        counters[group][name] += number

    STATISTICS.export(add)
