"""The stages of a compilation: one row for each, in the order in which they happen.

Everything that lists stages asks this table: selectors, the order of a recording, links between stages, the parts of a
compilation, what stock PyTorch's trace does not hold, replay's ladder, the workbench's panes. To add a stage, add its
row here and record it where it is made.
"""
from __future__ import annotations

from dataclasses import dataclass

TRACER, ENGINE, RUNTIME, EVERY = "tracer", "engine", "runtime", "every"
"""Rooms that make a stage; decisions come from every room."""


@dataclass(frozen=True)
class StageInfo:
    """One stage. `title` is what people read.

    `per_part`: each part of a compilation (its backward, a segment around `torch.cond`) has artifacts of its own,
    under the part's name; `graph`: one of the ATen graphs that a training graph's parts are named after. `aten`: its
    artifacts are forms of an ATen graph, whose nodes keep their names from one to the next. `linked`: its items lead
    to those of other stages, so it can stand in a pane beside them. `training`: only where gradients flow. `replayed`:
    replay makes it again and compares it with the recorded one. `stock`: why stock PyTorch's trace does not hold it;
    "" where it may.
    """

    name: str
    title: str
    room: str
    per_part: bool = False
    graph: bool = False
    aten: bool = False
    linked: bool = True
    training: bool = False
    replayed: bool = False
    stock: str = ""


_NO_BYTECODE = "stock's trace does not hold the bytecode of ordinary frames"

STAGES: tuple[StageInfo, ...] = (
    StageInfo("frame", "the function, its arguments and who called it", TRACER, linked=False),
    StageInfo("bytecode", "the original bytecode", TRACER, stock=_NO_BYTECODE),
    StageInfo("capture", "the captured graph", TRACER),
    StageInfo("breaks", "graph breaks", TRACER, linked=False),
    StageInfo("guards", "guards", TRACER),
    StageInfo("output_bytecode", "the rewritten bytecode and the resume functions", TRACER, stock=_NO_BYTECODE),
    StageInfo(
        "joint", "forward and backward as one ATen graph", ENGINE,
        graph=True, aten=True, training=True, replayed=True,
    ),
    StageInfo("forward", "the functionalized ATen graph", ENGINE, graph=True, aten=True, replayed=True),
    StageInfo(
        "backward", "the ATen graph of the gradients", ENGINE, graph=True, aten=True, training=True, replayed=True,
    ),
    StageInfo(
        "partition", "what the forward saves and the backward recomputes", ENGINE, linked=False, training=True,
        stock="stock's trace does not say what is saved for backward and why",
    ),
    StageInfo("passes", "the graph after each pass that changed it", ENGINE, per_part=True, aten=True, replayed=True),
    StageInfo(
        "loop_ir", "loop IR", ENGINE, per_part=True, replayed=True,
        stock="stock's trace does not hold Inductor's loop IR",
    ),
    StageInfo(
        "fusion", "candidate pairs and their verdicts", ENGINE, per_part=True, linked=False,
        stock="stock's trace does not say what was fused and why",
    ),
    StageInfo(
        "schedule", "groups, loop order, memory", ENGINE, per_part=True,
        stock="stock's trace does not hold the schedule",
    ),
    StageInfo("kernels", "C++ and Triton kernels", ENGINE, per_part=True),
    StageInfo("wrapper", "what allocates and calls the kernels", ENGINE, per_part=True),
    StageInfo(
        "runtime", "calls, guard failures, captured inputs", RUNTIME, linked=False,
        stock="neither the calls of stock's code nor their inputs are recorded",
    ),
    StageInfo("decisions", "every choice, its alternatives and its reason", EVERY,
              stock="stock's trace does not hold decisions"),
)

NAMES = tuple(stage.name for stage in STAGES)
OF_ENGINE = tuple(stage.name for stage in STAGES if stage.room == ENGINE)
TRAINING = tuple(stage.name for stage in STAGES if stage.training)
GRAPHS = tuple(stage.name for stage in STAGES if stage.graph)
PER_PART = tuple(stage.name for stage in STAGES if stage.per_part)
ATEN = tuple(stage.name for stage in STAGES if stage.aten)
LINKED = tuple(stage.name for stage in STAGES if stage.linked)
REPLAYED = tuple(stage.name for stage in STAGES if stage.replayed)

TIMINGS = ("capture", "joint", "passes", "lowering", "scheduling", "codegen", "kernels")
"""The keys of `seconds` in a summary (CONTRACT.md): what `CompileContext.timed` is called with."""


def order_of(name: str) -> int:
    """Where a stage stands; behind all others for one that is not known (made by another version)."""
    return NAMES.index(name) if name in NAMES else len(NAMES)
