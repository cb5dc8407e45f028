"""Which values are computed where they are used, and which are stored once: the analysis before lowering.

A value with one consumer is inlined into it. A value with several is inlined when all of them end in one loop body,
so that it is still computed once: that is so when a single pointwise node post-dominates it, through pointwise nodes
only. (The post-dominator tree of an acyclic graph, built backwards in one pass; Cooper, Harvey and Kennedy, "A simple,
fast dominance algorithm", 2001, needs no iteration then.)
"""
from __future__ import annotations

import itertools
import operator
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
import torch.fx

from ..graphs.data_dependent_errors import raises_by_value
from ..ir.affine import Linear, Size, constant, product, sizes
from .lazy_tensors import Value, loop_index
from .registry import COMPOSITE, GATHER, LOWERINGS, POINTWISE, REDUCTION, RESHAPE, VIEW

aten = torch.ops.aten
FEWEST = 32  # elements, below which a value costs nothing to compute again
ONCE_MORE = 4  # recomputations of an element that cost as much as storing it and loading it that often
SHORT = 32  # iterations of a loop that are too few to amortize scalar code before it
LANES = 16  # float32 in a vector
COLUMNS = LANES // 2  # fewer are computed at less than half of a vector at a time
MANY, SHORT_OF_MANY = 4096, 128  # values that are worth a vectorized loop of their own, also beside longer ones


def kind_of(node: torch.fx.Node) -> str | None:
    """The kind of the node's lowering, None when ATen is called."""
    known = LOWERINGS.get(node.target)
    return known.kind if known is not None else None


def kinds_of(nodes: Iterable[torch.fx.Node]) -> dict[torch.fx.Node, str | None]:
    """The kind of each of `nodes`; a target is looked up once, for torch computes the hash of an operator in Python."""
    known: dict[int, str | None] = {}
    kinds = {}
    for node in nodes:
        target = id(node.target)
        if target not in known:
            known[target] = kind_of(node)
        kinds[node] = known[target]
    return kinds


def scattered(graph: torch.fx.Graph) -> frozenset[str]:
    """Names of the nodes whose several uses do not end in one loop body (uses count through views)."""
    nodes = [n for n in graph.nodes if n.op == "call_function"]
    kinds = kinds_of(graph.nodes)
    for node in nodes:
        if node.target is operator.getitem and kinds[node.all_input_nodes[0]] == VIEW:
            kinds[node] = VIEW  # a part of a split
    depth: dict[Any, int] = {None: 0}  # None is the root: everything that leaves the loops
    parent: dict[Any, Any] = {None: None}  # as seen by a node's producers
    uses: dict[Any, int] = {}
    meeting: dict[Any, Any] = {}  # the immediate post-dominator of a node
    for node in reversed(nodes):
        if len(node.users) == 1:  # most nodes
            user, = node.users
            meet = user if kinds[user] not in (None, COMPOSITE) else None
            meeting[node], uses[node] = meet, uses[user] if kinds[user] in (RESHAPE, VIEW) else 1
        else:
            meet = _meet_of_several(node, kinds, parent, depth, uses, meeting)
        parent[node] = meet if kinds[node] in (POINTWISE, RESHAPE) else None
        depth[node] = depth[parent[node]] + 1
    return frozenset(n.name for n in nodes if uses[n] > 1 and _ends_outside(n, meeting, kinds))


def _meet_of_several(
    node: torch.fx.Node, kinds: Mapping[torch.fx.Node, str | None], parent: dict[Any, Any], depth: dict[Any, int],
    uses: dict[Any, int], meeting: dict[Any, Any],
) -> Any:
    """Enter where several uses of a value meet, and how many there are; give the node that it is counted to."""
    users = [u for u in node.users if u.op != "output"]
    leaves = len(users) != len(node.users) or any(kinds[u] in (None, COMPOSITE) for u in users)
    meet = None if leaves or not users else users[0]
    for user in users[1:]:
        if meet is None:
            break
        meet = _common(meet, user, parent, depth)
    counts = [uses[u] if kinds[u] in (RESHAPE, VIEW) else 1 for u in users]
    parts = [u for u in users if uses[u]]
    if not leaves and _are_apart(parts) and not any(_ends_outside(u, meeting, kinds) for u in parts):
        meeting[node], uses[node] = parts[0], max(counts)  # an element is used where its slice is, and only there
    else:
        meeting[node], uses[node] = meet, sum(counts) + len(node.users) - len(users)
    return meet


def _are_apart(users: Sequence[torch.fx.Node]) -> bool:
    """Whether `users` of a value are views of several parts of it along one dimension, none of which overlap."""
    if len(users) < 2:
        return False
    parts = [part for part in map(_part, users) if part is not None]
    if len(parts) < len(users) or len({dim for dim, _, _ in parts}) > 1:
        return False
    ranges = sorted((start, end) for _, start, end in parts)
    return all(end <= start for (_, end), (start, _) in itertools.pairwise(ranges))


def _part(view: torch.fx.Node) -> tuple[int, int, int] | None:
    """(dimension, start, end) of a view of one range of a dimension: by its place among the parts of a split. None for
    other views, and where sizes vary."""
    arguments: Any = view.args
    if view.target is operator.getitem:
        return 0, arguments[1], arguments[1] + 1
    if view.target not in (aten.select.int, aten.slice.Tensor) or len(arguments) < 3:
        return None
    viewed, dim, *at = arguments
    length = viewed.meta["val"].shape[dim]
    if not all(type(number) is int for number in (length, *at)):
        return None
    start, end, _ = slice(*at).indices(length)
    if view.target is aten.select.int:
        start, end = at[0] % length, at[0] % length + 1
    return dim % viewed.meta["val"].dim(), start, end


def leaving(graph: torch.fx.Graph) -> frozenset[str]:
    """Names of the nodes whose value, or a view of it, goes to a library call or out of the graph."""
    names: set[str] = set()
    kinds = kinds_of(graph.nodes)
    for node in reversed(graph.nodes):
        for user in node.users:
            kind = kinds[user]
            if kind is None or (kind in (RESHAPE, VIEW) and user.name in names):
                names.add(node.name)
    return frozenset(names)


def read_in_part(graph: torch.fx.Graph) -> frozenset[str]:
    """Names of the nodes that raise for some data, and of which no loops would compute every element: these are
    computed completely, as in eager, so that they raise where eager does."""
    whole: set[torch.fx.Node] = set()
    for node in reversed(graph.nodes):
        if any(user.op == "output" or _reads_whole(user, node, user in whole) for user in node.users):
            whole.add(node)
    return frozenset([n.name for n in graph.nodes if n not in whole and n.op == "call_function" and raises_by_value(n)])


_REARRANGING = frozenset("cat stack flip roll repeat".split())
_OF_WINDOWS = ("pool", "upsample")
_LIKE = ("_like", ".new_", ".fill.", ".zero.", ".copy.")  # only the form of the first argument is read


def _reads_whole(user: torch.fx.Node, node: torch.fx.Node, whole: bool) -> bool:
    """Whether `user`, all elements of which are computed where `whole` says so, reads all elements of `node`."""
    kind, name = kind_of(user), str(user.target)
    if user.args[0] is node and any(part in name for part in _LIKE):
        return False
    if kind == GATHER:
        packet = getattr(getattr(user.target, "overloadpacket", None), "__name__", "")
        return whole and (packet in _REARRANGING or user.args[0] is not node)
    if kind == VIEW:
        of, to = node.meta["val"], user.meta["val"]
        return whole and isinstance(to, torch.Tensor) and product(sizes(of.shape)) == product(sizes(to.shape))
    if kind in (POINTWISE, RESHAPE):
        return whole
    return not any(part in name for part in _OF_WINDOWS)


def repeated(value: Value, size: Sequence[Size], stride: Sequence[Size]) -> bool:
    """Whether the loops of a tensor of this size and stride would compute `value`, which is lazy, too often.

    What varies in the innermost loop is recomputed in every loop around it; what is invariant there is scalar code.
    False where sizes are not known.
    """
    own, count = product(value.base.size), product(size)
    axes, index = loop_index(size, stride)
    if type(own) is not int or type(count) is not int or own < FEWEST or not axes:
        return False
    name, extent = axes[-1]
    if len(index) < len(value.size):  # a data-dependent selection of elements
        return count >= ONCE_MORE * own
    index = index[len(index) - len(value.size):]
    index = tuple([constant(0) if s == 1 else i for s, i in zip(value.size, index)])
    index = index if value.reindex is None else value.reindex(index)
    if any(_mentions(i, name) for i in index):
        return count >= ONCE_MORE * own
    return count > own and type(extent) is int and extent < (SHORT if own < MANY else SHORT_OF_MANY)


def reduced_to_few_columns(node: torch.fx.Node, value: Value) -> bool:
    """Whether `value`, which `node` makes lazily, is read by nothing but reductions of many elements to few columns.

    Their loops compute as many elements at once as there are columns; a loop of its own, over whole memory, fills
    vectors. False where sizes are not known.
    """
    made = node.meta["val"]
    if not isinstance(made, torch.Tensor) or type(made.numel()) is not int or made.numel() < MANY:
        return False
    if not made.dim() or made.shape[-1] >= COLUMNS:
        return False
    whole = all(w.reindex is None and (w.size, w.base.stride) == (value.size, value.base.stride)
                for w in value.base.windows)  # fmt: skip
    return made.is_contiguous() and whole and _into_columns(node, set())


def rows_at_once(value: torch.Tensor, dims: Sequence[int]) -> int:
    """How many rows are taken as one by a reduction over all rows of few columns, to as many results, which are then
    reduced to one row: a loop over a row alone fills no vector. 1 where rows are taken one by one."""
    shape, rank = sizes(value.shape), value.dim()
    rows, columns = product(shape[:-1]), product(shape[-1:])
    if sorted(dim % rank for dim in dims) != list(range(rank - 1)):
        return 1
    if type(rows) is not int or type(columns) is not int or rows * columns < MANY or not 1 < columns < LANES:
        return 1
    if not value.is_contiguous():
        return 1
    return next((count for count in (16, 8) if rows % count == 0), 1)


def _into_columns(node: torch.fx.Node, seen: set[torch.fx.Node]) -> bool:
    """Whether all users are reductions that keep few of the last elements, if need be after pointwise operations; of
    those that were `seen` it is known."""
    shape = node.meta["val"].shape
    for user in node.users.keys() - seen:
        seen.add(user)
        kind = kind_of(user)
        if kind == REDUCTION:
            dims: Any = user.args[1] if len(user.args) > 1 and isinstance(user.args[1], (list, tuple)) else ()
            if rows_at_once(node.meta["val"], dims) > 1:
                return False
            if not dims or not 1 < product(sizes(shape[max(dim % len(shape) for dim in dims) + 1:])) < COLUMNS:
                return False
        elif kind != POINTWISE or user.meta["val"].shape != shape or not _into_columns(user, seen):
            return False
    return bool(node.users)


def _mentions(form: Linear, name: str) -> bool:
    """Whether a loop's index is part of a form."""
    return any(a.name == name if a.inner is None else _mentions(a.inner, name) for a in form.terms)


def _common(a: Any, b: Any, parent: dict[Any, Any], depth: dict[Any, int]) -> Any:
    while a is not b:
        if depth[a] >= depth[b]:
            a = parent[a]
        else:
            b = parent[b]
    return a


def _ends_outside(
    node: torch.fx.Node, meeting: Mapping[Any, Any], kinds: Mapping[torch.fx.Node, str | None]
) -> bool:
    """True when no single node post-dominates the uses of a value, followed through views."""
    meet = meeting[node]
    while meet is not None and kinds[meet] in (RESHAPE, VIEW):
        meet = meeting[meet]
    return meet is None
