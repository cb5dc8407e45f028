"""Which values to save: a minimum cut between what the forward has and what the backward needs.

T. Chen et al., "Training Deep Nets with Sublinear Memory Cost" (2016) trades memory for computing; that the cheapest
choice is a minimum cut is from torch/_functorch/partitioners.py (min-cut rematerialization). Here every rule of thumb
of that file is a price. Each value is a pair of vertices, in and out:

    in -> out       what saving costs: reading it in the backward, writing it in the forward where only the backward
                    wants it in memory, and holding it meanwhile
    source -> in    what computing it again costs: the operations, another pass over the inputs of a reduction, and
                    a kernel that writes it where the backward would need it in memory, or in kernels far apart
    out -> in       of each value computed from it: unbounded

Vertices on the sink's side are computed in the backward; a value whose pair is cut is saved.
"""
from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch.fx

from ...graphs.autograd_graphs import ALWAYS, BACKWARD, JointGraph
from ...lowering.registry import COMPOSITE, LOWERINGS
from .costs import Cost, costs_of, is_view, read_bytes
from .max_flow import SINK, SOURCE, UNBOUNDED, Network, Unbounded

FAR_APART = 4  # library calls of the backward between the first and the last use of a value
SAVE, RECOMPUTE = "save", "recompute"

Node = torch.fx.Node


@dataclass(frozen=True)
class Prices:
    """What the cut weighs. `held` is the price of holding a byte until the backward, in bytes moved.

    `expensive` allows recomputing matrix products (at their price), `inputs` saving inputs instead.
    """

    held: float = 1.0
    expensive: bool = False
    inputs: bool = False


@dataclass(frozen=True)
class Cut:
    """The saved values (in the order of the joint graph), and the recomputed ones; views are neither."""

    saved: tuple[Node, ...]
    recomputed: tuple[Node, ...]


@dataclass(eq=False)
class Region:
    """The partitioning problem: the nodes that both halves could compute (`candidates`, in order).

    `wanted` are those that a node of the backward reads directly. `readers` are a node's readers among the candidates.
    """

    joint: JointGraph
    costs: dict[Node, Cost]
    candidates: list[Node]
    wanted: set[Node]
    readers: dict[Node, list[Node]]
    forward: set[Node]  # what a result of the forward depends on
    backward: set[Node]  # what depends on a tangent, and is needed for a gradient
    stored: set[Node]  # what the forward has in memory in any case
    stored_again: set[Node]  # what the backward would have to store
    spread: set[Node]  # what distant kernels of the backward need
    results: set[Node]  # memory that the program holds after the forward: results
    exposed: set[Node]  # memory that the program may change before the backward, and eager would not notice
    changed: set[Node]  # inputs that the forward itself changes
    checkpointed: set[Node]  # nodes of checkpointed regions, and what only the backward computes from them


def region(joint: JointGraph) -> Region:
    """Look at a joint graph."""
    graph = joint.module.graph
    costs = costs_of(graph)
    placeholders = [n for n in graph.nodes if n.op == "placeholder"]
    returned, gradients = outputs_of(joint)
    needed = ancestors(gradients)
    backward = _reached(graph, placeholders[len(joint.forward.inputs):]) & needed
    candidates = [n for n in graph.nodes if n in needed and n not in backward]
    inside = set(candidates)
    readers = {n: [u for u in n.users if u in inside] for n in candidates}
    wanted = {n for n in candidates if any(u in backward for u in n.users)}
    wanted.update(g for g in gradients if g in inside)
    forward = ancestors(returned)
    stored = _stored(costs, forward, returned)
    again = {n for n in wanted if any(_reads_memory(u) for u in _through_views(n) if u in backward)}
    results = {root(n) for n in returned[len(joint.forward.mutations):]}
    changed = {placeholders[i] for i in (*joint.forward.mutations.values(), *joint.assigned.values())}
    read_by_eager = {root(n) for n in candidates if n in wanted or any(_rereads(u) for u in n.users)}
    outside = (set(placeholders) | results) - read_by_eager
    exposed = {n for n in candidates if root(n) in outside}
    dear = {n for n in candidates if costs[n].expensive or costs[n].never}  # what is computed from these is cut off
    spread = _spread(graph, candidates, {n: [r for r in readers[n] if r not in dear] for n in candidates}, backward)
    checkpointed = _checkpointed(candidates, forward) - {n for n in candidates if _leaves_region(n)}
    return Region(joint, costs, candidates, wanted, readers, forward, backward, stored, again, spread, results, exposed,
                  changed, checkpointed)


def solve(region: Region, prices: Prices, forced: Mapping[Node, str]) -> Cut:
    """The cheapest cut at these prices in which the nodes of `forced` are saved, or computed again.

    Raises Unbounded, with the values that may be neither saved nor computed again, where that is impossible.
    """
    network = Network()
    entry: dict[Node, int] = {}
    leave: dict[Node, int] = {}
    saved: set[Node] = set()
    neither: list[str] = []
    for node in reversed(region.candidates):  # readers first: what only they want is not in the network
        readers = [r for r in region.readers[node] if r in entry]
        if node not in region.wanted and not readers:
            continue
        save, again = price(region, node, prices, forced.get(node))
        if again >= UNBOUNDED > save and (node in region.wanted or node in forced):
            saved.add(node)  # nothing to choose, and its readers have it in any case
            continue
        if min(save, again) >= UNBOUNDED:
            neither.append(node.name)
        entry[node] = leave[node] = network.vertex()
        network.edge(SOURCE, entry[node], again)
        if save < UNBOUNDED:
            leave[node] = network.vertex()
            network.edge(entry[node], leave[node], save)
        if node in region.wanted:
            network.edge(leave[node], SINK, UNBOUNDED)
        for reader in readers:
            network.edge(leave[node], entry[reader], UNBOUNDED)
    try:
        side = network.cut()
    except Unbounded:
        names = ", ".join(neither)
        raise Unbounded(f"the backward needs what may be neither saved nor computed again: {names}") from None
    saved.update(n for n in entry if leave[n] in side and entry[n] not in side)
    return closed(region, saved)


def closed(region: Region, saved: set[Node]) -> Cut:
    """The cut that `saved` makes: of it what the backward reads, and what it computes from that."""
    used: set[Node] = set()
    stack = list(region.wanted)
    while stack:
        node = stack.pop()
        if node not in used:
            used.add(node)
            if node not in saved:
                stack.extend(node.all_input_nodes)
    again = [n for n in region.candidates if n in used and n not in saved and n.op != "placeholder"]
    recomputed = tuple(n for n in again if region.costs[n].kind not in ("view", "constant", "tuple"))
    return Cut(tuple(n for n in region.candidates if n in used and n in saved), recomputed)


def price(region: Region, node: Node, prices: Prices, want: str | None = None) -> tuple[int, int]:
    """(price of saving the node's value, price of computing it again), in bytes; UNBOUNDED where it must not be."""
    cost = region.costs[node]
    always = node in region.checkpointed
    kept = cost.savable and want != RECOMPUTE and not (always and not cost.never and want != SAVE)
    if not kept or node in region.changed or (node in region.exposed and not prices.inputs):
        save = UNBOUNDED
    elif root(node) in region.results or cost.kind == "input":
        save = cost.bytes + 1  # alive anyway
    else:
        save = int(cost.bytes * (prices.held + (1 if node in region.stored else 2))) + 1
    if node not in region.forward and cost.kind != "input" and want != SAVE:  # computed once, in either half
        return save, _apart(region, node) // 2
    if cost.never or want == SAVE or (cost.expensive and not (prices.expensive or always or want == RECOMPUTE)):
        return save, UNBOUNDED
    again = cost.work + _apart(region, node)
    if node in region.stored_again:  # a kernel for its sake: what it reads is read once more
        again += cost.bytes + read_bytes(node)
    return save, again


def _apart(region: Region, node: Node) -> int:
    """The price of using a value in distant kernels: it is stored, or its operands are read twice."""
    cost = region.costs[node]
    if node not in region.spread:
        return 0
    if cost.kind != "loops":
        return 2 * cost.bytes
    return 2 * min(cost.bytes, max(0, read_bytes(node) - cost.bytes) + cost.work)


# ---- looking at the graph --------------------------------------------------------------------------------------------
def outputs_of(joint: JointGraph) -> tuple[list[Node], list[Node]]:
    """The nodes among the joint graph's outputs: those of the forward, and gradients."""
    outputs: tuple[object, ...] = tuple(joint.module.graph.output_node().args[0])  # type: ignore[arg-type]
    parts = outputs[: joint.forward_outputs], outputs[joint.forward_outputs :]
    returned, gradients = ([n for n in part if isinstance(n, Node)] for part in parts)
    return returned, gradients


def root(node: Node) -> Node:
    """The node whose memory this one's value is (part of)."""
    while is_view(node):
        node = node.all_input_nodes[0]
    return node


def ancestors(ends: list[Node]) -> set[Node]:
    """`ends`, and all that their values are computed from."""
    found: set[Node] = set()
    stack = list(ends)
    while stack:
        node = stack.pop()
        if node not in found:
            found.add(node)
            stack.extend(node.all_input_nodes)
    return found


def _reached(graph: torch.fx.Graph, starts: list[Node]) -> set[Node]:
    found = set(starts)
    for node in graph.nodes:
        if node.op != "output" and any(n in found for n in node.all_input_nodes):
            found.add(node)
    return found


def _reads_memory(node: Node) -> bool:
    """Whether the node's arguments must be in memory: it is the library's, makes several passes, or leaves."""
    known = LOWERINGS.get(node.target)
    return node.op != "get_attr" if known is None else known.kind == COMPOSITE


def _through_views(node: Node) -> set[Node]:
    """Who reads the node's value, seen through views of it."""
    found: set[Node] = set()
    stack = [node]
    while stack:
        for user in stack.pop().users:
            if user not in found:
                found.add(user)
                if is_view(user):
                    stack.append(user)
    return {n for n in found if not is_view(n)}


def _stored(costs: dict[Node, Cost], forward: set[Node], returned: list[Node]) -> set[Node]:
    """What the forward has in memory, whatever is saved."""
    roots = {root(n) for n in returned}
    return {
        n for n in forward
        if costs[n].kind != "loops" or n in roots or any(u in forward and _reads_memory(u) for u in _through_views(n))
    }


def _rereads(node: Node) -> bool:
    """Whether eager keeps this node's arguments: it belongs to the backward, or to a checkpointed region."""
    return node.meta.get("phase") == BACKWARD or node.meta.get("recompute") == ALWAYS


def _checkpointed(candidates: list[Node], forward: set[Node]) -> set[Node]:
    found: set[Node] = set()
    for node in candidates:
        always = node.meta.get("recompute") == ALWAYS
        if always or (node not in forward and any(n in found for n in node.all_input_nodes)):
            found.add(node)
    return found


def _leaves_region(node: Node) -> bool:
    """Whether the value of a checkpointed region's node is what comes out of it: eager keeps that where it is read."""
    own = node.meta.get("checkpoint")
    readers = [u for u in _through_views(node) if u.meta.get("phase") != BACKWARD]
    return not is_view(node) and own is not None and any(u.meta.get("checkpoint") != own for u in readers)


def _spread(
    graph: torch.fx.Graph, candidates: list[Node], readers: dict[Node, list[Node]], backward: set[Node]
) -> set[Node]:
    """Values whose uses in the backward are far apart, themselves or in what is computed from them."""
    calls: dict[Node, int] = {}  # node of the backward -> library calls before it
    count = 0
    for node in graph.nodes:
        if node in backward:
            calls[node] = count
            count += node.target not in LOWERINGS and node.op == "call_function"
    first: dict[Node, int] = {}
    last: dict[Node, int] = {}
    for node in reversed(candidates):
        uses = [calls[u] for u in node.users if u in calls]
        inner = [r for r in readers[node] if r in first]
        if uses or inner:
            first[node] = min([*uses, *(first[r] for r in inner)])
            last[node] = max([*uses, *(last[r] for r in inner)])
    return {n for n in first if last[n] - first[n] > FAR_APART}
