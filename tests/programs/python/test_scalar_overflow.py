"""Numbers that vary and do not fit into the dtype of a tensor of few bits: eager's error, not a number cut off."""
from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from ..checking import call, check_engine

CONVERT = {
    "full": lambda x, n: torch.full_like(x, n),
    "fill": lambda x, n: x.clone().fill_(n),
    "where": lambda x, n: torch.where(x > 1, n, x),
    "item": lambda x, n: x.masked_fill(x > 1, n),
    "clamp": lambda x, n: x.clamp(min=n),
    "alpha": lambda x, n: torch.add(x, x, alpha=n),
    "pad": lambda x, n: F.pad(x, (1, 1), value=n),
}
WRAP = {"add": lambda x, n: x + n, "product": lambda x, n: x * n, "compared": lambda x, n: x < n}


@pytest.mark.parametrize("name", [*CONVERT, *WRAP])
def test_as_in_eager(name):
    function = {**CONVERT, **WRAP}[name]

    def program(compile):
        compiled = compile(function)
        x = torch.arange(3, dtype=torch.int8)
        return [call(compiled, x, n) for n in (3, 4, 100, 200, -128, -129, 5)]

    check_engine(program)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int16, torch.int32])
def test_other_dtypes(dtype):
    def program(compile):
        compiled = compile(CONVERT["full"])
        x = torch.zeros(2, dtype=dtype)
        limits = torch.iinfo(dtype)
        return [call(compiled, x, n) for n in (3, 4, -1, limits.max, limits.max + 1, -limits.max - 2)]

    check_engine(program)


def test_of_more_than_64_bits():
    def program(compile):
        compiled = compile(lambda x, n: (n * n, hash(n) == n, x * (n % 7), x + n, str(n)[:4]))
        return [call(compiled, torch.ones(2), n) for n in (3, 2**62, 2**63 - 1, 2**63, 2**70, -(2**63), -(2**70))]

    check_engine(program)
