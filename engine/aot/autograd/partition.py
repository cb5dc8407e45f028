"""The partitioner: which values of the forward are saved for the backward, and which it computes again.

`min_cut.py` finds the cheapest cut. Here each choice in it becomes a decision (kind "save-for-backward", which an
override can reverse), the cut is held to a memory budget, and each saved or recomputed value gets its reason.
"""
from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from dataclasses import replace

from ....artifacts.context import CompileContext, OverrideError
from ...graphs.autograd_graphs import ALWAYS, JointGraph, Partitioned, Recomputed, Saved
from ...unsupported import EngineUnsupported
from .costs import exact_bytes
from .extract_forward_backward import split
from .max_flow import UNBOUNDED, Unbounded
from .min_cut import RECOMPUTE, SAVE, Cut, Node, Prices, Region, price, region, root, solve

HIGHEST_PRICE = 1e6  # bytes moved for holding one: any operation is cheaper
BISECTIONS = 12
BUDGETS = tuple(str(tenths / 10) for tenths in range(11))


def partition(joint: JointGraph, context: CompileContext) -> Partitioned:
    """Choose what is saved, and split the joint graph.

    Raises OverrideError for an override that cannot be obeyed, EngineUnsupported where a size of the backward is
    unknown when it starts, or no choice leaves the backward with all that it needs.
    """
    found = region(joint)
    budget = _budget(context)
    try:
        prices, forced = _within(found, budget)
        cut, why = _decided(found, prices, forced, context)
    except Unbounded as impossible:
        raise EngineUnsupported(str(impossible)) from impossible
    forward, backward, sizes, numbers = split(found, cut)
    readers = _first_readers(found, cut)
    saved = [
        Saved(n.name, _kind(found, n), exact_bytes(n.meta.get("val")), why.get(n, "an input: alive anyway"),
              readers.get(n, ""))  # a gradient may be a saved value itself
        for n in cut.saved
    ]
    saved += [Saved(name, "size", 8, "a number that cannot be read off a saved tensor") for name in sizes]
    recomputed = tuple(
        Recomputed(n.name, exact_bytes(n.meta.get("val")), found.costs[n].flops, why[n]) for n in cut.recomputed
    )
    bytes = {n: cost.bytes for n, cost in found.costs.items() if cost.kind in ("loops", "stored", "library")}
    return Partitioned(forward, backward, tuple(saved), recomputed, joint, tuple(numbers), budget, bytes)


# ---- the memory budget -----------------------------------------------------------------------------------------------
def _budget(context: CompileContext) -> float:
    default = str(float(context.memory_budget))
    options = sorted({*BUDGETS, default}, key=float)
    why = "1.0 saves what is cheapest, 0.0 only inputs and random numbers; in between: that fraction of the bytes"
    return float(context.decide("memory-budget", "graph", options, default, why))


def _within(found: Region, budget: float) -> tuple[Prices, dict[Node, str]]:
    """Prices at which the cut fits the budget, and values that are saved in addition while there is room.

    The price of a held byte is a Lagrange multiplier: it is raised until the cut fits. Equal layers change
    sides at one price, all together; those nearest to the backward are then saved again while there is room.
    """
    if budget >= 1:
        return Prices(), {}
    limit = budget * held_bytes(found, solve(found, Prices(), {}))
    low, high = Prices(1.0, True, True), Prices(HIGHEST_PRICE, True, True)
    if held_bytes(found, solve(found, low, {})) <= limit:
        return low, {}
    for _ in range(BISECTIONS):
        middle = replace(low, held=(low.held * high.held) ** 0.5)
        fits = held_bytes(found, solve(found, middle, {})) <= limit
        low, high = (low, middle) if fits else (middle, high)
    kept = set(solve(found, high, {}).saved)
    more = [n for n in reversed(solve(found, low, {}).saved) if n not in kept and n.op != "placeholder"]
    fewest, most = 0, len(more)
    while fewest < most:
        count = (fewest + most + 1) // 2
        fits = held_bytes(found, solve(found, high, dict.fromkeys(more[:count], SAVE))) <= limit
        fewest, most = (count, most) if fits else (fewest, count - 1)
    return high, dict.fromkeys(more[:fewest], SAVE)


def held_bytes(found: Region, cut: Cut) -> int:
    """Bytes that are held for the backward only."""
    return sum(found.costs[n].bytes for n in cut.saved if _kind(found, n) == "tensor")


# ---- decisions -------------------------------------------------------------------------------------------------------
def _decided(
    found: Region, prices: Prices, room: Mapping[Node, str], context: CompileContext
) -> tuple[Cut, dict[Node, str]]:
    """The cheapest cut among those that the overrides allow; each choice in it is a decision. And the reasons."""
    nodes = [n for n in found.candidates if n.op != "placeholder" and found.costs[n].savable]
    natural = cut = _again(found, prices, room, nodes, context) or solve(found, prices, room)
    asked = {n: option for n in nodes if (option := context.override("save-for-backward", n.name)) is not None}
    if asked:
        prices = replace(prices, inputs=True)  # a reversed choice may need an input that nothing else saves
        try:
            cut = solve(found, prices, {**room, **asked})
        except Unbounded:
            names = ", ".join(f"save-for-backward:{n.name}" for n in asked)
            raise OverrideError(f"{names}: no saved values would be left to recompute these from") from None
    why: dict[Node, str] = {}
    kept, again, usual = set(cut.saved), set(cut.recomputed), set(natural.saved)
    for node in nodes:
        if node not in kept and node not in again and node not in asked:
            continue
        default = SAVE if node in (usual if node in asked else kept) else RECOMPUTE
        why[node] = _why_saved(found, node, cut, prices) if default == SAVE else _why_recomputed(found, node)
        options = (SAVE,) if found.costs[node].never else (SAVE, RECOMPUTE)
        origins = tuple(f"capture#{origin}" for origin in node.meta.get("origins", ()))
        stack = node.meta.get("stack")
        place = stack[-1] if stack else None
        context.decide(
            "save-for-backward", node.name, options, default, why[node], location=place, origins=origins)
        if asked.get(node, default) != default:
            why[node] = f"forced by an override (otherwise: {default})"
    return cut, why


def _again(
    found: Region, prices: Prices, room: Mapping[Node, str], nodes: Sequence[Node], context: CompileContext
) -> Cut | None:
    """The cut that is to be made again, if it can be."""
    wanted = {n: option for n in nodes
              if (option := context.recorded.get(f"save-for-backward:{context.subject(n.name)}")) is not None}
    try:
        return solve(found, prices, {**room, **wanted}) if wanted else None
    except Unbounded:
        return None


# ---- reasons ---------------------------------------------------------------------------------------------------------
def _kind(found: Region, node: Node) -> str:
    kind = found.costs[node].kind
    if kind == "size":
        return "size"
    if kind == "input":
        return "input"
    return "output" if root(node) in found.results else "tensor"


def _first_readers(found: Region, cut: Cut) -> dict[Node, str]:
    """For each value of the forward, the first node of the backward that needs it or what is computed from it."""
    positions = {n: i for i, n in enumerate(n for n in found.joint.module.graph.nodes if n in found.backward)}
    names = [n.name for n in positions]
    saved = set(cut.saved)
    first: dict[Node, int] = {}
    for node in reversed(found.candidates):
        uses = [positions[u] for u in node.users if u in positions]
        uses += [first[r] for r in found.readers[node] if r in first and r not in saved]
        if uses:
            first[node] = min(uses)
    return {node: names[position] for node, position in first.items()}


def _why_saved(found: Region, node: Node, cut: Cut, prices: Prices) -> str:
    cost = found.costs[node]
    if cost.never:
        return f"never recomputed: {cost.never}"
    if _kind(found, node) == "output":
        return "a result: alive anyway"
    size, (_, again) = megabytes(cost.bytes), price(found, node, prices)
    if again >= UNBOUNDED:
        return f"banned from recomputation because it is {cost.expensive}"
    if node.target is operator.getitem and node.all_input_nodes[0] not in found.backward:
        made_by = node.all_input_nodes[0]
        work = megabytes(found.costs[made_by].work)
        return f"cheaper: {size} saved, against the time of {work} of traffic to recompute {made_by.name}"
    missing = _missing(found, node, cut)
    if missing:
        needs = ", ".join(f"{n.name} ({megabytes(found.costs[n].bytes)})" for n in missing[:3])
        return f"cheaper: {size} saved, against recomputing it from {needs}, which the backward does not have"
    if node not in found.forward:
        return f"cheaper: {size} saved; the forward computes it for the backward, while it has the operands"
    where = ", in distant kernels of the backward" if node in found.spread else (
        ", to memory" if node in found.stored_again else "")
    return f"cheaper: {size} saved, against the time of {megabytes(again)} of traffic to recompute it{where}"


def _missing(found: Region, node: Node, cut: Cut) -> list[Node]:
    """What the backward would have to receive or recompute as well, to recompute `node`."""
    there = {*cut.saved, *cut.recomputed}
    parents = {root(n): None for n in node.all_input_nodes}
    return [n for n in parents if n not in there and found.costs[n].kind not in ("constant", "view")]


def _why_recomputed(found: Region, node: Node) -> str:
    cost = found.costs[node]
    if node.meta.get("recompute") == ALWAYS:
        return "part of a checkpointed region"
    if node not in found.forward:
        return "only the backward needs it"
    return f"cheaper: the time of {megabytes(cost.work)} of traffic, against {megabytes(cost.bytes)} saved"


def megabytes(count: int) -> str:
    """A number of bytes as text."""
    for unit, size in (("GB", 1 << 30), ("MB", 1 << 20), ("kB", 1 << 10)):
        if count >= size:
            return f"{count / size:.1f} {unit}"
    return f"{count} bytes"
