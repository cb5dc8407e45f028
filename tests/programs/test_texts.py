"""Texts that are made of sizes: what only leaves the function is made anew at each call, without a compilation."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from ptdebug.tracer.statistics import STATISTICS

from .checking import check

LOG: list[str] = []


def leaves(x, kind):
    text = f"{kind} of {tuple(x.shape)}, {x.shape[:1]}: {x.size(0):>4} {x.size(0) * 2:03d} {[x.size(1)]!r} {{}}"
    LOG.append(text)
    return x * 2, text, {"size": str(x.shape[0])}, [f"{text}-{x.size(1)}", x.shape]


def is_read(x, kind):
    named = {f"n{x.size(0)}": x}
    try:
        raise ValueError(f"no {x.size(0)}")
    except ValueError as error:
        told = str(error), error.args
    length = len(f"{x.size(1)} columns")
    return x + length, told, list(named), f"{x.size(0)}" + "!", x if f"{x.size(1)}" == "5" else None


@pytest.mark.parametrize(("function", "most"), [(leaves, 1), (is_read, 8)])
def test_texts_of_sizes(function: Callable[..., Any], most: int) -> None:
    def use(compile):
        LOG.clear()
        f = compile(function)
        return [f(torch.ones(rows, columns), "a") for rows, columns in ((2, 3), (3, 4), (4, 5), (12, 11))], list(LOG)

    STATISTICS.clear()
    check(use)
    assert STATISTICS.recompiles <= most and not any("break" in why for why in STATISTICS.reasons)
