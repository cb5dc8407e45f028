"""From loop bodies to kernels: which bodies are fused, in which loops, and which buffers share memory.

Walk: `steps.py` (a program as a graph of steps; `reachability.py`: paths between them while they are merged);
`operand_layout.py` and `column_sums.py` put some bodies into another form first; `fusion.py` searches (greedily, most
bytes saved first), `legality.py` says what may be fused, on the linear index forms of `../ir/body_affine.py`,
`fusion_choices.py` asks for each pair that may be whether it is (a decision), `occupancy.py` when a kernel would leave
a GPU idle; `finalize.py` merges contiguous loops and finds the buffers that never reach memory; `unroll.py` writes out
innermost loops of a few iterations; `loop_order.py` chooses the innermost loop; `in_place.py` lets kernels write over
what they replace; `horizontal.py` makes one kernel of independent ones that differ in names and sizes (`templates.py`);
`memory.py` lets buffers take over dead ones' memory; `cpu/` makes loop nests of the groups that run on a CPU;
`describe.py` makes records of it all.
"""
from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ...artifacts.context import CompileContext
from ...artifacts.records import BufferPlan, FusionCandidate
from ..ir.ir import ExternCall, Group, Plan, Program
from ..ir.loop_nest import LoopNest
from .column_sums import with_added_columns
from .cpu import loop_nests
from .describe import describe
from .finalize import escaping, finished
from .fusion import Fusion
from .horizontal import combine
from .in_place import write_in_place
from .loop_order import ordered
from .memory import plan_memory
from .operand_layout import with_transposed_copies
from .steps import Node
from .unroll import unrolled

__all__ = ["ScheduledPlan", "describe", "schedule"]

NAME_PARTS = 3  # ATen nodes that a kernel's name mentions


@dataclass(frozen=True)
class ScheduledPlan(Plan):
    """A plan with the candidates of the fusion search, the lifetimes of buffers, peak memory, and loop nests."""

    candidates: tuple[FusionCandidate, ...] = ()
    lives: tuple[BufferPlan, ...] = ()
    peak_bytes: int | None = None
    nests: Mapping[str, LoopNest] = field(default_factory=dict)  # of the kernels that run on a CPU, by name


def schedule(program: Program, context: CompileContext) -> ScheduledPlan:
    """Group the loop bodies of `program` into kernels and plan their memory."""
    program = with_added_columns(with_transposed_copies(program, context), context)
    fusion = Fusion(program, context)
    nodes = fusion.run()
    kept = escaping(program)
    readers: dict[str, set[int]] = {}
    for node in nodes:
        for name in node.reads:
            readers.setdefault(name, set()).add(node.id)

    def needed_outside(name: str, node: Node) -> bool:
        return name in kept or bool(readers.get(name, set()) - {node.id})

    items: list[Group | ExternCall] = []
    for node in nodes:
        if node.extern is not None:
            items.append(node.extern)
        else:
            group = finished(node, _kernel_name(node, len(items)), program, needed_outside)
            items.append(ordered(unrolled(group, context), context) if group.device.type == "cpu" else group)
    written = write_in_place(program, items, context)
    combined = combine(written.program, written.items, context)
    memory = plan_memory(written.program, combined.items, escaping(written.program), context)
    candidates = (*fusion.choices.candidates.values(), *combined.candidates)
    nests = loop_nests(combined.items, written.program, context)
    return ScheduledPlan(
        written.program, combined.items, memory.reuse, candidates, memory.lives, memory.peak, nests)


def _kernel_name(node: Node, number: int) -> str:
    """fused_<number>_<the last ATen nodes it computes>: stable, and says what it does."""
    origins = [s.origins[-1] for b in node.bodies for s in b.statements if s.op == "store" and s.origins]
    words = list(dict.fromkeys(_word(o) for o in origins))[:NAME_PARTS]
    return "_".join(["fused", str(number), *words])


def _word(origin: str) -> str:
    """The operator in the name of a node: "add_12" is an add."""
    base, _, number = origin.rpartition("_")
    word = base if base and number.isdigit() else origin
    return "".join(c if c.isalnum() else "_" for c in word).strip("_") or "op"
