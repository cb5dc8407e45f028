"""Prints reductions and scans: accumulators, alone or several for each, in lanes, in blocks and in chunks."""
from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import sympy

from ...ir.ir import Statement
from ...ir.loop_nest import (
    VECTOR,
    Accumulate,
    Band,
    Chunks,
    Interleave,
    InterleavedLoop,
    Part,
    Reduction,
    RunningScan,
    SumBlocks,
)
from .dtypes import ctype
from .emission import Emission, Interleaving, condition, header
from .indices import c_expression
from .reductions import Accumulator, Field, Place
from .scans import Scan
from .scope import origins_of
from .statements import StatementWriter


# ---- where accumulators are ------------------------------------------------------------------------------------------
def accumulator_of(r: Reduction, partial: bool = False) -> Accumulator:
    """The state of a reduction; `partial`: of a float sum within a block."""
    if partial:
        return Accumulator("sum", r.operand, r.operand)
    return Accumulator(r.kind, r.statement.dtype, r.operand, r.wide)


def fields_of(r: Reduction, partial: bool = False) -> tuple[Field, ...]:
    """The fields of that state."""
    return accumulator_of(r, partial).fields


def state_of(scan: RunningScan) -> Scan:
    """The state of a scan."""
    return Scan(scan.statement.mode, scan.statement.dtype, scan.operand)


def variable(p: Emission, r: Reduction) -> str:
    """The name of a reduction's accumulator, of the block where there is one."""
    return f"{p.names[r]}_part" if r in p.partial else p.names[r]


def at(p: Emission, name: str, index: str = "") -> Place:
    """The fields of an accumulator: variables, or elements of arrays over lanes."""
    lane = f"[{p.lane.symbol} - {p.lane.symbol}_0]" if p.lane is not None else ""
    return lambda suffix: f"{name}{suffix}{index}{lane}"


@contextmanager
def each_lane(p: Emission) -> Iterator[None]:
    """A loop over lanes, where there are any."""
    if p.lane is None:
        yield
        return
    p.writer.line("#pragma omp simd")
    with p.writer.block(header(p.lane, *p.span(p.lane))):
        yield


def declare(p: Emission, name: str, part: Part, s: Statement, fields: Sequence[Field], once: bool) -> None:
    """The variables of an accumulator (or arrays over lanes, which are not set where they start `once`)."""
    origins = origins_of(part.body.name, s.name, s.origins)
    for f in fields:
        if p.lane is None:
            p.writer.line(f"{f.type} {name}{f.suffix} = {f.start};", origins)
            continue
        p.writer.line(f"{f.type} {name}{f.suffix}[{p.width}];", origins)
        if not once:
            p.writer.line("#pragma omp simd")
            p.writer.line(f"for (int64 k = 0; k < {p.step}; k++) {name}{f.suffix}[k] = {f.start};", origins)


def position(p: Emission) -> sympy.Expr:
    """The linear index of the iteration."""
    assert p.band is not None
    place: sympy.Expr = sympy.S.Zero
    for a in p.band.loops:
        place = place * a.extent + a.symbol
    return sympy.expand(place)


# ---- bands -----------------------------------------------------------------------------------------------------------
def band(p: Emission, node: Band) -> None:
    """A nest, with a flag for indices that are out of bounds."""
    p.names.clear()
    p.band, p.outside = node, p.scopes.name("outside") if node.checks else ""
    if node.flag:
        p.writer.line(f"int32 {p.outside} = 0;")
    p.nodes(node.body)
    if node.flag:
        _report(p)
    p.band, p.outside = None, ""


def _report(p: Emission) -> None:
    with p.writer.block(f"if ({p.outside})"):
        p.writer.line("#pragma omp atomic write")
        p.writer.line(f"status = 1 + __builtin_ctz({p.outside});")


def accumulate(p: StatementWriter, node: Accumulate) -> None:
    """Accumulators before the loops, their results after them."""
    for scan in node.scans:
        p.names[scan] = p.scopes.name(f"{scan.part.body.name}_{scan.statement.name}_so_far")
    for r in node.reductions:
        p.names[r] = p.scopes.name(f"{r.part.body.name}_{r.statement.name}")
    for r in node.reductions:
        declare(p, p.names[r], r.part, r.statement, fields_of(r), node.once)
    for scan in node.scans:
        declare(p, p.names[scan], scan.part, scan.statement, state_of(scan).fields, node.once)
    p.nodes(node.body)
    for r in node.reductions:
        text = accumulator_of(r).result(at(p, p.names[r]))
        in_lanes = p.lane is not None
        p.scopes.put(("value", r.part.key, r.statement.name),
                     f"({text})" if in_lanes else _named_result(p, r.part, r.statement, text))
    for part, s, r in node.positions:
        text = at(p, p.names[r])("")
        p.scopes.put(("value", part.key, s.name), text if p.lane is not None else _named_result(p, r.part, s, text))


def _named_result(p: Emission, part: Part, s: Statement, text: str) -> str:
    name = p.scopes.name(f"{part.body.name}_{s.name}_result")
    p.writer.line(f"const {ctype(s.dtype).value} {name} = {text};", origins_of(part.body.name, s.name, s.origins))
    return name


def update(p: StatementWriter, part: Part, s: Statement) -> None:
    """Take a value into the accumulator of the reduction `s`."""
    r = next(r for r in p.names if r.part is part and r.statement is s)
    assert isinstance(r, Reduction)
    value = p.value(part, s.args[0])
    place, where, around = at(p, variable(p, r)), position(p), p.interleaving
    if around is not None:
        place = _side_by_side(p, r, around.element)
        start = sympy.Symbol(around.start, integer=True) if around.start else sympy.S.Zero
        where = where.xreplace({around.axis.symbol: start})
    if p.in_variables:
        place = _now(variable(p, r))
    if p.present:
        value = _or_start(p, part, s, r, value)
    for text in accumulator_of(r, r in p.partial).update(place, value, c_expression(where)):
        p.writer.line(text, origins_of(part.body.name, s.name, s.origins))


def _or_start(p: Emission, part: Part, s: Statement, r: Reduction, value: str) -> str:
    """The value where there is one, else what changes nothing."""
    first = accumulator_of(r, r in p.partial).fields[0]
    kind = ctype(r.operand).value
    name = p.scopes.name(f"{part.body.name}_{s.name}_present")
    start = {"true": "true", "1": "true"}.get(first.start, "false") if kind == "bool" else first.start
    p.writer.line(f"const {kind} {name} = {p.present} ? {value} : {start};",
                  origins_of(part.body.name, s.name, s.origins))
    return name


def _now(name: str) -> Place:
    return lambda suffix: f"{name}{suffix}_now"


# ---- blocks and chunks -----------------------------------------------------------------------------------------------
def sum_blocks(p: Emission, node: SumBlocks) -> None:
    """Sums are float within a block, and double over the blocks."""
    (first, end), block = p.ends(node.axis), f"{node.axis.symbol}_block"
    head = "" if node.one else f"for (int64 {block} = {first}; {block} < {end}; {block} += {node.size})"
    with p.loop(head):
        for r in node.reductions:
            declare(p, f"{p.names[r]}_part", r.part, r.statement, fields_of(r, True), False)
        if node.one:
            span = p.span(node.axis)
        else:
            span = block, f"{block}_end"
            p.writer.line(f"const int64 {block}_end = {block} + {node.size} < {end} ? {block} + {node.size} : {end};")
        p.partial = frozenset(node.reductions)
        with p.within(node.axis, *span):
            p.nodes(node.body)
        p.partial = frozenset()
        for r in node.reductions:
            with each_lane(p):
                p.writer.line(f"{at(p, p.names[r])('')} += {at(p, p.names[r] + '_part')('')};")


def chunks(p: Emission, node: Chunks) -> None:
    """Chunks of fixed number, in parallel, whose results are joined in order."""
    width, count = f"[{p.width}]" if p.lane is not None else "", node.count
    for r in node.reductions:
        for f in fields_of(r):
            p.writer.line(f"{f.type} {p.names[r]}{f.suffix}_chunks[{count}]{width};")
    p.writer.line(f"#pragma omp parallel for schedule(static){condition(node.threads)}")
    with p.loop(f"for (int64 chunk = 0; chunk < {count}; chunk++)"):
        extent = c_expression(node.axis.extent)
        first, last = (f"{n} * ({extent}) / {count}" for n in ("chunk", "(chunk + 1)"))
        if node.aligned:
            cut = f" / {node.aligned} * {node.aligned}"  # whole vectors, where the first of all is one
            first, last = f"{first}{cut}", f"chunk < {count - 1} ? {last}{cut} : {extent}"
        p.writer.line(f"const int64 first = {first}, last = {last};")
        if node.checks:
            p.writer.line(f"int32 {p.outside} = 0;")
        for r in node.reductions:
            declare(p, p.names[r], r.part, r.statement, fields_of(r), False)
        with p.within(node.axis, "first", "last"):
            p.nodes(node.body)
        for r in node.reductions:
            with each_lane(p):
                for f in fields_of(r):
                    p.writer.line(f"{_chunk(p, r)(f.suffix)} = {at(p, p.names[r])(f.suffix)};")
        if node.checks:
            _report(p)
    with p.writer.block(f"for (int64 chunk = 0; chunk < {count}; chunk++)"):
        for r in node.reductions:
            with each_lane(p):
                for text in accumulator_of(r).combine(at(p, p.names[r]), _chunk(p, r)):
                    p.writer.line(text)


def _chunk(p: Emission, r: Reduction) -> Place:
    return lambda suffix: at(p, f"{p.names[r]}{suffix}_chunks", "[chunk]")("")


# ---- multiple accumulators -------------------------------------------------------------------------------------------
def interleave(p: Emission, node: Interleave) -> None:
    """Arrays of accumulators around the loops that use them, which are joined at the end."""
    whole = node.axis.extent == node.count  # a block is a row, with one accumulator for each element
    start = "" if whole else p.scopes.name(f"{node.axis.symbol}_at")
    before, p.interleaving = p.interleaving, Interleaving(node.reductions, node.count, start, node.axis)
    for r in node.reductions:
        for f in fields_of(r, r in p.partial):
            narrow = f.suffix == "_at" and node.narrow and ctype(r.operand).bytes <= 4
            name = f"{variable(p, r)}{f.suffix}_stripe"
            p.writer.line(f"{'int32' if narrow else f.type} {name}[{node.count}];")
            p.writer.line(f"for (int64 k = 0; k < {node.count}; k++) {name}[k] = {f.start};")
    p.nodes(node.body)
    p.interleaving = before
    for r in node.reductions:
        _join_halves(p, r, node.count)


def interleaved_loop(p: Emission, node: InterleavedLoop) -> None:
    """Whole blocks as vectors, then the rest of the row.

    gcc keeps the accumulators in registers only if the trip count of the loop over a block is constant.
    """
    assert p.interleaving is not None
    start, count, g = p.interleaving.start, node.count, node.axis.symbol
    if not start:
        first, last = p.span(node.axis)
        with _vector_loop(p, node, f"for (int64 {g} = {first}; {g} < {last or count}; {g}++)"):
            p.nodes(node.body)
        return
    first, end = p.ends(node.axis)
    p.writer.line(f"int64 {start} = {first};")
    with p.loop(f"for (; {start} + {count} <= {end}; {start} += {count})"):
        _part_of_block(p, node, start, str(count))
    if node.rest == "masked":
        _masked_block(p, node, start, end)
    elif node.rest:
        _part_of_block(p, node, start, f"{end} - {start}")


def _part_of_block(p: Emission, node: InterleavedLoop, start: str, elements: str) -> None:
    with _vector_loop(p, node, f"for (int64 k = 0; k < {elements}; k++)"):
        p.writer.line(f"const int64 {node.axis.symbol} = {start} + k;")
        p.nodes(node.body)


def _masked_block(p: Emission, node: InterleavedLoop, start: str, end: str) -> None:
    """A block of which only a part is there. gcc must not know how much: of a single element it would make a branch."""
    with p.loop(f"if ({start} < {end})"):
        p.writer.line(f"int32 rest = {end} - {start};")
        p.writer.line('asm("" : "+r"(rest));')
        with _vector_loop(p, node, f"for (int32 k = 0; k < {node.count}; k++)"):
            p.writer.line(f"const int64 {node.axis.symbol} = {start} + k;")
            p.present = "k < rest"
            p.nodes(node.body)
            p.present = ""


@contextmanager
def _vector_loop(p: Emission, node: InterleavedLoop, head: str) -> Iterator[None]:
    if node.kind == VECTOR:
        p.writer.line("#pragma omp simd" + (f" reduction(|:{p.outside})" if node.checks else ""))
    with p.loop(head):
        yield


def _join_halves(p: Emission, r: Reduction, count: int) -> None:
    """Tree reduction: one half of the accumulators onto the other, until one is left. Those of positions have kept
    where the block of their best started."""
    state, one = accumulator_of(r, r in p.partial), _side_by_side(p, r, "k")
    if not r.vectorizes:
        p.writer.line("#pragma omp simd")
        p.writer.line(f"for (int64 k = 0; k < {count}; k++) {one('_at')} += k;")
    with p.writer.block(f"by_halves<{count}>([&](int64 k, int64 other)", end="});"):
        for line in state.combine_interleaved(one, _side_by_side(p, r, "other")):
            p.writer.line(line)
    with p.writer.block(""):
        for line in state.combine_interleaved(lambda suffix: f"{variable(p, r)}{suffix}", _side_by_side(p, r, "0")):
            p.writer.line(line)


def _side_by_side(p: Emission, r: Reduction, number: str) -> Place:
    return lambda suffix: f"{variable(p, r)}{suffix}_stripe[{number}]"


# ---- scans -----------------------------------------------------------------------------------------------------------
def advance(p: StatementWriter, part: Part, s: Statement) -> None:
    """Take the value of this point into the state, which is then the value of the scan."""
    scan = next(r for r in p.names if r.part is part and r.statement is s)
    assert isinstance(scan, RunningScan)
    state, origins = state_of(scan), origins_of(part.body.name, s.name, s.origins)
    value, place = p.value(part, s.args[0]), at(p, p.names[scan])
    for text in state.update(place, value, c_expression(position(p))):
        p.writer.line(text, origins)
    name = p.scopes.name(f"{s.origins[-1] if s.origins else part.body.name}_{s.name}")
    p.writer.line(f"const {ctype(s.dtype).value} {name} = {state.result(place)};", origins)
    p.scopes.put(("value", part.key, s.name), name)
