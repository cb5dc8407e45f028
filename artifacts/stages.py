"""The stages of a compilation: one row for each, in the order in which they happen.

Everything that lists stages uses this table: selectors, the order of a recording, links between stages, parts, what
stock PyTorch's trace lacks, replay's ladder, the workbench's panes. To add a stage, add a row here and return its
records where it is made.
"""
from __future__ import annotations

from dataclasses import dataclass

TRACER, ENGINE, RUNTIME, EVERY = "tracer", "engine", "runtime", "every"
"""The room that makes a stage; decisions come from all of them."""


@dataclass(frozen=True)
class StageInfo:
    """One stage. `title` is its description for people.

    `per_part`: each part of a compilation (its backward, a segment around `torch.cond`) has artifacts of its own,
    under the part's name; `graph`: one of the ATen graphs that a training graph's parts are named after. `aten`: its
    artifacts are forms of an ATen graph, whose nodes keep their names from one to the next. `linked`: its items are
    linked to those of other stages, so it can be shown in a pane beside them. `training`: only if gradients flow.
    `replayed`: replay generates it again and compares. `stock`: why stock PyTorch's trace lacks it; "" if it may have
    it. `option`: what asks `ptdebug run` for it; "" where it is always recorded. `forms`: NAME.FORM shows something
    made of the artifact NAME.
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
    option: str = ""
    forms: bool = False


_NO_BYTECODE = "stock's trace lacks the bytecode of ordinary frames"

STAGES: tuple[StageInfo, ...] = (
    StageInfo("frame", "the function, its arguments and who called it", TRACER, linked=False),
    StageInfo("bytecode", "the original bytecode", TRACER, stock=_NO_BYTECODE),
    StageInfo("steps", "what the tracer did, instruction by instruction", TRACER, stock="stock does not record it",
              option="--steps", forms=True),
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
        stock="stock's trace lacks Inductor's loop IR",
    ),
    StageInfo(
        "fusion", "fusion candidates and their verdicts", ENGINE, per_part=True, linked=False,
        stock="stock's trace does not say what was fused and why",
    ),
    StageInfo(
        "schedule", "groups, loop order, memory", ENGINE, per_part=True,
    ),
    StageInfo("kernels", "C++ and Triton kernels", ENGINE, per_part=True, forms=True),
    StageInfo("wrapper", "the code that allocates buffers and calls kernels", ENGINE, per_part=True),
    StageInfo(
        "runtime", "calls, guard failures, saved inputs", RUNTIME, linked=False,
        stock="neither the calls of stock's code nor their inputs are recorded",
    ),
    StageInfo("decisions", "every decision, its options and its reason", EVERY,
              stock="stock's trace lacks decisions"),
)

NAMES = tuple(stage.name for stage in STAGES)
OF_ENGINE = tuple(stage.name for stage in STAGES if stage.room == ENGINE)
TRAINING = tuple(stage.name for stage in STAGES if stage.training)
GRAPHS = tuple(stage.name for stage in STAGES if stage.graph)
PER_PART = tuple(stage.name for stage in STAGES if stage.per_part)
ATEN = tuple(stage.name for stage in STAGES if stage.aten)
LINKED = tuple(stage.name for stage in STAGES if stage.linked)
REPLAYED = tuple(stage.name for stage in STAGES if stage.replayed)

HAVING_FORMS = tuple(stage.name for stage in STAGES if stage.forms)
OPTIONS = {stage.name: stage.option for stage in STAGES if stage.option}

TIMINGS = ("capture", "joint", "passes", "lowering", "scheduling", "codegen", "kernels")
"""The keys of `seconds` in a summary: what `CompileContext.timed` is called with."""


def order_of(name: str) -> int:
    """The position of a stage; unknown ones (of another version) come last."""
    return NAMES.index(name) if name in NAMES else len(NAMES)
