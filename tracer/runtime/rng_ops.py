"""Taking back the random numbers that a graph drew before it raised."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.fx


def taken_back(call: Callable[..., Any]) -> Callable[..., Any]:
    """`call`, restoring the random number generators when it raises."""

    def drawing(*inputs: Any) -> Any:
        state = torch.random.default_generator.get_state()
        cuda = _on_gpus()
        try:
            return call(*inputs)
        except Exception:
            torch.random.default_generator.set_state(state)
            for generator, seed, offset in cuda:
                generator.manual_seed(seed)
                generator.set_offset(offset)
            raise

    return drawing


def _on_gpus() -> list[tuple[torch.Generator, int, int]]:
    """The generators of the GPUs in use, each with its seed and how much was drawn: the whole state, without a copy of
    it at each call. While a stream is capturing they cannot be read."""
    if not torch.cuda.is_initialized() or torch.cuda.is_current_stream_capturing():
        return []
    return [(each, each.initial_seed(), each.get_offset()) for each in torch.cuda.default_generators]
