"""Paddings that repeat what is inside: values and strides, in loops that are cut into pieces and in whole ones."""
from __future__ import annotations

import re

import ptdebug
import pytest
import torch
import torch.nn.functional as F
from ptdebug.engine.aot.decompositions.padding import pad as traced_pad

from .cpp_checking import check


@pytest.mark.parametrize("mode", ["reflect", "replicate"])
@pytest.mark.parametrize("size, pad", [
    ((2, 3, 5, 40), (2, 3, 1, 4)), ((2, 3, 5, 7), (6, 6, 0, 2)), ((3, 1, 2, 30), (0, 5, 1, 0)), ((2, 4, 33), (7, 0)),
    ((2, 2, 3, 4, 20), (1, 2, 3, 0, 2, 1)),
])
def test_values_and_strides(mode, size, pad):
    x = torch.randn(size)
    check(lambda x: (F.pad(x, pad, mode=mode), F.pad(x * 2, pad, mode=mode).relu() + 1), x)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64, torch.int64])
def test_dtypes_and_layouts(dtype):
    x = (torch.randn(2, 8, 6, 20) * 9).to(dtype)
    check(lambda x: F.pad(x, (3, 2, 1, 5), mode="reflect"), x)
    check(lambda x: F.pad(x, (3, 2, 1, 5), mode="replicate"), x.contiguous(memory_format=torch.channels_last))
    check(lambda x: F.pad(x, (3, 2), mode="reflect"), x.transpose(1, 3)[0])


def test_a_loop_over_a_padded_row_is_cut_where_its_masks_change():
    made = check(lambda x: F.pad(x, (2, 1), mode="reflect") * 2, torch.randn(4, 3, 50))
    loops = [line.text.strip() for line in made.source.lines if "for (int64 i" in line.text]
    assert [loop.split("; ")[1].split(" < ")[1] for loop in loops[-3:]] == ["2", "52", "53"]
    assert not any("?" in line.text for line in made.source.lines if "arg0[" in line.text)


def test_reads_under_masks_stay_apart_where_a_row_is_a_mask_too():
    def padded_twice(x):
        return F.pad(F.pad(x, (1, 1, 2, 0), value=3.0), (3, 4, 1, 2), mode="reflect") + 1

    check(padded_twice, torch.randn(2, 3, 6, 40))
    check(lambda x: torch.cat([x.flip(-1)[..., :7], x, x.flip(-1)], -1) * 2, torch.randn(5, 40))


def stencil(x):
    inside = 0.25 * (x[..., :-2, 1:-1] + x[..., 2:, 1:-1] + x[..., 1:-1, :-2] + x[..., 1:-1, 2:])
    return F.pad(inside, (1, 1, 1, 1)) + x


@pytest.mark.parametrize("size", [(30, 50), (3, 7, 18), (3, 3), (5, 17), (2, 40, 300)])
def test_stencils_inside_of_a_border(size):
    check(lambda x: (stencil(x), stencil(stencil(x * 2))), torch.randn(size))
    check(stencil, torch.randn(size).double().mT.contiguous().mT)


def test_a_stencil_is_cut_where_its_mask_changes():
    made = check(stencil, torch.randn(30, 50))
    loops = [line.text.strip() for line in made.source.lines if "for (int64 i1" in line.text]
    assert [loop.split("; ")[1].split(" < ")[1] for loop in loops] == ["1", "49", "50"]
    assert not any("?" in line.text for line in made.source.lines if "arg0[" in line.text)


def ring(x):
    return x.roll(1, 0) + x.roll(-1, 0) + x.roll(1, 1) + x.roll(-1, 1) - 4 * x


def test_neighbours_on_a_ring_are_read_without_masks_but_at_its_ends():
    for size in ((30, 50), (7, 17), (3, 3), (40, 300)):
        made = check(ring, torch.randn(size), slack=4.0)
    loops = [line.text.strip() for line in made.source.lines if "for (int64 i1" in line.text]
    assert [loop.split("; ")[1].split(" < ")[1] for loop in loops] == ["1", "299", "300"]
    check(lambda x: torch.cat([x * 2, x + 1, x.sin(), x * x], 1), torch.randn(9, 40))


@pytest.mark.parametrize("shift", [0, 1, -3, 75])
def test_rolls_along_memory(shift):
    x = torch.randn(5, 37, generator=torch.Generator().manual_seed(3))
    x[0, 0], x[1, 36], x[2, 5] = float("nan"), float("inf"), -0.0
    given = (x, x[:, :1], x[:0], x[:, 4:30], x.t(), x > 0, x.long(), x.bfloat16())
    check(lambda *xs: [y for x in xs for y in (x.roll(shift, -1), x.roll(shift, 0), x + x.roll(shift, 1))], *given)


def test_a_roll_along_memory_reads_neighbours():
    assert "% 37" not in check(lambda x: x.roll(3, 1), torch.randn(5, 37)).source.text
    again = (torch.randn(4, 22),)
    varying = check(lambda x: x.roll(x.shape[1] // 2, 1), torch.randn(5, 37), again=again).source.text
    assert "[i0*" in varying and not re.search(r"remainder<long>\(.*i1", varying)


@pytest.mark.parametrize("shift", [0, 1, -3, 75, 184])
def test_rolls_of_all_memory_and_of_several_dimensions(shift):
    x = torch.randn(5, 37, generator=torch.Generator().manual_seed(3))
    given = (x, x[:, :1], x[:0], x[:, 4:30], x.t(), x.long(), x.bfloat16())
    check(lambda *xs: [y for x in xs for y in (x.roll(shift), (x + 1).roll(shift), x.roll((shift, 2), (1, 0)))], *given)


@pytest.mark.parametrize("repeats", [(2, 1), (1, 3), (3, 2, 2), (1, 7), (0, 2)])
def test_repetitions(repeats):
    x = torch.randn(3, 20)
    check(lambda x: (x.repeat(repeats), (x + 1).repeat(repeats).flip(-1), x.repeat(repeats)[..., 1:] * 2), x)


@pytest.mark.parametrize("size, pad", [
    ((2, 3, 20, 24), (2, 3, 1, 4)), ((2, 3, 5, 7), (7, 0, 0, 5)), ((3, 30, 2), (0, 0)), ((4, 33), (7, 1)),
    ((2, 3, 4, 5, 20), (1, 2, 3, 0, 2, 1)), ((3, 4, 5), (1, 1, 0, 2)), ((2, 3, 4), (4, 4)),
])
def test_paddings_that_wrap_around(size, pad):
    x = torch.randn(size, generator=torch.Generator().manual_seed(1))
    given = (x, x.long(), x.bfloat16(), x.transpose(0, 1).contiguous().transpose(0, 1))
    check(lambda *xs: [traced_pad(x, pad, "circular") + 1 for x in (*xs, xs[0] * 2)], *given)
    for x in given:
        mine, expected = traced_pad(x, pad, "circular"), F.pad(x, pad, "circular")
        assert torch.equal(mine, expected) and mine.stride() == expected.stride()


def test_a_padding_that_wraps_around_is_one_loop_without_remainders_along_memory():
    made = check(lambda x: traced_pad(x, (2, 2, 1, 1), "circular"), torch.randn(2, 3, 20, 40), kernels=1)
    loads = [line.text for line in made.source.lines if "const float " in line.text and "[" in line.text]
    assert len(loads) == 3 and all(text.count("%") == 1 for text in loads)  # that of the rows


@pytest.mark.parametrize("pad, value", [((5, 0), None), ((-1, 3), None), ((1, 1, 1, 1, 1, 1), None), ((1,), None),
                                        ((1, 1), 2.0), ((1, 1), 0.0), ((), None)])
def test_what_else_wraps_around_or_raises_is_atens(pad, value):
    x, raised = torch.randn(2, 3, 4), []
    for function in (F.pad, traced_pad, ptdebug.compile(lambda *args: F.pad(*args))):
        try:
            raised.append(function(x, pad, "circular", value).tolist())
        except (RuntimeError, NotImplementedError) as error:
            raised.append(f"{type(error).__name__}: {error}".partition("\n")[0])
    assert raised[0] == raised[1] == raised[2]


def test_gradients_of_a_padding_that_wraps_around():
    x, weight = torch.randn(2, 3, 6, 8, requires_grad=True), torch.randn(2, 3, 9, 12)

    def loss(x):
        constant = F.pad(weight, (1, 0, 0, 1), mode="circular")
        return (F.pad(x, (2, 2, 1, 2), mode="circular") * weight).sum() + constant.sum()

    mine, = torch.autograd.grad(ptdebug.compile(loss)(x), x)
    expected, = torch.autograd.grad(loss(x), x)
    torch.testing.assert_close(mine, expected)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("size, pad", [
    ((2, 40), (3, 0)), ((2, 3, 9), (8, 8)), ((2, 3, 5, 40), (2, 3, 1, 4)), ((3, 5, 7), (6, 4, 0, 2)),
    ((1, 3, 1, 4), (3, 0, 0, 0)),
    ((2, 2, 3, 4, 20), (1, 2, 3, 0, 2, 1)), ((2, 7, 34, 33), (4, 5, 1, 2, 6, 6)), ((1, 1, 2, 2, 2), (1, 1, 1, 1, 1, 1)),
])
def test_gradients_of_paddings_that_reflect(size, pad, dtype):
    x = torch.randn(size, dtype=dtype)

    def gradient(function):
        leaf = x.clone().requires_grad_()
        result = function(leaf)
        weight = torch.arange(result.numel(), dtype=dtype).reshape(result.shape).sin()
        return torch.autograd.grad(result, leaf, weight)[0]

    function = ptdebug.compile(lambda x: F.pad(x, pad, mode="reflect"))
    eager, ours = gradient(lambda x: F.pad(x, pad, mode="reflect")), gradient(function)
    torch.testing.assert_close(ours, eager, rtol=1e-5 if dtype is torch.float32 else 1e-13, atol=1e-6)
    assert ours.stride() == eager.stride()


@pytest.mark.parametrize(("dtype", "ends"), [(torch.uint8, ["2", "52", "53"]), (torch.float32, ["53"])])
def test_a_loop_over_narrow_elements_is_cut_where_wide_ones_are_masked(dtype, ends):
    made = check(lambda x: F.pad(x, (2, 1)), torch.arange(150).reshape(3, 50).to(dtype))
    loops = [line.text.strip() for line in made.source.lines if "for (int64 i1" in line.text]
    assert [loop.split("; ")[1].split(" < ")[1] for loop in loops] == ends
    check(lambda x: x.roll(3, 1), torch.arange(150).reshape(3, 50).to(dtype))


def test_an_element_of_the_row_is_loaded_without_its_mask():
    x, y = torch.randn(40, 50), torch.randn(40)
    made = check(torch.diagonal_scatter, x, y)
    assert "_any : 0.0f" in made.source.text
    check(lambda x, y: torch.diagonal_scatter(x, y, 3), x, y)
    check(lambda x, y: torch.diagonal_scatter(x, y[5:], -5), x, y)
    check(lambda x, y: torch.select_scatter(x, y, 1, 7) * 2, x, y)
    check(lambda x, y: torch.diagonal_scatter(x, y.half()), x.half(), y)
