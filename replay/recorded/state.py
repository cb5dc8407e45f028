"""The state of the process around a recorded graph: what every run of it starts from."""
from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

SEED = 0
"""Of each run, so that random operators of all of them draw the same numbers."""


@contextmanager
def deterministic() -> Iterator[None]:
    """Random operators of each rung start from the same state."""
    with torch.random.fork_rng():
        torch.manual_seed(SEED)
        yield
