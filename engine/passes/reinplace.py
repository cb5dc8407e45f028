"""Reinplacing: an update of a part of an input writes only that part, instead of copying the whole input.

`cache[:, :, pos] = k` is functionalized to a new cache, the old one with the part replaced, which is copied back at the
end. Where nothing reads the old value, the part is written into the input itself, and readers of the new value read the
input (torch/_inductor/fx_passes/reinplace.py does the same). The graph is no longer functional afterwards, so this is
the last rewrite. Between two writes the value may be read where no later one writes: each layer of a model reads its
own part of a cache.

A call that raises must leave inputs as eager leaves them, so every operator that may raise for some data must run
before the first write. A write at a data-dependent index raises before it changes anything, and others with the same
index would raise too: the call then runs again in eager, which raises the same error.
"""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.fx

from ...artifacts.context import CompileContext
from ...artifacts.records import RuleMatch
from ...operators.effects import may_raise
from ...operators.untrusted import PARTS
from ..graphs.aliasing import returns_alias
from ..graphs.functional_graph import AtenGraph
from ..lowering.registry import in_loops
from .dead_code import remove_dead_code
from .rewriting import Matches

aten = torch.ops.aten

FRACTION = 4  # windows of more than this part of the input are left to loops, which fuse

_Views = tuple[tuple[Any, tuple[Any, ...]], ...]
"""Operators of views, each with its numbers (a dimension, and where)."""


@dataclass(frozen=True)
class _Write:
    """One write in functional form: `nodes`, outermost first, make of `base` the same with a part replaced.

    The window that `views` (operator, its numbers) lead to, one after the other, becomes what `operator` (copy_ or
    index_put_) makes of it with `arguments`; `part` has the size of what is new.
    """

    nodes: tuple[torch.fx.Node, ...]
    base: Any
    views: _Views
    operator: Any
    arguments: tuple[Any, ...]
    part: torch.Tensor


def reinplace(aten_graph: AtenGraph, context: CompileContext) -> tuple[AtenGraph, Matches]:
    """Write parts of inputs in place, decisions of kind "in-place"."""
    graph = aten_graph.module.graph
    if any(node.meta.get("phase") for node in graph.nodes):  # of a training graph: the backward may want the old value
        return aten_graph, ()
    results: Any = graph.output_node().args[0]
    placeholders = [node for node in graph.nodes if node.op == "placeholder"]
    shared = _shared(results)
    found: dict[torch.fx.Node, list[_Write]] = {}
    for out, index in aten_graph.mutations.items():
        writes = None if results[out] in shared else _writes(results[out], placeholders[index])
        if writes and _wanted(writes, placeholders[index], context):
            found[placeholders[index]] = writes
    matches = []
    for owner, writes in _in_time(_of_one_index(found), graph).items():
        names = tuple([_write(write, owner, write.nodes[0]).name for write in writes])
        for write in writes:
            write.nodes[0].replace_all_uses_with(owner)
        for node in [node for write in reversed(writes) for node in write.nodes]:  # one that may raise never is dead
            if not node.users:
                graph.erase_node(node)
        matches.append(RuleMatch("reinplace", tuple([w.nodes[0].name for w in writes]), names, _why(owner)))
    if matches:
        remove_dead_code(aten_graph)
    return aten_graph, tuple(matches)


def _why(owner: torch.fx.Node) -> str:
    return f"only a part of {owner.name} changes, and nothing reads its old value"


def _wanted(writes: Sequence[_Write], owner: torch.fx.Node, context: CompileContext) -> bool:
    name = writes[-1].nodes[0].name
    options, origins = ("in-place", "new-buffer"), (f"forward#{name}",)
    return context.decide("in-place", name, options, "in-place", _why(owner), origins=origins) == "in-place"


def _of_one_index(found: dict[torch.fx.Node, list[_Write]]) -> dict[torch.fx.Node, list[_Write]]:
    """Where a write may raise, only those with the same index in the same places: the first raises, or none does."""
    keys = {owner: [_index_key(write) for write in writes] for owner, writes in found.items()}
    first = next((key for own in keys.values() for key in own if key is not None), None)
    if first is None:
        return found
    return {owner: writes for owner, writes in found.items() if all(key == first for key in keys[owner])}


def _index_key(write: _Write) -> Any:
    """Which index is looked up in which sizes; None for a write that raises never."""
    if write.operator is not aten.index_put_.default:
        return None
    window = write.nodes[-1].meta["val"]
    return list(write.arguments[0]), list(map(_number, window.shape))


def _in_time(
    found: dict[torch.fx.Node, list[_Write]], graph: torch.fx.Graph
) -> dict[torch.fx.Node, list[_Write]]:
    """Those before which everything that may raise has run, but for writes among them."""
    while True:
        written = {node for writes in found.values() for write in writes for node in write.nodes}
        checks = {node for node in graph.nodes if _may_raise(node)} - written
        kept = {owner: writes for owner, writes in found.items() if checks <= _above(writes[0].nodes[0])}
        if len(kept) == len(found):
            return kept
        found = kept


def _shared(results: Any) -> set[torch.fx.Node]:
    """What a result is a view of, and what is a result twice: the program may not get the input in its place."""
    found = {node for node in results if results.count(node) > 1}
    pending = [node for node in results if isinstance(node, torch.fx.Node)]
    while pending:
        node = pending.pop()
        above = node.all_input_nodes if node.op == "call_function" and returns_alias(node) else []
        found.update(above)
        pending += above
    return found


# ---- which writes
def _writes(node: Any, owner: torch.fx.Node) -> list[_Write] | None:
    """The writes of small parts, in their order, that make `node` of the input `owner`; None where it is something
    else, or where an older value is read."""
    value, writes = owner.meta["val"], []
    if value.device.type != "cpu" or value.layout is not torch.strided or not in_loops(value.dtype, value.device):
        return None
    while node is not owner:
        write = _last_write(node)
        if write is None:
            return None
        writes.append(write)
        node = write.base
    chain = {node for write in writes for node in write.nodes}
    sizes = [_elements(write.part) for write in writes]
    for at, write in enumerate(writes):
        later = [w.views for w in writes[: at + 1]]
        if any(not (_lends_form(user) or _is_apart(user, later)) for user in write.base.users if user not in chain):
            return None
    small = None not in sizes and FRACTION * sum(filter(None, sizes)) <= (_elements(value) or 0)
    return writes[::-1] if small else None


def _last_write(node: Any) -> _Write | None:
    """`node` as a write, through windows of windows; None for what is no write."""
    if not isinstance(node, torch.fx.Node) or node.op != "call_function" or not node.args:
        return None
    nodes: list[Any] = [node]
    while nodes[-1] is not _of_a_part(node):
        nodes.append(nodes[-1].args[1])
    inner: Any = nodes[-1]
    base: Any = inner.args[0]
    views: _Views = ()
    if not isinstance(base, torch.fx.Node):
        return None
    while inner.target in PARTS and not inner.kwargs:
        views = (*views, (PARTS[inner.target], tuple(inner.args[2:])))
        source: Any = inner.args[1]
        if source.target not in (*PARTS, aten.index_put.default) or not _is_window(source.args[0], base, views):
            only_copied = source.target is aten.copy.default
            new = source.args[1] if only_copied else source
            return _Write(tuple(nodes), base, views, aten.copy_.default, (new,), source.meta["val"])
        if len(source.users) != 1:
            return None
        inner = source
        nodes.append(inner)
    if inner.target is not aten.index_put.default or inner.kwargs:
        return None
    new = inner.args[2]
    single = all(at is None or _elements(at.meta["val"]) == 1 for at in inner.args[1])
    if new.meta["val"].dtype != base.meta["val"].dtype or not single:
        return None
    return _Write(tuple(nodes), base, views, aten.index_put_.default, tuple(inner.args[1:]), new.meta["val"])


def _of_a_part(node: torch.fx.Node) -> torch.fx.Node:
    """The write in what is written over the whole of a tensor of sizes that vary: `x[:, :, 3] = y` is slices first."""
    while node.target is aten.slice_scatter.default:
        source: Any = node.args[1]
        whole = list(map(_number, source.meta["val"].shape)) == list(map(_number, node.meta["val"].shape))
        if not whole or source.target not in (*PARTS, aten.index_put.default) or len(source.users) != 1:
            return node
        node = source
    return node


def _is_window(node: Any, base: torch.fx.Node, views: _Views) -> bool:
    """Whether `node` is what `views` make of `base`."""
    for operator, numbers in reversed(views):
        if not isinstance(node, torch.fx.Node) or node.target is not operator or node.kwargs:
            return False
        if list(map(_number, node.args[1:])) != list(map(_number, numbers)):
            return False
        node = node.args[0]
    return node is base


def _number(value: Any) -> Any:
    """A size in a form that is compared without a guard."""
    return value.node.expr if isinstance(value, torch.SymInt) else value


def _lends_form(node: torch.fx.Node) -> bool:
    """Whether `node` reads only the form of what it is a view of: it is copied over, or written in functional form."""
    if node.target not in PARTS.values():
        return False
    for user in node.users:
        over = user.target in (aten.copy.default, aten.index_put.default, *PARTS)
        if not (over and user.args[0] is node and user.all_input_nodes.count(node) == 1 and _once(user, node)):
            if not _lends_form(user):
                return False
    return True


def _is_apart(node: torch.fx.Node, written: Sequence[_Views], above: _Views = ()) -> bool:
    """Whether `node` reads, through windows of windows, only what lies in none of the windows that are `written`."""
    if node.target not in PARTS.values() or node.kwargs:
        return False
    views = (*above, (node.target, tuple(node.args[1:])))
    if all(_are_apart(views, window) for window in written):
        return True
    return bool(node.users) and all(_is_apart(user, written, views) for user in node.users)


def _are_apart(views: _Views, others: _Views) -> bool:
    """Whether two windows of one tensor have nothing in common: where they part ways, they take other places."""
    for one, other in zip(views, others):
        if one != other:
            (a, mine), (b, theirs) = one, other
            known = all(type(n) is int and n >= 0 for n in (*mine, *theirs))
            if not known or a is not b or mine[:1] != theirs[:1] or len(mine) != len(theirs):
                return False
            if a is aten.select.int:
                return bool(mine[1] != theirs[1])
            return len(mine) == 3 and bool(mine[2] <= theirs[1] or theirs[2] <= mine[1])
    return False


def _once(user: torch.fx.Node, node: torch.fx.Node) -> bool:
    """Whether `node` is the first argument of `user` and no other."""
    rest: list[torch.fx.Node] = []
    torch.fx.node.map_arg((user.args[1:], user.kwargs), rest.append)
    return node not in rest


def _elements(value: torch.Tensor) -> int | None:
    """How many elements a tensor has, at the sizes of the first call; None where data-dependent."""
    count = 1
    for size in value.shape:
        known = size.node.hint if isinstance(size, torch.SymInt) else size
        if known is None:
            return None
        count *= int(known)
    return count


def _may_raise(node: torch.fx.Node) -> bool:
    packet = getattr(node.target, "overloadpacket", None)
    return packet is not None and may_raise(str(packet.__name__))


def _above(node: torch.fx.Node) -> set[torch.fx.Node]:
    found, pending = {node}, [node]
    while pending:
        for above in pending.pop().all_input_nodes:
            if above not in found:
                found.add(above)
                pending.append(above)
    return found


# ---- the rewrite
def _write(write: _Write, owner: torch.fx.Node, before: torch.fx.Node) -> torch.fx.Node:
    """The write to `owner` itself, as a node in front of `before`."""
    graph, window = before.graph, owner

    def call(target: Any, value: Any, *args: Any) -> torch.fx.Node:
        made = graph.call_function(target, args)
        made.meta.update(write.nodes[0].meta)
        made.meta["val"] = value
        return made

    with graph.inserting_before(before):
        for operator, numbers in write.views:
            known = torch.fx.node.map_arg(numbers, lambda n: n.meta["val"])
            window = call(operator, operator(window.meta["val"], *known), window, *numbers)
        return call(write.operator, window.meta["val"], window, *write.arguments)
