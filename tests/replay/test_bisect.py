"""The decisions to blame for planted faults, and the search that finds them."""
from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from ptdebug.replay.bisect.blame import blame
from ptdebug.replay.bisect.search import smallest
from ptdebug.replay.workers.pool import Pool

from .cases import case_of


@pytest.mark.parametrize("guilty", [{3}, {17}, {0, 19}, {4, 5, 11}, set(range(6))])
def test_the_search_finds_what_cannot_be_left_out(guilty: set[int]):
    ran = []

    def test(parts: Sequence[Sequence[int]]) -> list[bool]:
        ran.append(len(parts))
        return [guilty <= set(part) for part in parts]

    assert set(smallest(range(20), test)) == guilty
    assert max(ran) == 2 and len(ran) < 60


def test_of_two_that_pass_the_first_is_taken():
    assert smallest("abcdefgh", lambda parts: ["c" in part or "g" in part for part in parts]) == ["c"]


def program(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    y = F.layer_norm(torch.tanh(x @ w), (4,)) + x
    y = torch.relu(y) * y.sigmoid()
    return F.softmax(y, -1), (y.clone() - 1).sum(0)


@pytest.fixture
def pool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PTDEBUG_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent), prepend=":")
    with Pool(limit=30) as pool:
        yield pool


def test_guilty_decisions(pool: Pool):
    def blamed(fault: str) -> list[str]:
        case = case_of(program, torch.randn(8, 4), torch.randn(4, 4), imports=(f"faults:{fault}",) if fault else ())
        return [g.id for g in blame(case, pool).guilty]

    assert blamed("") == []
    assert blamed("wrong_relu") == ["lowering:relu"]
    assert blamed("crash_of_fused_softmax") == ["lowering:_softmax"]
    assert blamed("wrong_no_ops") == ["pass:no-ops@sub"]
    assert blamed("wrong_everywhere") == ["compile:graph"]
