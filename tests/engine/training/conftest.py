"""What every test of training starts from."""
from __future__ import annotations

import pytest
import torch


@pytest.fixture(autouse=True)
def seeded() -> None:
    """The same inputs in each run."""
    torch.manual_seed(0)
