"""What a mask hides, found from how it is computed of positions: for all sizes at once, whatever they are.

Each operator on the way to the mask is evaluated on what is known of all elements together: they are one number, the
position along a dimension, or one number up to the diagonal and another after it.
"""
from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.fx
from torch.fx.experimental.symbolic_shapes import statically_known_true

NOTHING, ABOVE_DIAGONAL = "nothing", "above the diagonal"
"""What a mask hides: nothing at all, or the keys after the query's position."""

LONGEST = 200  # operators on the way to a mask
EXACT = 256  # integers up to which all floating dtypes of two bytes or more have each
FARTHEST = 1 << 30  # an offset beyond which positions may not be those of 32 bits

Number = bool | int | float


@dataclass(frozen=True)
class Same:
    """All elements are one number."""

    number: Number


@dataclass(frozen=True)
class Position:
    """Each element is its index along a dimension, and an offset."""

    dim: int
    offset: int = 0


@dataclass(frozen=True)
class Triangle:
    """One number where the index along `column` is at most that along `row`, another elsewhere."""

    row: int
    column: int
    past: Number
    after: Number


Known = Same | Position | Triangle
_INDICES = (torch.int64, torch.int32)


def hidden_by_position(mask: torch.fx.Node, queries: Any, keys: Any) -> str | None:
    """What the mask of an attention hides, if that follows from how it is computed; a node of a traced graph."""
    known = _Evaluation().known(mask)
    shows = lambda number: number is True if isinstance(number, bool) else number == 0
    hides = lambda number: number is False if isinstance(number, bool) else number == -math.inf
    if isinstance(known, Same):
        return NOTHING if shows(known.number) else None
    shape = mask.meta["val"].shape
    if not isinstance(known, Triangle) or (known.row, known.column) != (len(shape) - 2, len(shape) - 1):
        return None
    square = _equal(queries, keys) and _equal(shape[-2], queries) and _equal(shape[-1], keys)
    return ABOVE_DIAGONAL if square and shows(known.past) and hides(known.after) else None


def _equal(a: Any, b: Any) -> bool:
    return bool(statically_known_true(a == b))


class _Evaluation:
    """What is known of nodes, each asked once."""

    def __init__(self) -> None:
        self._found: dict[torch.fx.Node, Known | None] = {}

    def known(self, node: Any) -> Known | None:
        """What is known of a node, or of a number among arguments."""
        if isinstance(node, (bool, int, float)):
            return Same(node)
        if not isinstance(node, torch.fx.Node):
            return None
        if node not in self._found:
            self._found[node] = None  # of what is too long as well
            if len(self._found) < LONGEST and isinstance(node.target, torch._ops.OpOverload):
                name = node.target._schema.name.removeprefix("aten::")
                rule = _RULES.get(name)
                self._found[node] = rule(self, node) if rule is not None else None
        return self._found[node]


Rule = Callable[[_Evaluation, torch.fx.Node], Known | None]


# ---- operators that make, or move
def _shape(node: Any) -> Sequence[Any]:
    shape: Sequence[Any] = node.meta["val"].shape
    return shape


def _arange(given: _Evaluation, node: torch.fx.Node) -> Known | None:
    numbers = list(node.args)
    start = numbers[0] if len(numbers) > 1 else 0
    one_by_one = len(numbers) < 3 or numbers[2] == 1
    if not one_by_one or type(start) is not int or node.meta["val"].dtype not in _INDICES:
        return None
    return Position(0, start)


def _filled(position: int) -> Rule:
    def rule(given: _Evaluation, node: torch.fx.Node) -> Known | None:
        number = node.args[position] if len(node.args) > position else node.kwargs.get("fill_value")
        return _same(node, number) if isinstance(number, (bool, int, float)) else None

    return rule


def _all(number: int) -> Rule:
    return lambda given, node: _same(node, number)


def _as(node: torch.fx.Node, number: Number) -> Number | None:
    """A number in the dtype of a node, None where that may round."""
    dtype = node.meta["val"].dtype
    if dtype == torch.bool:
        return bool(number)
    if not (math.isinf(number) or (abs(number) <= EXACT and number == int(number))) or not _holds(dtype, number):
        return None
    if dtype.is_floating_point:
        return float(number)
    return None if math.isinf(number) else int(number)


def _holds(dtype: torch.dtype, number: Number) -> bool:
    """Whether a dtype has a number as it is: others are rounded, or wrap around."""
    if dtype == torch.bool:
        return True  # computes in the dtype of what is beside it
    if dtype.is_complex or (dtype.itemsize == 1 and dtype.is_floating_point):
        return False
    if not dtype.is_floating_point and isinstance(number, int):
        return torch.iinfo(dtype).min <= number <= torch.iinfo(dtype).max
    if math.isinf(number) or number == 0:
        return True
    limits = torch.finfo(dtype if dtype.is_floating_point else torch.float32)  # what integers and a float compute in
    if not limits.tiny <= abs(number) <= limits.max:
        return False
    return bool(math.fmod(number, limits.eps * 2.0 ** (math.frexp(number)[1] - 1)) == 0)


def _same(node: torch.fx.Node, number: Number) -> Known | None:
    found = _as(node, number)
    return None if found is None else Same(found)


def _triangle_of(node: torch.fx.Node, row: int, column: int, past: Number, after: Number) -> Known | None:
    first, second = _as(node, past), _as(node, after)
    return None if first is None or second is None else Triangle(row, column, first, second)


def _same_number(given: _Evaluation, node: torch.fx.Node) -> Known | None:
    """Of operators whose elements are some of their first argument's."""
    known = given.known(node.args[0])
    return known if isinstance(known, Same) else None


def _unchanged(given: _Evaluation, node: torch.fx.Node) -> Known | None:
    """A copy, or a conversion; of positions into integers only."""
    known, value = given.known(node.args[0]), node.meta["val"]
    if isinstance(known, Same):
        return _same(node, known.number)
    if isinstance(known, Triangle):
        return _triangle_of(node, known.row, known.column, known.past, known.after)
    return known if value.dtype in _INDICES else None


def _moved(places: Callable[[torch.fx.Node], Sequence[int | None] | None]) -> Rule:
    """Of views: `places(node)` says for each dimension of the argument which of the result it is, None for none."""
    def rule(given: _Evaluation, node: torch.fx.Node) -> Known | None:
        known = given.known(node.args[0])
        if known is None or isinstance(known, Same):
            return known
        to = places(node)
        before, after = _shape(node.args[0]), _shape(node)

        def place(dim: int) -> int | None:
            new = to[dim] if to is not None else None
            return new if new is not None and _equal(before[dim], after[new]) else None

        if isinstance(known, Position):
            new = place(known.dim)
            return None if new is None else replace(known, dim=new)
        row, column = place(known.row), place(known.column)
        return None if row is None or column is None else replace(known, row=row, column=column)

    return rule


def _unsqueezed(node: torch.fx.Node) -> list[int | None]:
    given: Any = node.args[1]
    count = len(_shape(node))
    at = given % count
    return [dim if dim < at else dim + 1 for dim in range(count - 1)]


def _expanded(node: torch.fx.Node) -> list[int | None]:
    before, after = len(_shape(node.args[0])), len(_shape(node))
    return [dim + after - before for dim in range(before)]


def _permuted(node: torch.fx.Node) -> list[int | None]:
    given: Any = node.args[1]
    order = [dim % len(_shape(node)) for dim in given]
    return [order.index(dim) for dim in range(len(order))]


def _transposed(node: torch.fx.Node) -> list[int | None]:
    order: list[int | None] = list(range(len(_shape(node))))
    given: Any = node.args[1:3]
    a, b = [dim % len(order) for dim in given]
    order[a], order[b] = order[b], order[a]
    return order


def _viewed(node: torch.fx.Node) -> list[int | None] | None:
    """Of views that add and remove dimensions of size 1."""
    before, after = [[dim for dim, n in enumerate(_shape(x)) if not _equal(n, 1)] for x in (node.args[0], node)]
    sizes, others = _shape(node.args[0]), _shape(node)
    if len(before) != len(after) or not all(_equal(sizes[a], others[b]) for a, b in zip(before, after)):
        return None
    return [after[before.index(dim)] if dim in before else None for dim in range(len(sizes))]


def _sliced(given: _Evaluation, node: torch.fx.Node) -> Known | None:
    known = given.known(node.args[0])
    if known is None or isinstance(known, Same):
        return known
    usual = (None, 0, None, None, 1)
    arguments: Any = (*node.args, *usual[len(node.args) :])
    _, dim, start, _, step = arguments
    at = dim % len(_shape(node))
    start = 0 if start is None else start
    if isinstance(known, Position) and known.dim == at:
        return replace(known, offset=known.offset + start) if step == 1 and type(start) is int and start >= 0 else None
    whole = _equal(_shape(node)[at], _shape(node.args[0])[at])
    return known if whole or isinstance(known, Position) else None


# ---- operators on elements
def _elementwise(function: Callable[..., Any], on_positions: Callable[..., Known | None] | None = None) -> Rule:
    """Of a function of numbers, where the arguments are numbers up to the diagonal and after it. Positions are what
    `on_positions` makes of them."""
    def rule(given: _Evaluation, node: torch.fx.Node) -> Known | None:
        found = [_aligned(given.known(x), x, node) for x in node.args]
        values = [value for value in found if value is not None]
        if len(values) < len(found) or node.kwargs.get("alpha", 1) != 1 or not _are_held(node.args):
            return None
        if any(isinstance(value, Position) for value in values):
            known = on_positions(*values) if on_positions is not None else None
            return _same(node, known.number) if isinstance(known, Same) else known
        triangles = [value for value in values if isinstance(value, Triangle)]
        if len({(t.row, t.column) for t in triangles}) > 1:
            return None
        past, after = [function(*numbers) for numbers in zip(*map(_pair, values))]
        if not triangles:
            return _same(node, past)
        return _triangle_of(node, triangles[0].row, triangles[0].column, past, after)

    return rule


def _are_held(arguments: Sequence[Any]) -> bool:
    """Whether numbers among arguments stay what they are in the dtypes of the tensors beside them."""
    dtypes = [x.meta["val"].dtype for x in arguments if isinstance(x, torch.fx.Node)]
    numbers = [x for x in arguments if not isinstance(x, torch.fx.Node)]
    return all(_holds(dtype, number) for dtype in dtypes for number in numbers)


def _pair(known: Any) -> tuple[Number, Number]:
    """What elements are up to the diagonal, and after it."""
    return (known.past, known.after) if isinstance(known, Triangle) else (known.number, known.number)


def _aligned(known: Known | None, argument: Any, node: torch.fx.Node) -> Known | None:
    """What is known of an argument, by the dimensions of the result: it may have fewer, and some of size 1."""
    if not isinstance(argument, torch.fx.Node) or known is None or isinstance(known, Same):
        return known
    before, after = _shape(argument), _shape(node)
    more = len(after) - len(before)
    dims = (known.dim,) if isinstance(known, Position) else (known.row, known.column)
    if not all(_equal(before[dim], after[dim + more]) for dim in dims):
        return None
    if isinstance(known, Position):
        return replace(known, dim=known.dim + more)
    return replace(known, row=known.row + more, column=known.column + more)


def _shifted(sign: int) -> Callable[[Known, Known], Known | None]:
    """Of the sum (1) or difference (-1) of a position and an integer, or of two positions along one dimension."""
    def on_positions(a: Known, b: Known) -> Known | None:
        if isinstance(a, Position) and isinstance(b, Same) and type(b.number) is int:
            offset = a.offset + sign * b.number
            return replace(a, offset=offset) if abs(offset) <= FARTHEST else None
        if sign == 1 and isinstance(b, Position) and isinstance(a, Same):
            return on_positions(b, a)
        if sign == -1 and isinstance(a, Position) and isinstance(b, Position) and a.dim == b.dim:
            return Same(a.offset - b.offset)
        return None

    return on_positions


def _compared(name: str) -> Callable[[Known, Known], Known | None]:
    """Of comparisons: a position with an integer below the first, with another along its dimension, or along another
    dimension."""
    compare = getattr(operator, name)
    turned = {"lt": "gt", "le": "ge", "gt": "lt", "ge": "le", "eq": "eq", "ne": "ne"}[name]

    def on_positions(a: Known, b: Known) -> Known | None:
        if not isinstance(a, Position):
            return _compared(turned)(b, a)
        if isinstance(b, Position) and a.dim == b.dim:
            return Same(compare(a.offset, b.offset))
        if isinstance(b, Same):
            if isinstance(b.number, float) and abs(a.offset) > EXACT:  # compared in a dtype that may round it
                return None
            first, rest = compare(a.offset, b.number), compare(math.inf, b.number)
            return Same(first) if first == rest and (name not in ("eq", "ne") or b.number < a.offset) else None
        return _triangle(name, a, b) if isinstance(b, Position) else None

    return on_positions


def _triangle(name: str, a: Position, b: Position) -> Known | None:
    """`a` compared with `b`, along two dimensions, as what is at most on the diagonal, and what is after it."""
    ahead = a.offset - b.offset  # a's index + ahead, compared with b's index
    if (name, ahead) in (("le", 0), ("lt", -1)):
        return Triangle(b.dim, a.dim, True, False)
    if (name, ahead) in (("gt", 0), ("ge", -1)):
        return Triangle(b.dim, a.dim, False, True)
    if (name, ahead) in (("ge", 0), ("gt", 1)):
        return Triangle(a.dim, b.dim, True, False)
    if (name, ahead) in (("lt", 0), ("le", 1)):
        return Triangle(a.dim, b.dim, False, True)
    return None


def _cut(upper: bool) -> Rule:
    """Of `tril` and `triu` of one number."""
    def rule(given: _Evaluation, node: torch.fx.Node) -> Known | None:
        known, diagonal = given.known(node.args[0]), (*node.args, 0)[1]
        if not isinstance(known, Same) or diagonal != (1 if upper else 0):
            return None
        rank, number = len(_shape(node)), known.number
        return _triangle_of(node, rank - 2, rank - 1, *((0, number) if upper else (number, 0)))

    return rule


def _summed(given: _Evaluation, node: torch.fx.Node) -> Known | None:
    known = given.known(node.args[0])
    return Same(0) if isinstance(known, Same) and known.number == 0 else None


def _joined(given: _Evaluation, node: torch.fx.Node) -> Known | None:
    """One number, or positions each of which goes on where the one before has ended."""
    tensors: Any = node.args[0]
    parts = [given.known(tensor) for tensor in tensors]
    dim: Any = (*node.args, 0)[1]
    first = parts[0]
    if isinstance(first, Same):
        return _same(node, first.number) if all(part == first for part in parts) else None
    if not isinstance(first, Position) or first.dim != dim % len(_shape(node)):
        return None
    offset: Any = first.offset
    for tensor, part in zip(tensors, parts):
        if type(offset) is not int or part != replace(first, offset=offset):
            return None
        offset = offset + _shape(tensor)[first.dim]
    return first


def _padded(given: _Evaluation, node: torch.fx.Node) -> Known | None:
    known, filler = given.known(node.args[0]), (*node.args, 0)[2]
    return known if isinstance(known, Same) and known.number == filler else None


_RULES: dict[str, Rule] = {
    "arange": _arange, "full": _filled(1), "full_like": _filled(1), "new_full": _filled(2),
    "scalar_tensor": _filled(0), "unsqueeze": _moved(_unsqueezed), "expand": _moved(_expanded),
    "permute": _moved(_permuted), "transpose": _moved(_transposed), "slice": _sliced, "tril": _cut(False),
    "triu": _cut(True), "cumsum": _summed, "cat": _joined, "constant_pad_nd": _padded,
    "where": _elementwise(lambda condition, a, b: a if condition else b),
    "masked_fill": _elementwise(lambda x, condition, number: number if condition else x),
    "logical_not": _elementwise(operator.not_),
    "bitwise_not": _elementwise(lambda x: not x if isinstance(x, bool) else ~x),
    "add": _elementwise(operator.add, _shifted(1)), "sub": _elementwise(operator.sub, _shifted(-1)),
    "mul": _elementwise(operator.mul), "neg": _elementwise(operator.neg), "rsub": _elementwise(lambda a, b: b - a),
    **dict.fromkeys(("zeros", "zeros_like", "new_zeros"), _all(0)),
    **dict.fromkeys(("ones", "ones_like", "new_ones"), _all(1)),
    **dict.fromkeys(("clone", "alias", "_to_copy", "detach", "lift_fresh_copy"), _unchanged),
    **dict.fromkeys(("view", "reshape", "_unsafe_view", "squeeze"), _moved(_viewed)),
    **dict.fromkeys(("index", "gather", "index_select", "select"), _same_number),
    "bitwise_and": _elementwise(operator.and_), "bitwise_or": _elementwise(operator.or_),
    "logical_and": _elementwise(lambda a, b: bool(a) and bool(b)),
    "logical_or": _elementwise(lambda a, b: bool(a) or bool(b)),
    **{name: _elementwise(getattr(operator, name), _compared(name)) for name in ("eq", "ne", "lt", "le", "gt", "ge")},
}
