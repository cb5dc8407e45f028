"""Small cases for tests of failures, workers and searches."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.fx
from ptdebug.artifacts.fx_graphs import graph_record
from ptdebug.replay.failures.case import Case, Inputs


def case_of(program: Callable[..., Any], *inputs: Any, **settings: Any) -> Case:
    """The case of a function, traced by torch.fx."""
    module = torch.fx.symbolic_trace(program)
    output = module.graph.output_node()
    if not isinstance(output.args[0], (tuple, list)):
        output.args = ((output.args[0],),)
    names = tuple(node.name for node in module.graph.find_nodes(op="placeholder"))
    return Case(graph_record(module.graph, "capture", "bytecode"), Inputs.of(inputs, names), **settings)
