"""Calls that do not run what was compiled for their graph."""
from __future__ import annotations

from typing import Any

from ...engine.graphs.functional_graph import AtenGraph
from ...engine.runtime.entry import shares_written

IN_EAGER = "an input that the graph writes shares memory with another: such a call runs in eager, as captured"


def ran_in_eager(aten: AtenGraph, inputs: tuple[Any, ...]) -> str:
    """Why a call with these inputs did not run what was compiled; "" if it did."""
    written = set(aten.mutations.values())
    return IN_EAGER if written and shares_written(inputs, written) else ""
