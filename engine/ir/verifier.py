"""Well-formedness checks: `verify` raises `VerifyError`, which names the statement and the fault.

Runs between stages in tests and under PTDEBUG_VERIFY=1; code generators may rely on everything that is checked here.
"""
from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping

import sympy
import torch
from torch.utils._sympy.functions import FloorDiv, Mod, PythonMod

from .ir import (
    BINARY_OPS,
    OPS,
    REDUCTIONS,
    SCANS,
    UNARY_OPS,
    Axis,
    Buffer,
    ExternCall,
    Foreach,
    Group,
    LoopBody,
    Plan,
    Program,
    Statement,
    View,
)
from .printer import format_expr, format_statement

COMPARISONS = frozenset(("eq", "ne", "lt", "le", "gt", "ge", "isnan", "isinf"))
LOGICAL = frozenset(("logical_and", "logical_or", "logical_xor", "logical_not"))
ARITY = {"load": 0, "constant": 0, "index": 0, "where": 3, "fma": 3, "store": 1, "cast": 1, "bitcast": 1, "indirect": 1,
         "reduce": 1, "scan": 1, "part": 1, "rand": 2, "randn": 2,
         **dict.fromkeys(UNARY_OPS, 1), **dict.fromkeys(BINARY_OPS, 2)}
SIXTEEN_BITS = (torch.float16, torch.bfloat16)


class VerifyError(ValueError):
    """The loop IR is malformed: a fault of the compiler, not of the program that it compiles."""


def verify(program: Program | Plan) -> None:
    """Check every body and call of a program or plan."""
    plan = program if isinstance(program, Plan) else None
    whole = plan.program if plan is not None else program
    assert isinstance(whole, Program)
    written = {b.name for b in whole.buffers.values() if b.role != "intermediate" or 0 in b.size}
    in_place = {name for view, name in whole.copies if view.buffer == name} if plan is not None else set()
    for name in (*whole.inputs, *whole.constants):
        if name in whole.buffers and whole.buffers[name].role == "intermediate":
            raise VerifyError(f"{name} is an input or constant, but its buffer's role is intermediate")
    symbols = set(whole.symbols)
    for step in (plan.items if plan is not None else whole.steps):
        for body in _bodies(step):
            if isinstance(body, LoopBody):
                verify_body(body, whole.buffers, symbols, None if plan is None else in_place)
                _available(body.name, body.reads, written)
                written.update(body.writes)
            else:
                _available(body.name, [v.buffer for v in views((body.args, body.kwargs))], written)
                written.update(o for o in body.outputs if o is not None)
                symbols.update(symbol for symbol, _, _ in body.binds)  # unbacked ones, which the call's result defines
        if isinstance(step, Group):
            _check_group(step)
        if isinstance(step, Foreach):
            _check_foreach(step)
    for view in views((whole.outputs, whole.copies)):
        _available("an output", [view.buffer], written)
        _check_window(view, whole.buffers[view.buffer])


def _bodies(step: LoopBody | ExternCall | Group) -> tuple[LoopBody | ExternCall, ...]:
    return step.bodies if isinstance(step, Group) else (step,)


def _available(who: str, names: Iterable[str], written: set[str]) -> None:
    for name in names:
        if name not in written:
            raise VerifyError(f"{who} reads {name}, which nothing has written yet")


def views(tree: object) -> Iterable[View]:
    """Every View in a tree of arguments."""
    if isinstance(tree, View):
        yield tree
    elif isinstance(tree, (tuple, list)):
        for item in tree:
            yield from views(item)
    elif isinstance(tree, Mapping):
        for item in tree.values():
            yield from views(item)


def _check_group(group: Group) -> None:
    for body in group.bodies:
        if body.axes[:len(group.axes)] != group.axes:
            raise VerifyError(f"{group.kernel}: the axes of {body.name} do not start with those of the kernel")


def _check_foreach(foreach: Foreach) -> None:
    """Members run at once: none touches what another writes, and each provides all that the template requires."""
    if tuple([b for m in foreach.members for b in m.group.bodies]) != foreach.bodies:
        raise VerifyError(f"{foreach.kernel}: its bodies are not those of its members")
    template = foreach.template
    writers: dict[str, int] = {}
    for k, member in enumerate(foreach.members):
        if (len(member.arguments), len(member.sizes)) != (len(template.parameters), len(template.sizes)):
            raise VerifyError(f"{foreach.kernel}: {member.group.kernel} does not fill the template")
        writers.update((n, k) for b in member.group.bodies for n in b.writes)
    for k, member in enumerate(foreach.members):
        for name in (n for b in member.group.bodies for n in (*b.reads, *b.writes)):
            if writers.get(name, k) != k:
                why = f"{member.group.kernel} conflicts with another member: both access {name}"
                raise VerifyError(f"{foreach.kernel}: {why}")


def _check_window(view: View, buffer: Buffer) -> None:
    span = _span(buffer)
    last = view.offset + sum((s - 1) * t for s, t in zip(view.size, view.stride))
    if view.dtype is None and 0 not in view.size and span.is_Integer and last.is_Integer and not 0 <= last < span:
        raise VerifyError(f"a view of {buffer.name} ends at element {last} of {span}")


def _span(buffer: Buffer) -> sympy.Expr:
    if 0 in buffer.size:
        return sympy.S.Zero
    return sympy.Add(*[(s - 1) * t for s, t in zip(buffer.size, buffer.stride)], sympy.S.One)


# ---- bodies
def verify_body(
    body: LoopBody, buffers: Mapping[str, Buffer], symbols: Iterable[sympy.Symbol] = (),
    in_place: Collection[str] | None = None,
) -> None:
    """Check one body against the buffers it names. In a plan, `in_place` are the inputs that bodies may write over."""
    _BodyCheck(body, buffers, set(symbols), in_place).run()


class _BodyCheck:
    def __init__(
        self, body: LoopBody, buffers: Mapping[str, Buffer], symbols: set[sympy.Symbol],
        in_place: Collection[str] | None,
    ) -> None:
        self.body, self.buffers, self.in_place = body, buffers, in_place
        self.known: dict[str, Statement] = {}
        self.sizes = symbols
        axes: tuple[Axis, ...] = body.axes + body.reduction_axes
        self.ranges: dict[sympy.Symbol, tuple[sympy.Expr, sympy.Expr]] = {
            a.symbol: (sympy.S.Zero, a.extent - 1) for a in axes}
        self.empty = any(a.extent == 0 for a in axes)
        self.inner = {a.symbol for a in body.reduction_axes}
        self.reduced: set[str] = set()  # statements that come after a reduction
        self.varies: set[str] = set()  # statements that differ along the reduction axes

    def run(self) -> None:
        names = [a.symbol for a in self.body.axes + self.body.reduction_axes]
        if len(set(names)) != len(names):
            raise VerifyError(f"body {self.body.name}: two axes of one name")
        for s in self.body.statements:
            try:
                self._statement(s)
            except VerifyError as fault:
                raise VerifyError(f"body {self.body.name}: `{format_statement(s)}`: {fault}") from None
            if s.op != "store":
                self.known[s.name] = s
        stores = self.body.writes
        if not stores:
            raise VerifyError(f"body {self.body.name}: nothing is stored")
        if stores[0] != self.body.name and self.in_place is None:  # in a plan, it may store over other memory
            raise VerifyError(f"body {self.body.name}: it is named after {stores[0]}, the first buffer that it stores")

    def _statement(self, s: Statement) -> None:
        if s.op not in OPS:
            raise VerifyError("unknown operation")
        if len(s.args) != ARITY[s.op]:
            raise VerifyError(f"{len(s.args)} arguments, {ARITY[s.op]} expected")
        for name in (*s.args, *((s.mask,) if s.mask else ())):
            if name not in self.known:
                raise VerifyError(f"{name} is used before it is defined")
        if s.op == "store":
            if s.name:
                raise VerifyError("a store has no name")
        elif not s.name or s.name in self.known:
            raise VerifyError(f"{s.name!r} is defined twice" if s.name else "it has no name")
        if s.index is not None:
            self._index(s)
        rule = _RULES.get(s.op, _check_operation)
        rule(self, s)
        self._flow(s)

    def _index(self, s: Statement) -> None:
        assert s.index is not None
        for symbol in s.index.free_symbols:
            if symbol not in self.ranges and symbol not in self.sizes and not self._is_size(symbol):
                raise VerifyError(f"index over the unknown symbol {symbol}")
        if s.buffer and s.buffer not in self.buffers:
            raise VerifyError(f"unknown buffer {s.buffer}")
        if s.buffer and not s.mask and not self.empty:
            low, high = bounds(s.index, self.ranges)
            span = _span(self.buffers[s.buffer])
            if low is not None and (low.is_negative or (low.is_Integer and low < 0)):
                raise VerifyError(f"the index may be {format_expr(low)}, before the start of {s.buffer}")
            if high is not None and (high - span).is_nonnegative:
                size = format_expr(span)
                raise VerifyError(f"the index may be {format_expr(high)}, but {s.buffer} has {size} elements")

    def _is_size(self, symbol: sympy.Symbol) -> bool:
        """Size symbols of the buffers are known without being declared."""
        return any(symbol in e.free_symbols for b in self.buffers.values() for e in (*b.size, *b.stride))

    def _flow(self, s: Statement) -> None:
        """No statement may depend on a reduction's result and on a reduction axis: that is a second loop."""
        if s.op == "reduce":
            self.reduced.add(s.name)
            return
        symbols = set() if s.index is None else s.index.free_symbols
        varies = bool(symbols & self.inner) or any(a in self.varies for a in (*s.args, s.mask))
        varies = varies or s.op == "scan" or any(str(x) in self.varies for x in symbols)
        after = any(a in self.reduced for a in (*s.args, s.mask)) or any(str(x) in self.reduced for x in symbols)
        if varies and after:
            raise VerifyError("it needs a reduction's result inside the reduction's own loop")
        if s.op == "store" and varies is not self.body.scans:
            raise VerifyError("a store inside the reduction loop" if varies else "a scan stores at each of its points")
        if varies:
            self.varies.add(s.name)
        if after:
            self.reduced.add(s.name)

    def dtype(self, name: str) -> torch.dtype:
        return self.known[name].dtype


def _expect(condition: bool, message: str) -> None:
    if not condition:
        raise VerifyError(message)


def _check_load(c: _BodyCheck, s: Statement) -> None:
    _expect(s.index is not None, "no index")
    _expect(s.buffer in c.buffers and c.buffers[s.buffer].dtype is s.dtype, f"{s.buffer} holds another dtype")
    if s.mask:
        _expect(c.dtype(s.mask) is torch.bool, f"the mask {s.mask} is not a bool")
        _expect(s.value is not None, "a masked load needs a value for where the mask is False")


def _check_store(c: _BodyCheck, s: Statement) -> None:
    _expect(s.index is not None, "no index")
    _expect(s.buffer in c.buffers and c.buffers[s.buffer].dtype is s.dtype, f"{s.buffer} holds another dtype")
    _expect(c.dtype(s.args[0]) is s.dtype, f"{s.args[0]} is {c.dtype(s.args[0])}")
    _expect(s.mode in ("", "add", "put"), f"unknown mode {s.mode!r}")
    if s.buffer in c.buffers and s.buffer not in (c.in_place or ()):
        _expect(c.buffers[s.buffer].role == "intermediate", "a store to an input or a constant")


def _check_constant(c: _BodyCheck, s: Statement) -> None:
    kind = bool if s.dtype is torch.bool else float if s.dtype.is_floating_point else int
    _expect(type(s.value) is kind, f"{s.value!r} is no constant of {s.dtype}")


def _check_index(c: _BodyCheck, s: Statement) -> None:
    _expect(s.index is not None and s.dtype is torch.int64, "an index is an int64")


def _check_indirect(c: _BodyCheck, s: Statement) -> None:
    _expect(c.dtype(s.args[0]) is torch.int64 and s.dtype is torch.int64, "an indirect index is an int64")
    _expect(s.bound is not None, "no bound")
    _expect(s.mode in ("", "strict", "unchecked"), f"unknown mode {s.mode!r}")
    assert s.bound is not None
    c.ranges[sympy.Symbol(s.name, integer=True, nonnegative=True)] = (sympy.S.Zero, s.bound - 1)


def _check_reduce(c: _BodyCheck, s: Statement) -> None:
    _expect(s.mode in REDUCTIONS, f"unknown reduction {s.mode!r}")
    _expect(bool(c.body.reduction_axes), "no reduction axes")
    if s.mode in ("argmax", "argmin"):
        _expect(s.dtype is torch.int64, "a position is an int64")
    else:
        _expect(c.dtype(s.args[0]) is s.dtype, f"{s.args[0]} is {c.dtype(s.args[0])}")
    if s.mode in ("any", "all"):
        _expect(s.dtype is torch.bool, "any and all are of bools")


def _check_scan(c: _BodyCheck, s: Statement) -> None:
    _expect(s.mode in SCANS, f"unknown scan {s.mode!r}")
    _expect(bool(c.body.reduction_axes), "no reduction axes")
    _expect(not any(x.op == "reduce" for x in c.body.statements), "a body reduces or scans, not both")
    if s.mode in ("argmax", "argmin"):
        _expect(s.dtype is torch.int64, "a position is an int64")
    else:
        _expect(c.dtype(s.args[0]) is s.dtype, f"{s.args[0]} is {c.dtype(s.args[0])}")


def _check_part(c: _BodyCheck, s: Statement) -> None:
    _expect(c.known[s.args[0]].mode == "welford", f"{s.args[0]} is no reduction with parts")
    _expect(s.value in (0, 1, 2), "a part is 0, 1 or 2")


def _check_bitcast(c: _BodyCheck, s: Statement) -> None:
    _expect(c.dtype(s.args[0]).itemsize == s.dtype.itemsize, "the widths differ")


def _check_where(c: _BodyCheck, s: Statement) -> None:
    _expect(c.dtype(s.args[0]) is torch.bool, f"{s.args[0]} is not a bool")
    _same(c, s, s.args[1:])


def _check_operation(c: _BodyCheck, s: Statement) -> None:
    if s.op in LOGICAL:
        _expect({s.dtype, *map(c.dtype, s.args)} == {torch.bool}, "logical operations are of bools")
    elif s.op in COMPARISONS:
        _expect(s.dtype is torch.bool, "a comparison is a bool")
        _expect(len({c.dtype(a) for a in s.args}) == 1, "operands of two dtypes")
    elif s.op not in ("cast", "rand", "randn"):
        _same(c, s, s.args)


def _same(c: _BodyCheck, s: Statement, args: Iterable[str]) -> None:
    for a in args:
        _expect(c.dtype(a) is s.dtype, f"{a} is {c.dtype(a)}")
    _expect(s.dtype not in SIXTEEN_BITS, f"arithmetic in {s.dtype}: it is done in float32")


_RULES: dict[str, Callable[[_BodyCheck, Statement], None]] = {
    "load": _check_load, "store": _check_store, "constant": _check_constant, "index": _check_index,
    "indirect": _check_indirect, "reduce": _check_reduce, "scan": _check_scan, "part": _check_part,
    "bitcast": _check_bitcast, "where": _check_where,
}

Range = tuple[sympy.Expr | None, sympy.Expr | None]


def bounds(e: sympy.Expr, ranges: Mapping[sympy.Symbol, tuple[sympy.Expr, sympy.Expr]]) -> Range:
    """Inclusive bounds of an index expression by interval arithmetic; None where unknown."""
    if isinstance(e, sympy.Symbol):
        return ranges.get(e, (e, e))
    if e.is_number or not e.free_symbols & set(ranges):
        return e, e
    if isinstance(e, sympy.Add):
        parts = [bounds(a, ranges) for a in e.args]
        low = None if any(p[0] is None for p in parts) else sympy.Add(*[p[0] for p in parts])
        high = None if any(p[1] is None for p in parts) else sympy.Add(*[p[1] for p in parts])
        return low, high
    if isinstance(e, sympy.Mul):
        fixed = [a for a in e.args if not a.free_symbols & set(ranges)]
        moving = [a for a in e.args if a.free_symbols & set(ranges)]
        factor = sympy.Mul(*fixed)
        if len(moving) == 1 and (factor.is_nonnegative or factor.is_nonpositive):
            low, high = bounds(moving[0], ranges)
            if factor.is_nonpositive:
                low, high = high, low
            return None if low is None else factor * low, None if high is None else factor * high
        return None, None
    if isinstance(e, FloorDiv) and e.args[1].is_Integer and e.args[1] > 0:
        low, high = bounds(e.args[0], ranges)
        return None if low is None else FloorDiv(low, e.args[1]), None if high is None else FloorDiv(high, e.args[1])
    if isinstance(e, Mod) or (isinstance(e, PythonMod) and e.args[1].is_positive):
        return sympy.S.Zero, e.args[1] - 1
    return None, None
