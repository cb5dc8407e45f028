"""Where in the engine an unexpected exception was raised: the stage, the part, and the graph's node."""
from __future__ import annotations

import torch

from ..artifacts.context import Stage, run_stages
from .aot.autograd.joint import trace_joint


def origin_of(error: BaseException) -> str:
    """`in the stage lowering of backward, at the node sum_1`; "" outside of the stages.

    Each walk over a graph has its node in a variable `node` or an attribute of that name, so the frames of the
    traceback tell it: the innermost counts.
    """
    stage = part = node = ""
    entry = error.__traceback__
    while entry is not None:
        names = entry.tb_frame.f_locals
        if entry.tb_frame.f_code is trace_joint.__code__:
            stage = "joint"
        if entry.tb_frame.f_code is run_stages.__code__ and isinstance(names.get("stage"), Stage):
            stage, part, node = names["stage"].name, names["context"].part, ""
        for held in (names.get("node"), getattr(names.get("self"), "node", None)):
            if isinstance(held, torch.fx.Node):
                node = held.name
                break
        entry = entry.tb_next
    if not stage:
        return ""
    return f"in the stage {stage}" + (f" of {part}" if part else "") + (f", at the node {node}" if node else "")
