"""What this process has compiled, or loaded from the cache: for `ptdebug.warm_up` and cache bundles."""
from __future__ import annotations

from dataclasses import dataclass

from ..graphs.functional_graph import Captured


@dataclass(frozen=True)
class Done:
    """One graph: its key ("" where it is not cached, for the reason `why`), where it is from, whether it was loaded."""

    key: str
    label: str
    loaded: bool
    why: str = ""


HISTORY: list[Done] = []


def label_of(captured: Captured) -> str:
    """A graph in words: the function that it begins in, and its size."""
    nodes = [node for node in captured.module.graph.nodes if node.op.startswith("call")]
    places = [node.meta["stack"][0] for node in nodes if node.meta.get("stack")]
    size = f"{len(nodes)} operation{'' if len(nodes) == 1 else 's'}"
    return f"{places[0].function} ({places[0].file}:{places[0].line}), {size}" if places else size
