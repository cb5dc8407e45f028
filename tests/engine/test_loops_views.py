"""Views: index rewriting, strides of results, aliasing, and what is materialized."""
from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings, strategies as st
from ptdebug.engine.ir.interpreter import run

from .loops_checking import bodies, check, lowered

VIEWS = {
    "reshape": lambda x: x.reshape(6, 4), "split": lambda x: x.view(2, 3, 2, 2), "merge": lambda x: x.reshape(24),
    "permute": lambda x: x.permute(2, 0, 1), "t": lambda x: x[0].t(), "transpose": lambda x: x.transpose(0, 2),
    "expand": lambda x: x[:, :1].expand(2, 3, 4), "unsqueeze": lambda x: x.unsqueeze(1),
    "select": lambda x: x.select(1, -1),
    "squeeze": lambda x: x[:, :1].squeeze(1), "slice": lambda x: x[:, 1:],
    "step": lambda x: x[..., ::2],
    "negative": lambda x: x[-1:, -2:], "beyond": lambda x: x[:, 1:100], "empty": lambda x: x[:, 3:],
    "diagonal": lambda x: x.diagonal(1, 1, 2), "unfold": lambda x: x.unfold(2, 2, 1),
    "narrow": lambda x: x.narrow(2, 1, 2),
    "unbind": lambda x: x.unbind(1)[1], "chunk": lambda x: x.chunk(2, 2)[1], "flip": lambda x: x.flip(0, 2),
    "roll": lambda x: x.roll(2, 1), "roll_rows": lambda x: x.roll(-1, 2), "roll_flat": lambda x: x.roll(5),
    "repeat": lambda x: x.repeat(2, 1, 3, 1),
    "transposed_reshape": lambda x: x.transpose(0, 1).reshape(3, 8), "movedim": lambda x: x.movedim(0, -1),
    "squeeze_all": lambda x: x[:1, :1].squeeze(), "tile": lambda x: x.tile(2), "view_as": lambda x: x.view(4, -1),
    "swap": lambda x: x.permute(1, 2, 0).reshape(12, 2).t().reshape(2, 3, 4), "select0": lambda x: x[1, 2, 3],
}


@pytest.mark.parametrize("name", VIEWS)
@pytest.mark.parametrize("place", ("input", "lazy", "consumed", "both"))
def test_view(name, place):
    view = VIEWS[name]
    x = torch.randn(2, 3, 4)
    functions = {
        "input": lambda x: view(x), "lazy": lambda x: view(x.exp()), "consumed": lambda x: view(x) * 2,
        "both": lambda x: view(x.exp()) * 2,
    }
    check(functions[place], x)


def test_a_result_that_is_a_view_of_an_input_shares_its_memory():
    x = torch.randn(4, 6)
    (got,) = run(lowered(lambda x: x.t()[1:3], x), [x])
    got.fill_(7)
    assert x[:, 1:3].eq(7).all()


def test_clones_do_not_share_memory_with_their_source():
    x = torch.randn(4, 6)
    (got,) = run(lowered(lambda x: x.clone(), x), [x])
    assert got.data_ptr() != x.data_ptr()
    assert got.equal(x)


def test_a_view_of_a_result_shares_memory_with_the_result():
    def program(x):
        y = x + 1
        return y, y[1:], y

    x = torch.randn(4, 6)
    whole, part, again = run(lowered(program, x), [x])
    whole.zero_()
    assert part.eq(0).all() and again.data_ptr() == whole.data_ptr()


def test_chains_of_reshapes_have_linear_indices():
    """Splitting heads and merging them again needs no division."""
    x = torch.randn(2, 8, 12)

    def program(x):
        heads = (x * 2).view(2, 8, 3, 4).transpose(1, 2)
        return heads.transpose(1, 2).reshape(2, 8, 12) + 1

    for body in bodies(check(program, x)):
        assert "//" not in str(body) and "Mod" not in str(body)


def test_a_merged_transpose_is_written_by_split_loops():
    x = torch.randn(2, 3, 8, 4)
    program = check(lambda x: x.transpose(1, 2).reshape(2, 8, 12) * 2, x)
    (body,) = bodies(program)
    assert len(body.axes) == 4
    assert all(s.index is None or "FloorDiv" not in str(s.index.func) for s in body.statements)


@pytest.mark.parametrize("layout", (torch.channels_last, torch.contiguous_format), ids=str)
def test_results_keep_the_layout_of_their_input(layout):
    x = torch.randn(2, 3, 4, 5).to(memory_format=layout)
    program = check(lambda x: (x + 1).relu(), x)
    strides = [int(s) for s in program.buffers[bodies(program)[0].name].stride]
    assert strides == list(x.stride())
    innermost = bodies(program)[0].axes[-1].symbol
    store = bodies(program)[0].statements[-1]
    assert store.index.coeff(innermost) == 1


def test_inputs_of_any_layout():
    x = torch.randn(4, 6).t()[::2]
    check(lambda x: x + 1, x)
    check(lambda x: x.sum(0), torch.randn(3, 1).expand(3, 5))


@st.composite
def chains(draw):
    """A shape and a list of view steps that fit it."""
    shape = draw(st.lists(st.sampled_from((1, 2, 3, 4)), min_size=1, max_size=4))
    steps = []
    x = torch.empty(shape)
    for _ in range(draw(st.integers(1, 5))):
        kind = draw(st.sampled_from(("permute", "slice", "unsqueeze", "reshape", "flip", "exp", "expand", "select")))
        rank = x.dim()
        d = draw(st.integers(0, rank - 1)) if rank else 0
        if kind == "permute":
            order = draw(st.permutations(range(rank)))
            step = lambda t, order=order: t.permute(order)
        elif kind == "slice" and rank:
            start, stride = draw(st.integers(-4, 4)), draw(st.integers(1, 3))
            step = lambda t, d=d, a=start, s=stride: t[(slice(None),) * d + (slice(a, None, s),)]
        elif kind == "unsqueeze":
            step = lambda t, d=d: t.unsqueeze(d)
        elif kind == "reshape":
            n = x.numel()
            cut = draw(st.sampled_from([k for k in range(1, n + 1) if n % k == 0])) if n else 1
            step = lambda t, cut=cut: t.reshape(cut, t.numel() // cut)
        elif kind == "flip" and rank:
            step = lambda t, d=d: t.flip(d)
        elif kind == "expand" and rank and x.shape[d] == 1:
            step = lambda t, d=d: t.expand(*t.shape[:d], 3, *t.shape[d + 1:])
        elif kind == "select" and rank and x.shape[d]:
            step = lambda t, d=d: t.select(d, -1)
        else:
            step = lambda t: t.sin()
        x = step(x)
        steps.append(step)
    return shape, steps


@settings(max_examples=150, deadline=None)
@given(chains())
def test_random_chains_of_views(chain):
    shape, steps = chain

    def program(x):
        for step in steps:
            x = step(x)
        return x, x + 1

    check(program, torch.randn(shape))


@pytest.mark.parametrize("dim", (0, 1))
def test_what_is_dear_is_computed_once_before_a_cat_and_not_at_each_of_its_points(dim):
    program = check(lambda x, y: torch.cat([x.erf(), y.neg()], dim) * 2, torch.randn(4, 40), torch.randn(4, 40))
    erf, joined = bodies(program)
    assert [s.op for s in erf.statements] == ["load", "erf", "store"]
    assert "neg" in [s.op for s in joined.statements] and "erf" not in [s.op for s in joined.statements]


def test_windows_are_read_before_a_cat():
    def pools(x):
        return torch.cat([torch.nn.functional.avg_pool2d(x, 3, 2, 1), x[..., ::2, ::2]], 1).relu()

    program = check(pools, torch.randn(2, 3, 8, 8))
    assert len([s for s in bodies(program)[-1].statements if s.op == "load"]) == 2
