"""Which results are written by non-temporal stores: those that no cache holds, by whole lines."""
from __future__ import annotations

import pytest
import torch
from ptdebug.engine.scheduler.cpu import nontemporal_stores

from .cpp_checking import check

LINE = 64


@pytest.fixture
def cache(monkeypatch: pytest.MonkeyPatch) -> None:
    """A last-level cache of a quarter of a megabyte."""
    monkeypatch.setattr(nontemporal_stores, "last_level_cache", lambda threads: 1 << 18)


def numbers(*size: int) -> torch.Tensor:
    return torch.randn(size, generator=torch.Generator().manual_seed(0))


def written_past(function, *inputs, **settings) -> bool:
    """Whether results of a compiled function, which must be right, are."""
    return "past_cache_done();\n" in check(function, *inputs, **settings).source.text


def normalized(x, w):
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * w


@pytest.mark.parametrize("columns", [1024, 1003, 257])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.int64, torch.uint8])
def test_results_of_every_dtype_and_length(cache, dtype, columns):
    x = (numbers(1200, columns) * 9).abs().to(dtype)
    if columns * x.element_size() >= nontemporal_stores.BLOCK:
        assert written_past(lambda x, y: x[:, :, None].transpose(1, 2) + y, x, x[:1])
    assert written_past(lambda x: (x + 1, x > 3), x)


def test_rows_that_are_reduced_first_and_several_results(cache):
    x = numbers(300, 1003)
    assert written_past(normalized, x, x[0]) and written_past(normalized, numbers(300, 2048), numbers(2048))
    assert written_past(lambda x, y: (x - y[:, None], (x + 1).double()), x, x[:, 0])


def test_beside_transposed_operands(cache):
    x = numbers(1024, 1024).bfloat16()
    source = check(lambda x, y, z: (x.t() + y, z * 2), x, x, numbers(300, 1003)).source.text
    assert "past_cache_done();\n" in source and "transposed<" in source


def test_few_rows_that_threads_share_by_pieces(cache):
    x = numbers(2, 200_001)
    assert written_past(lambda x, y: x * y[:, None], x, x[:, 0])


@pytest.mark.parametrize("offset", range(0, LINE, 4))
def test_memory_that_starts_anywhere_in_a_line(cache, offset):
    x = numbers(257_000)
    made = check(lambda x: x * 2, x)
    memory = torch.full((x.numel() + 2 * LINE,), -1.0)
    first = offset // 4
    (kernel,) = made.functions.values()
    assert not kernel(x.data_ptr(), memory.data_ptr() + offset)
    assert torch.equal(memory[first:first + x.numel()], x * 2)
    assert (memory[:first] == -1).all() and (memory[first + x.numel():] == -1).all()


def test_what_is_read_again_or_lies_apart_is_not(cache):
    x, at = numbers(1200, 1000), torch.randperm(1200, generator=torch.Generator().manual_seed(0))
    assert not written_past(lambda x: x.softmax(1).softmax(1), numbers(40_000, 5))  # short rows
    assert not written_past(lambda x, i: torch.index_add(x, 0, i, x), x, at)
    assert not written_past(lambda x: torch.tril(x), x)  # under a mask
    assert not written_past(lambda x: x.sum(), x) and not written_past(torch.neg, x[:8, :8])


def test_what_the_cache_holds_is_not(monkeypatch):
    x = numbers(512, 1024)
    for megabytes, past in ((1, True), (4, False), (None, False)):
        size = None if megabytes is None else megabytes << 20
        monkeypatch.setattr(nontemporal_stores, "last_level_cache", lambda _, size=size: size)
        assert written_past(lambda x: x * 2, x) is past
    monkeypatch.setattr(nontemporal_stores, "last_level_cache", lambda _: 4 << 20)
    assert written_past(lambda x: x * 2, x, overrides={"store-policy:*": "nontemporal"})


def test_it_is_a_decision(cache):
    assert not written_past(lambda x: x * 2, numbers(1200, 1000), overrides={"store-policy:*": "temporal"})


def test_caches_of_one_machine(monkeypatch):
    monkeypatch.setattr(nontemporal_stores, "_last_level_caches", lambda: [32, 96, 32])
    assert [nontemporal_stores.last_level_cache(n) for n in (1, 2, 8)] == [96, 128, 160]
    monkeypatch.setattr(nontemporal_stores, "_last_level_caches", list)
    assert nontemporal_stores.last_level_cache(4) is None
