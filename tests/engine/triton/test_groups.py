"""Groups made by hand: what the scheduler may hand over although small programs seldom make it."""
from __future__ import annotations

from types import ModuleType

import pytest
import sympy
import torch
from ptdebug.artifacts.context import CompileContext
from ptdebug.engine.codegen.triton import TritonKernel, TritonUnsupported, generate
from ptdebug.engine.ir import interpreter
from ptdebug.engine.ir.ir import Axis, Buffer, Group, LoopBody, Statement

i0, i1, r0, r1 = (sympy.Symbol(name, integer=True, nonnegative=True) for name in ("i0", "i1", "r0", "r1"))
s0 = sympy.Symbol("s0", integer=True, positive=True)
ROWS, COLUMNS = 5, 24


def _axis(symbol: sympy.Symbol, extent: object) -> Axis:
    return Axis(symbol, sympy.sympify(extent))


def _buffer(name: str, *size: object, dtype: torch.dtype = torch.float32) -> Buffer:
    sizes = tuple(map(sympy.sympify, size))
    strides = tuple(sympy.prod(sizes[k + 1 :]) for k in range(len(sizes)))
    return Buffer(name, dtype, torch.device("cpu"), sizes, tuple(map(sympy.sympify, strides)))


def _load(name: str, buffer: str, index: object, **rest: object) -> Statement:
    return Statement(name, "load", buffer=buffer, index=sympy.sympify(index), **rest)


def _store(name: str, buffer: str, index: object, value: str, mode: str = "") -> Statement:
    return Statement(name, "store", (value,), buffer=buffer, index=sympy.sympify(index), mode=mode)


def _reference(group: Group, buffers: dict[str, Buffer], memory: dict[str, torch.Tensor], symbols: dict) -> dict:
    copies = {n: interpreter.allocate(b, symbols).zero_() for n, b in buffers.items()}
    copies |= {n: t.clone() for n, t in memory.items()}
    for body in group.bodies:
        interpreter.run_body(body, copies, symbols)
    return copies


def _check(
    group: Group, buffers: dict[str, Buffer], memory: dict[str, torch.Tensor], *,
    tile: str = "", splits: str = "", symbols: dict[sympy.Symbol, int] | None = None,
) -> TritonKernel:
    """The group's kernels leave the same as the reference interpreter in every buffer that is not internal."""
    symbols = symbols or {}
    forced = ({"tile:*": tile} if tile else {}) | ({"split-reduction:*": splits} if splits else {})
    source = generate(group, buffers, CompileContext(overrides=forced))
    kernel = TritonKernel(source, buffers, torch.device("cpu"))
    expected = _reference(group, buffers, memory, symbols)
    ours = {n: interpreter.allocate(b, symbols).zero_() for n, b in buffers.items()} | memory
    sizes = [symbols[s] for s in source.signature.symbols]
    assert kernel(*(ours[n] for n in source.signature.buffers), *sizes) == 0
    for name in buffers:
        if name not in group.internal:
            torch.testing.assert_close(ours[name], expected[name], equal_nan=True)
    return kernel


def _centered(rows: object, columns: object, read: object) -> tuple[Group, dict[str, Buffer]]:
    """Doubled rows (internal), their sums (internal), and `doubled[read] - sum`: the last reads across the row."""
    doubled = LoopBody("doubled", (_axis(i0, rows), _axis(i1, columns)), (), (
        _load("t0", "x", i0 * columns + i1), Statement("t1", "add", ("t0", "t0"), origins=("add",)),
        _store("t2", "doubled", i0 * columns + i1, "t1"),
    ))
    total = LoopBody("total", (_axis(i0, rows),), (_axis(r0, columns),), (
        _load("t0", "doubled", i0 * columns + r0), Statement("t1", "reduce", ("t0",), mode="sum", origins=("sum_1",)),
        _store("t2", "total", i0, "t1"),
    ))
    result = LoopBody("result", (_axis(i0, rows), _axis(i1, columns)), (), (
        _load("t0", "doubled", read), _load("t1", "total", i0),
        Statement("t2", "sub", ("t0", "t1"), origins=("sub",)), _store("t3", "result", i0 * columns + i1, "t2"),
    ))
    group = Group("centered", (_axis(i0, rows),), (doubled, total, result), frozenset({"doubled", "total"}))
    sizes = {"x": (rows, columns), "doubled": (rows, columns), "total": (rows,), "result": (rows, columns)}
    return group, {name: _buffer(name, *size) for name, size in sizes.items()}


@pytest.mark.parametrize("tile", ["", "looped-r32-w4"])
def test_internal_buffers_stay_in_registers(tile: str) -> None:
    group, buffers = _centered(ROWS, COLUMNS, i0 * COLUMNS + i1)
    kernel = _check(group, buffers, {"x": torch.randn(ROWS, COLUMNS)}, tile=tile)
    assert kernel.signature.buffers == ("x", "result")
    loads = kernel.source.text.count("tl.load")
    assert loads == (2 if tile else 1)  # one loop for each pass, or one tile


@pytest.mark.parametrize("tile", ["", "looped-r32-w4"])
def test_reading_across_the_row_goes_through_memory(tile: str) -> None:
    group, buffers = _centered(ROWS, COLUMNS, i0 * COLUMNS + COLUMNS - 1 - i1)
    kernel = _check(group, buffers, {"x": torch.randn(ROWS, COLUMNS)}, tile=tile)
    assert "doubled" in kernel.signature.buffers and "total" not in kernel.signature.buffers
    assert "tl.debug_barrier()" in kernel.source.text


@pytest.mark.parametrize("sizes", [(3, 7), (1, 70), (4, 0), (0, 5)])
def test_sizes_that_vary(sizes: tuple[int, int]) -> None:
    s1 = sympy.Symbol("s1", integer=True, positive=True)
    group, buffers = _centered(s0, s1, i0 * s1 + i1)
    kernel = _check(group, buffers, {"x": torch.randn(sizes)}, symbols=dict(zip((s0, s1), sizes)))
    assert kernel.signature.symbols == (s0, s1)


def test_a_reduction_inside_loops_of_its_own_gets_a_kernel_of_its_own() -> None:
    group, buffers = _centered(ROWS, COLUMNS, i0 * COLUMNS + i1)
    inner = LoopBody("parts", (_axis(i0, ROWS), _axis(i1, 4)), (_axis(r0, 6),), (
        _load("t0", "result", 24 * i0 + 6 * i1 + r0), Statement("t1", "reduce", ("t0",), mode="max"),
        _store("t2", "parts", 4 * i0 + i1, "t1"),
    ))
    group = Group("both", group.axes, (*group.bodies, inner), group.internal)
    kernel = _check(group, buffers | {"parts": _buffer("parts", ROWS, 4)}, {"x": torch.randn(ROWS, COLUMNS)})
    assert len(kernel.source.launches) == 4


def test_several_reduction_axes_and_results_of_one_pass() -> None:
    body = LoopBody("mean", (_axis(i0, 3),), (_axis(r0, 4), _axis(r1, 5)), (
        _load("t0", "x", 5 * i0 + 15 * r0 + r1), Statement("t1", "reduce", ("t0",), mode="welford"),
        Statement("t2", "part", ("t1",), value=0), Statement("t3", "part", ("t1",), value=1),
        _store("t4", "mean", i0, "t2"), _store("t5", "m2", i0, "t3"),
    ))
    group = Group("moments", body.axes, (body,))
    buffers = {"x": _buffer("x", 4, 3, 5), "mean": _buffer("mean", 3), "m2": _buffer("m2", 3)}
    values = torch.randn(4, 3, 5, generator=torch.Generator().manual_seed(1))  # of others, a fifth round otherwise
    for tile in ("", "looped-r32-w4", "looped-x4-r32-w4"):
        try:
            _check(group, buffers, {"x": values + 50}, tile=tile)
        except ValueError:
            assert tile  # not among the options of this group


@pytest.mark.parametrize("splits", ["1", "4"])
@pytest.mark.parametrize("across", [True, False])
def test_mean_and_variance_by_several_programs(splits: str, across: bool) -> None:
    """Of rows and of columns: lanes that are out of range do not count, nor does a program without a share."""
    rows, length = 19, 150
    place = r0 * rows + i0 if across else i0 * length + r0
    body = LoopBody("mean", (_axis(i0, rows),), (_axis(r0, length),), (
        _load("t0", "x", place), Statement("t1", "reduce", ("t0",), mode="welford"),
        Statement("t2", "part", ("t1",), value=0), Statement("t3", "part", ("t1",), value=1),
        _store("t4", "mean", i0, "t2"), _store("t5", "m2", i0, "t3"),
    ))
    shape = (length, rows) if across else (rows, length)
    buffers = {"x": _buffer("x", *shape), "mean": _buffer("mean", rows), "m2": _buffer("m2", rows)}
    values = torch.randn(shape, generator=torch.Generator().manual_seed(0)) + 30
    kernel = _check(Group("moments", body.axes, (body,)), buffers, {"x": values}, splits=splits)
    assert len(kernel.source.launches) == (1 if splits == "1" else 2)


def test_additions_to_one_place_are_atomic() -> None:
    body = LoopBody("sums", (_axis(i0, 9),), (), (
        _load("t0", "where", i0, dtype=torch.int64),
        Statement("t1", "indirect", ("t0",), dtype=torch.int64, bound=sympy.Integer(4), origins=("index_add",)),
        _load("t2", "x", i0), _store("t3", "sums", sympy.Symbol("t1", integer=True, nonnegative=True), "t2", "add"),
    ))
    group = Group("scatter", body.axes, (body,))
    buffers = {"x": _buffer("x", 9), "where": _buffer("where", 9, dtype=torch.int64), "sums": _buffer("sums", 4)}
    memory = {"x": torch.randn(9), "where": torch.tensor([0, 1, 1, 3, -1, 0, 2, 1, 3])}
    kernel = _check(group, buffers, memory)
    assert "tl.atomic_add" in kernel.source.text and kernel.signature.bounds == ("index_add",)


def test_what_has_no_triton_form_says_so() -> None:
    body = LoopBody("y", (_axis(i0, 4),), (), (_load("t0", "x", i0, dtype=torch.complex64),
                                              _store("t1", "y", i0, "t0")))
    buffers = {n: _buffer(n, 4, dtype=torch.complex64) for n in ("x", "y")}
    with pytest.raises(TritonUnsupported, match="complex64"):
        generate(Group("complex", body.axes, (body,)), buffers, CompileContext())


def test_the_interpreter_leaves_triton_as_it_was() -> None:
    import triton
    import triton.language as tl
    import triton.runtime.interpreter  # its import adds to the modules; running must not

    def state(module: ModuleType | type) -> dict[str, int]:
        return {name: id(value) for name, value in vars(module).items() if not name.startswith("__")}

    modules = (tl, tl.core, tl.math, tl.standard, tl.core.tensor)
    before = [state(m) for m in modules]
    group, buffers = _centered(ROWS, COLUMNS, i0 * COLUMNS + i1)
    _check(group, buffers, {"x": torch.randn(ROWS, COLUMNS)})
    assert [state(m) for m in modules] == before
    assert not triton.knobs.runtime.interpret
