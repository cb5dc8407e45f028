"""Taking back the random numbers that a graph drew before it raised."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.fx

_NAMES = re.compile(
    "rand|dropout|bernoulli|normal|uniform|multinomial|exponential|poisson|gumbel|rrelu|attention|cauchy|geometric"
    "|fractional|binomial|dirichlet|gamma|lstm|gru|rnn"
)


def is_random_op(node: torch.fx.Node) -> bool:
    """Whether the operation may use random numbers, by its name; a subgraph may."""
    return node.op == "get_attr" or bool(_NAMES.search(str(getattr(node.target, "__name__", node.target))))


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
