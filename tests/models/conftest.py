"""Fixtures of the tests of models."""
from __future__ import annotations

import pytest
import torch


@pytest.fixture(autouse=True)
def convolutions_in_full_precision(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a GPU torch allows them 10 bits: which kernels make use of it is each library's choice."""
    if torch.cuda.is_available():
        monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
