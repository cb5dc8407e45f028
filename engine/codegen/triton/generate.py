"""From a scheduled group to Triton source: normalize, decide how many kernels, choose tiles, write."""
from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial

import sympy

from ....artifacts.context import CompileContext
from ...ir.ir import Axis, Buffer, Foreach, Group, KernelSignature, LoopBody
from ...unsupported import TritonUnsupported
from .foreach import generate_foreach
from .form import NO_SIZES, Form, Sizes, form_of, hint
from .kernel import KernelWriter
from .products.form import product_of
from .products.kernel import ProductWriter
from .products.tiling import candidates, choose as choose_product
from .source import WIDE_FROM, Launch, TritonSource, Workspace, assemble
from .split import split_kernels
from .tiling import Tile, can_split, choose, tiles_of, why_idle

Sources = Mapping[str, Callable[[], TritonSource]]
"""Kernels that do the same, by the names of their tiles, written when they are called for."""

Timing = Callable[[Sources], Mapping[str, float]]
"""What compiles kernels that do the same, and times them: seconds by name, of those that run."""


def generate(
    group: Group, buffers: Mapping[str, Buffer], context: CompileContext, sizes: Sizes = NO_SIZES,
    timing: Timing | None = None,
) -> TritonSource:
    """The Triton form of `group`; `buffers` are the program's, and so are `sizes`. The tiles of matrix products are
    chosen by `timing`, where there is one.

    Mostly one kernel. Several, run one after the other, where one launch cannot keep the order that the bodies need
    (a decision, `kernel-launches`), or where programs share rows. Raises TritonUnsupported with the reason.
    """
    if isinstance(group, Foreach):
        return generate_foreach(group, buffers)
    symbols, bounds = symbols_of(group, buffers), _bounds(group)
    if any(body.is_product for body in group.bodies):
        return _of_product(group, buffers, context, sizes, timing)
    groups, why = _parts(group, buffers, sizes)
    if len(groups) > 1 or why:
        context.decide("kernel-launches", group.kernel, [str(len(groups))], str(len(groups)), why)
    launches: list[Launch] = []
    workspaces: list[Workspace] = []
    extents: list[sympy.Expr] = []
    for number, part in enumerate(groups):
        form, times = form_of(part, buffers, sizes), None
        if timing is not None and len(groups) == 1 and form.multiplies:
            times = _timed(form, symbols, bounds, timing)
        made, needed, deciding = _kernels(form, symbols, bounds, context, times)
        fresh = {w.name: f"{w.name}_{number}" if len(groups) > 1 else w.name for w in needed}
        workspaces += [replace(w, name=fresh[w.name]) for w in needed]
        launches += [replace(k, pointers=tuple(fresh.get(p, p) for p in k.pointers)) for k in made]
        extents += deciding
    own = {w.name for w in workspaces}
    used = tuple(dict.fromkeys(p for k in launches for p in k.pointers if p not in own))
    signature = KernelSignature(group.kernel, used, symbols, bounds)
    return TritonSource(signature, tuple(launches), tuple(workspaces), tuple(dict.fromkeys(extents)),
                        assemble(launches))


def _of_product(
    group: Group, buffers: Mapping[str, Buffer], context: CompileContext, sizes: Sizes, timing: Timing | None
) -> TritonSource:
    """The kernel of a matrix product and what follows it."""
    form = form_of(group, buffers, sizes)
    product = product_of(form)
    assert product is not None
    symbols, bounds = symbols_of(group, buffers), _bounds(group)
    index, extents = _index_width(form)
    stored = frozenset(s.buffer for b in form.bodies for s in b.statements if s.op == "store") - form.internal

    def source(tile: Tile) -> TritonSource:
        writer = ProductWriter(product, tile, index, bounds, stored, form.name)
        writer.header()
        writer.bodies()
        launch = writer.launch(symbols)
        signature = KernelSignature(group.kernel, launch.pointers, symbols, bounds)
        return TritonSource(signature, (launch,), (), extents, assemble((launch,)))

    copies = index == "int32" and not context.without_python  # places in a descriptor have 32 bits
    tiles = [tile for tile in candidates(product) if copies or not tile.persistent]
    times = {} if timing is None or len(tiles) < 2 else timing({t.name: partial(source, t) for t in tiles})
    return source(choose_product(product, tiles, times, context))


def _timed(
    form: Form, symbols: tuple[sympy.Symbol, ...], bounds: tuple[str, ...], timing: Timing
) -> Mapping[str, float]:
    """Seconds of the tiles of a product with a vector, by their names: of those that need one kernel."""
    def source(name: str) -> TritonSource:
        launches, _, extents = _kernels(form, symbols, bounds, CompileContext(overrides={"tile:*": name}))
        signature = KernelSignature(form.name, launches[0].pointers, symbols, bounds)
        return TritonSource(signature, launches, (), extents, assemble(launches))

    return timing({t.name: partial(source, t.name) for t in tiles_of(form) if t.splits == 1})


def _kernels(
    form: Form, symbols: tuple[sympy.Symbol, ...], bounds: tuple[str, ...], context: CompileContext,
    times: Mapping[str, float] | None = None,
) -> tuple[tuple[Launch, ...], tuple[Workspace, ...], tuple[sympy.Expr, ...]]:
    index, extents = _index_width(form)
    written = {s.buffer for b in form.bodies for s in b.statements if s.op == "store"}
    stored = frozenset(written - (form.internal - form.scratch))
    tile = choose(form, context, times or {})
    if tile.splits > 1:
        return (*split_kernels(form, tile, index, bounds, stored, symbols), extents)
    writer = KernelWriter(form, tile, index, bounds, stored, form.name)
    writer.header()
    writer.bodies()
    return (writer.launch(symbols),), (), extents


def _index_width(form: Form) -> tuple[str, tuple[sympy.Expr, ...]]:
    """int32, int64 or dynamic; and the sizes that decide: elements spanned by each buffer, points of the loops, which
    are counted together but for those of a matrix product."""
    sizes: set[sympy.Expr] = {sympy.sympify(form.numel * s.numel) for s in form.spaces} | {sympy.sympify(form.numel)}
    if any(body.source.is_product for body in form.bodies):
        sizes = {sympy.sympify(a.extent) for a in (*form.axes, *[a for s in form.spaces for a in s.axes])}
    for body in form.bodies:
        for name in {s.buffer for s in body.statements if s.op in ("load", "store")}:
            buffer = form.buffers[name]
            sizes.add(sympy.sympify(1 + sum((n - 1) * stride for n, stride in zip(buffer.size, buffer.stride))))
    if all(s.is_Integer for s in sizes):
        return ("int64" if max(int(s) for s in sizes) >= WIDE_FROM // 2 else "int32"), ()
    return "dynamic", tuple(sorted(sizes, key=str))


def _parts(group: Group, buffers: Mapping[str, Buffer], sizes: Sizes) -> tuple[list[Group], str]:
    """The group itself, or the groups that take its place and the reason why."""
    if len(group.bodies) == 1:
        return [_part(group.kernel, group, group.bodies)], ""
    why = _why_apart(group, buffers)
    if why:
        return [_part(f"{group.kernel}_{k}", group, (body,)) for k, body in enumerate(group.bodies)], why
    form = form_of(group, buffers, sizes)
    why = "" if can_split(form) else why_idle(form)
    return (_sharing(group, buffers), why) if why else ([group], "")


def _sharing(group: Group, buffers: Mapping[str, Buffer]) -> list[Group]:
    """Bodies together where programs can share their rows, the others alone; each as early as dependences allow."""
    runs: list[tuple[LoopBody, ...]] = []
    for body in group.bodies:
        for place in range(_earliest(runs, body), len(runs)):
            longer = (*runs[place], body)
            if can_split(form_of(_part("", group, longer), buffers)):
                runs[place] = longer
                break
        else:
            runs.append((body,))
    return [_part(f"{group.kernel}_{k}", group, run) for k, run in enumerate(runs)]


def _earliest(runs: Sequence[Sequence[LoopBody]], body: LoopBody) -> int:
    """The first of the runs that `body` may join: it overtakes no body that it shares a buffer with, written by one."""
    for place in range(len(runs) - 1, -1, -1):
        if any({*body.reads, *body.writes} & {*b.writes} or {*body.writes} & {*b.reads} for b in runs[place]):
            return place
    return 0


def _part(name: str, group: Group, bodies: tuple[LoopBody, ...]) -> Group:
    """A group of some of the bodies. A single body has all of its axes outside; buffers that others touch are
    stored."""
    if len(bodies) == 1:
        (body,) = bodies if bodies[0].reduction_axes else (_by_memory(bodies[0]),)
        return Group(name, body.axes, (body,), frozenset(), group.device)
    others = {n for b in group.bodies if b not in bodies for n in (*b.reads, *b.writes)}
    return Group(name, group.axes, bodies, group.internal - others, group.device)


def _by_memory(body: LoopBody) -> LoopBody:
    """The body with its loops in the memory order of what it stores, the contiguous one innermost."""
    stores = [s.index for s in body.statements if s.op == "store" and s.index is not None and not s.mode]

    def step(axis: Axis) -> int:
        steps = [hint(abs(index.coeff(axis.symbol)), NO_SIZES) for index in stores]
        return max(steps, default=0)

    return replace(body, axes=tuple(sorted(body.axes, key=step, reverse=True))) if stores else body


def _why_apart(group: Group, buffers: Mapping[str, Buffer]) -> str:
    """Why the bodies of `group` cannot, or should not, share one launch; "" when they can."""
    outer = len(group.axes)
    if any(len(b.axes) > outer and b.reduction_axes for b in group.bodies):
        return "a body reduces inside inner loops of its own, which does not fit a two-dimensional tile"
    added = {s.buffer for b in group.bodies for s in b.statements if s.op == "store" and s.mode == "add"}
    if any(added & {*b.reads, *b.writes} for b in group.bodies) and len(group.bodies) > 1 and added:
        touching = [b for b in group.bodies if added & {*b.reads, *b.writes}]
        if len(touching) > 1:
            return "atomic additions must be complete before another body reads, or come after it fills, their buffer"
    form = form_of(group, buffers)
    if form.misaligned and not form.reduces:
        return "a body reads what other programs of the launch would write"
    return ""


def symbols_of(group: Group, buffers: Mapping[str, Buffer]) -> tuple[sympy.Symbol, ...]:
    """The size symbols that the group's extents and indices need, by name."""
    own = {a.symbol for b in group.bodies for a in (*b.axes, *b.reduction_axes)} | {a.symbol for a in group.axes}
    found: set[sympy.Symbol] = set()
    for body in group.bodies:
        names = {s.name for s in body.statements}
        exprs = [a.extent for a in (*body.axes, *body.reduction_axes)]
        exprs += [e for s in body.statements for e in (s.index, s.bound) if e is not None]
        exprs += [n for b in {*body.reads, *body.writes} for n in (*buffers[b].size, *buffers[b].stride)]
        free = {symbol for e in exprs for symbol in sympy.sympify(e).free_symbols}
        found |= {symbol for symbol in free - own if symbol.name not in names}
    return tuple(sorted(found, key=lambda s: s.name))


def _bounds(group: Group) -> tuple[str, ...]:
    """ATen nodes whose indices are checked, in order."""
    found: dict[str, None] = {}
    for body in group.bodies:
        for s in body.statements:
            if s.op == "indirect":
                found[s.origins[-1] if s.origins else body.name] = None
    return tuple(found)


__all__ = ["TritonUnsupported", "generate", "symbols_of"]
