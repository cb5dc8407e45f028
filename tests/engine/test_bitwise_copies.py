"""16-bit floats that are only moved: their bits are stored as they were loaded, NaNs with what they carry."""
from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from .cpp_checking import built, check


@pytest.fixture(params=[torch.bfloat16, torch.float16], ids=["bfloat16", "float16"])
def given(request):
    """All 65,536 numbers of a dtype, those that are none among them."""
    return torch.arange(-(1 << 15), 1 << 15).to(torch.int16).view(request.param).view(256, 256)


def moved(x):
    copies = x.flip(1), x.t().contiguous(), x.roll(3, 1), torch.cat([x, x.flip(0)], 1), torch.stack([x, x], -1)
    paddings = F.pad(x, (3, 1, 0, 2)), F.pad(x, (3, 1), value=1.5), F.pad(x[None], (2, 2), mode="reflect")
    return (*copies, *paddings, x.repeat(2, 3), x.tril(), x[5:, 3::2])


def chosen(x, mask, index):
    rows = x[:, 0] > 0
    return (
        torch.where(mask, x, x.t()), x.masked_fill(mask, 2.5), torch.where(mask, 0.0, torch.where(rows, x, x.flip(1))),
        x.masked_fill(mask, -0.0), x[index],
        x.gather(1, index.expand(4, -1)), x.index_select(1, index), F.embedding(index, x),
    )


def same_bits(function, *inputs):
    """Compare with eager bit by bit; returns what was compiled."""
    made = check(function, *inputs)
    for mine, expected in zip(made(*inputs), function(*inputs)):
        assert torch.equal(mine.view(torch.int16), expected.view(torch.int16))
    return made


def test_copies(given):
    made = same_bits(moved, given)
    assert "float_to_" not in made.source.text


def test_choices(given):
    generator = torch.Generator().manual_seed(0)
    mask, index = torch.rand(256, 256, generator=generator) > 0.5, torch.randint(0, 256, (100,), generator=generator)
    assert "float_to_" not in same_bits(chosen, given, mask, index).source.text


def test_views_as_whole_numbers(given):
    def written(x):
        view = x.view(torch.int16).clamp(-300, 32000)
        return view.view(x.dtype), torch.where(view > 5, view.view(x.dtype), x)

    def seen(x):
        bits = x.view(torch.int16)
        return (bits ^ 21).view(x.dtype), bits.abs(), torch.where(bits > 5, (bits + 1).view(x.dtype), x)

    for function in (written, seen):
        made = built(function, given)
        for mine, expected in zip(made(given), function(given)):
            assert torch.equal(mine.view(torch.int16), expected.view(torch.int16))
        assert "float_to_" not in made.source.text.partition("// arg0")[2]
    check(lambda x: (x * 2).view(torch.int16) + 1, torch.randn(300).to(given.dtype))


def test_what_is_computed_with_or_stored_as_another_number_is_rounded():
    x = torch.randn(40, 40).bfloat16()
    check(lambda x: (F.pad(x, (1, 2), value=0.1), x.masked_fill(x > 0, 3.14159), torch.where(x > 0, x, x * 2)), x)
    check(lambda x: (x.half(), x.float().half(), torch.where(x > 0, x.float(), 1 / 3).bfloat16()), x)
    check(lambda x, y: (torch.where(x > 0, x.float(), y).bfloat16(), x.add_(0).flip(0)), x, torch.randn(40, 40))
