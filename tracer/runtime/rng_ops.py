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
        cuda = torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else ()
        try:
            return call(*inputs)
        except Exception:
            torch.random.default_generator.set_state(state)
            for device, on_device in enumerate(cuda):
                torch.cuda.set_rng_state(on_device, device)
            raise

    return drawing
