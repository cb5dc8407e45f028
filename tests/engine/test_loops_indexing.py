"""Indices read from tensors, joining, padding, creation; bounds errors."""
from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from ptdebug.artifacts.context import CompileContext
from ptdebug.engine.ir.interpreter import run
from ptdebug.engine.ir.parser import parse_program
from ptdebug.engine.ir.printer import format_program
from ptdebug.engine.ir.verifier import verify
from ptdebug.engine.lowering import lower
from torch.fx.experimental.proxy_tensor import make_fx

from .loops_checking import bodies, calls, check, lowered, operations

aten = torch.ops.aten


def test_embedding_gather_and_index_select():
    table, rows = torch.randn(10, 4), torch.tensor([[1, 2, 9], [0, 0, 3]])
    check(lambda t, i: F.embedding(i, t) * 2, table, rows)
    check(lambda t, i: t.gather(1, i), torch.randn(2, 10), rows)
    check(lambda t, i: t.index_select(1, i[0]), torch.randn(3, 10), rows)
    check(lambda t, i: torch.take_along_dim(t, i, 1), torch.randn(2, 10), rows)


INDEXED = {
    "first": lambda x, i, j: x[i], "second": lambda x, i, j: x[:, i], "pair": lambda x, i, j: x[i, j],
    "apart": lambda x, i, j: x[i, :, j], "broadcast": lambda x, i, j: x[i[:, None], j[None, :]],
    "middle": lambda x, i, j: x[:, i, j], "computed": lambda x, i, j: x[(i + 1) % 3] + 1,
    "of_lazy": lambda x, i, j: x.exp()[i, j], "int32": lambda x, i, j: x[i.int()],
    "negative": lambda x, i, j: x[i - 3], "two_dimensional": lambda x, i, j: x[:, torch.stack([i, j])],
}


@pytest.mark.parametrize("name", INDEXED)
def test_advanced_indexing(name):
    x, i, j = torch.randn(3, 4, 5), torch.tensor([2, 0, 1]), torch.tensor([1, 1, 0])
    check(INDEXED[name], x, i, j)


@pytest.mark.parametrize("program, index", [
    (lambda x, i: x[i], 4), (lambda x, i: x[i], -5),
    (lambda x, i: F.embedding(i, x), 4), (lambda x, i: F.embedding(i, x), -1),
    (lambda x, i: x.index_select(0, i), 4), (lambda x, i: x.gather(0, i[:, None]), -1),
])
def test_an_index_out_of_bounds_raises(program, index):
    x, i = torch.randn(4, 3), torch.tensor([0, index])
    with pytest.raises((IndexError, RuntimeError)):
        program(x, i)
    with pytest.raises(IndexError):
        run(lowered(program, x, torch.tensor([0, 1])), [x, i])


def test_boolean_indices_make_sizes_that_the_graph_learns_as_it_runs():
    program = lowered(lambda x: x[x > 0] + 1, torch.randn(4))
    assert any("nonzero" in str(call.target) or "index" in str(call.target) for call in calls(program))


def test_a_masked_off_index_is_not_checked():
    x, i = torch.randn(4, 2), torch.tensor([0, 3])
    check(lambda x, i: F.pad(x[i], (0, 0, 1, 1)), x, i)
    check(lambda x, i: torch.cat([x[i], x + 1]), x, i)


@pytest.mark.parametrize("how", ("masked", "parts"))
@pytest.mark.parametrize("dim", (0, 1, -1))
def test_cat_and_stack(how, dim):
    x, y = torch.randn(2, 3, 4), torch.randn(2, 3, 4)
    overrides = {"concat:*": how}
    check(lambda x, y: torch.cat([x, y * 2, x], dim) + 1, x, y, overrides=overrides)
    check(lambda x, y: torch.stack([x, y], dim), x, y, overrides=overrides)
    check(lambda x, y: torch.cat([x, y.double()], dim), x, y, overrides=overrides)
    check(lambda x: torch.cat([x]), x, overrides=overrides)
    check(lambda x: torch.cat([x[:0], x, x[:, :0]][:2]), x, overrides=overrides)
    check(lambda x: torch.cat([torch.empty(0), x]), x, overrides=overrides)


def test_cat_of_many_parts_is_written_part_by_part():
    x = torch.randn(3, 8)
    program = check(lambda x: torch.cat([x[:, i:i + 1] * i for i in range(8)], 1).cos(), x)
    assert len(bodies(program)) == 9
    assert "where" not in operations(program)


def test_rotary_embedding_is_one_body():
    x, c, s = torch.randn(2, 4, 8), torch.randn(4, 8), torch.randn(4, 8)

    def program(x, c, s):
        half = torch.cat([-x[..., 4:], x[..., :4]], -1)
        return x * c + half * s

    assert len(bodies(check(program, x, c, s))) == 1


@pytest.mark.parametrize("pad", [(1, 2), (0, 1, 2, 0), (-1, 1), (-1, -2), (1, 0, 0, 0, 0, 3)])
def test_constant_pad(pad):
    check(lambda x: F.pad(x, pad, value=1.5), torch.randn(2, 4, 5))
    check(lambda x: F.pad(x.exp(), pad) + 1, torch.randn(2, 4, 5))


@pytest.mark.parametrize("start, end, step", [(0, 3, 1), (1, 9, 2), (-3, 100, 1), (2, 3, 1), (0, 9, 3)])
def test_slice_and_select_scatter(start, end, step):
    x = torch.randn(3, 9)
    length = len(range(9)[start:end:step])
    source = torch.randn(3, length)
    check(lambda x, s: aten.slice_scatter(x, s, 1, start, end, step) * 2, x, source)
    check(lambda x, s: aten.select_scatter(x, s[:, 0], 1, start), x, source)


CREATIONS = {
    "full": lambda: torch.full((2, 3), 2.5), "zeros": lambda: torch.zeros(3, dtype=torch.int64),
    "ones": lambda: torch.ones(2, dtype=torch.bool), "arange": lambda: torch.arange(5),
    "arange_float": lambda: torch.arange(0.5, 3.0, 0.25), "arange_down": lambda: torch.arange(9, -3, -2),
    "arange_half": lambda: torch.arange(3, 9, dtype=torch.float16), "scalar": lambda: torch.scalar_tensor(3.25),
    "like": lambda: torch.full_like(torch.zeros(2, 3).t(), 7),
}


@pytest.mark.parametrize("name", CREATIONS)
def test_creation(name):
    check(lambda x: CREATIONS[name]() + x, torch.ones((), dtype=torch.int64))
    check(lambda x: CREATIONS[name](), torch.ones(()))


@pytest.mark.parametrize("diagonal", (-2, 0, 1))
def test_triangles(diagonal):
    check(lambda x: x.tril(diagonal), torch.randn(2, 4, 5))
    check(lambda x: x.triu(diagonal) + 1, torch.full((4, 5), float("inf")))


def test_library_calls_say_why():
    program = check(lambda x, y: torch.mm(x, y).relu(), torch.randn(2, 3), torch.randn(3, 4), externs=1)
    assert calls(program)[0].why == "matrix product: left to ATen"
    program = check(lambda x: torch.sort(x * 2), torch.randn(5), externs=1)
    assert len(calls(program)[0].outputs) == 2


def test_library_calls_get_the_layouts_that_eager_gives_them():
    x, w = torch.randn(2, 3, 8, 8).to(memory_format=torch.channels_last), torch.randn(4, 3, 3, 3)
    check(lambda x, w: F.conv2d(x * 2, w).relu(), x, w, externs=1)
    check(lambda x: torch.mm((x + 1).t(), x), torch.randn(4, 5), externs=1)


def test_views_that_only_the_library_knows_are_views():
    program = check(lambda x: torch.view_as_real(torch.fft.fft(x)) * 2, torch.randn(4, 6), externs=None)
    assert str(calls(program)[-1].target) == "aten.view_as_real.default"


def test_complex_results_have_eagers_layout():
    check(lambda x: torch.fft.fft(x, dim=1).conj().resolve_conj(), torch.randn(3, 4, 5), externs=None)
    check(lambda x: torch.fft.ifft(x, n=10, dim=1), torch.randn(5, 6, 7), externs=None)


def test_copies_take_the_layout_and_dtype_of_their_target():
    check(lambda x, y: aten.copy(x, y) + 1, torch.randn(4, 6).t(), torch.randn(4))
    check(lambda x, y: aten.copy(x, y), torch.zeros(2, 3, dtype=torch.int32), torch.tensor([1.7, 2.2, -3.9]))


def test_a_copy_to_an_expanded_tensor_has_memory_for_each_element():
    program = lowered(lambda x, y: aten.copy(x.expand(3, 4), y) * 2, torch.zeros(1, 4), torch.randn(3, 4))
    y = torch.randn(3, 4)
    assert run(program, [torch.zeros(1, 4), y])[0].equal(y * 2)


def test_mutated_inputs_are_copied_to_after_everything_was_read():
    module = make_fx(lambda x, y: (y.clone(), x, x + y), tracing_mode="fake")(torch.randn(4), torch.randn(4))
    names = [n.name for n in module.graph.nodes if n.op == "placeholder"]
    module.meta["mutations"] = {0: names[0], 1: names[1]}  # x, y = y, x
    program = lower(module, CompileContext())
    verify(program)
    assert parse_program(format_program(program)) == program
    x, y = torch.randn(4), torch.randn(4)
    old_x, old_y = x.clone(), y.clone()
    (total,) = run(program, [x, y])
    assert x.equal(old_y) and y.equal(old_x) and total.equal(old_x + old_y)


def test_an_operator_can_be_forced_to_the_library():
    program = check(lambda x: (x + 1).relu(), torch.randn(4), externs=1, overrides={"lowering:relu": "extern"})
    assert calls(program)[0].why == "forced by an override"


def test_random_numbers_are_eagers():
    program = lowered(lambda x: torch.rand(4) + x, torch.zeros(4))
    torch.manual_seed(3)
    (got,) = run(program, [torch.zeros(4)])
    torch.manual_seed(3)
    assert got.equal(torch.rand(4))


@pytest.mark.parametrize("look_up", (
    lambda x, i: x[i], lambda x, i: x.index_select(0, i), lambda x, i: x.gather(0, i),
    lambda x, i: F.embedding(i, x.unsqueeze(1)), lambda x, i: aten.index_put(x, [i], i),
    lambda x, i: aten.scatter(x, 0, i, 1), lambda x, i: aten.scatter_add(x, 0, i, i)))
def test_what_looks_up_or_writes_elements_of_nothing_is_atens_which_raises(look_up):
    nothing, first = torch.zeros(0, dtype=torch.int64), torch.tensor([0])
    program = lowered(look_up, nothing, first)
    assert calls(program) and not bodies(program)
    with pytest.raises((IndexError, RuntimeError), match="index"):
        run(program, [nothing, first])
