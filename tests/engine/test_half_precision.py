"""Half precision: what is read and written along memory is converted a block at a time, the rest in the loop."""
from __future__ import annotations

import numpy as np
import pytest
import torch
from ptdebug.engine.scheduler.cpu import nontemporal_stores

from .cpp_checking import built, check

IN = " = halves_to_floats("


def numbers(*size: int) -> torch.Tensor:
    return torch.randn(size, generator=torch.Generator().manual_seed(0)).half()


def converted(function, *inputs, **settings) -> int:
    """How often a compiled function, which must be right, converts blocks of what it reads."""
    return check(function, *inputs, **settings).source.text.count(IN)


def bits(x: torch.Tensor) -> torch.Tensor:
    """The bits of floats, those of NaNs all the same."""
    kind = torch.int16 if x.dtype is torch.float16 else torch.int32
    return torch.where(x.isnan(), torch.nan, x).view(kind)


def test_every_half_and_floats_beside_them():
    halves = torch.arange(-(1 << 15), 1 << 15, dtype=torch.int32).to(torch.int16).view(torch.float16)
    near = torch.cat([halves.float().view(torch.int32) + d for d in (-0x1000, -1, 0, 1, 0xfff, 0x1000, 0x1001)])
    far = torch.from_numpy(np.arange(0, 1 << 32, 20011, dtype=np.uint64).astype(np.uint32).view(np.int32))
    for function, x in [(lambda x: (x + 0.5, x.float() * 2), halves), (lambda x: (x.half(), x.half() + 1.5), near),
                        (lambda x: (x.half() * 1.0, x.half().float() * 2), far)]:
        x = x if x.dtype is torch.float16 else x.view(torch.float32)
        for ours, eager in zip(built(function, x)(x), function(x)):
            assert torch.equal(bits(ours), bits(eager))


@pytest.mark.parametrize("columns", [63, 64, 100, 512, 513, 1024, 1500, 5000])
def test_rows_of_any_length(columns):
    x, w = numbers(7, columns), numbers(columns)
    blocks = columns >= 64
    assert converted(lambda x: x.amax(-1) * 2, x) == blocks
    assert converted(lambda x: (x * 2).sum(-1), x) >= blocks
    assert converted(lambda x, w: (x + w[None], x - 1), x.t().contiguous().t(), w) == 0 or columns < 64
    assert converted(lambda x: x.cumsum(-1), x) == blocks
    assert converted(lambda x: torch.softmax(torch.layer_norm(x, x.shape[1:]), -1), x) >= blocks
    converted(lambda x, w: (torch.layer_norm(x, x.shape[1:], w, w), x.argmax(-1), x + w), x, w)


def test_what_several_loops_read_is_converted_once():
    x = numbers(30, 700)
    text = check(lambda x: torch.softmax(x, -1), x).source.text
    assert text.count(IN) == 1
    text = check(lambda x: torch.softmax(x, -1), x, overrides={"half-conversion:*": "elementwise"}).source.text
    assert IN not in text and "half_to_float(" in text


def test_moved_masked_and_indexed_halves():
    x, at = numbers(50, 256), torch.arange(49, -1, -1)
    assert converted(lambda x: x.roll(3, 1), x) == 0
    converted(lambda x: torch.where(x > 0, x, x * 0.1), x)
    converted(lambda x: torch.nn.functional.pad(x * 2, (3, 5)), x)
    assert converted(lambda x, at: x[at] * 2, x, at) == 1
    converted(lambda x: x[:, 1:] * 2 + x[:, :-1], x)
    converted(lambda x: (x.flip(1) + 1, x[:, ::2] + 1, x.t() + 1), x)


def test_results_past_the_cache(monkeypatch):
    monkeypatch.setattr(nontemporal_stores, "last_level_cache", lambda threads: 1 << 18)
    x = numbers(600, 1003)
    source = check(lambda x: (x + 1, x.float() * 2), x).source.text
    assert "past_cache(" in source and IN in source


def test_rows_too_short_for_blocks_are_converted_one_by_one():
    every = torch.arange(-32768, 32768, dtype=torch.int32).to(torch.int16).view(torch.float16).view(-1, 16)
    numbers = every[:, torch.randperm(16, generator=torch.Generator().manual_seed(0))]
    made = check(lambda x: (x.cumsum(1), (x * 0.37).cumprod(1), x.cummax(1).values), numbers.nan_to_num(1.0, 9.0, -9.0))
    assert "half_to_float_alone" in made.source.text
    function = lambda x: x.cumsum(1)
    got, expected = built(function, every)(every)[0], function(every)
    assert torch.equal(got.isnan(), expected.isnan()) and torch.equal(got.nan_to_num(1.0), expected.nan_to_num(1.0))
