"""Recurrent layers over sequences of varying length: one operator of the graph.

torch's decomposition of `gru` and `rnn` takes one step after the other, and so specializes the length: each would be
compiled anew. Where the length is a symbol and nothing needs gradients, the layer is one of ptdebug's operators, which
calls torch's kernel. (`lstm` has such an operator in torch: mkldnn_rnn_layer.) With gradients the length is
specialized.
"""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch

from ...core.base import Value
from ...core.handlers import handles
from ..tensor import TensorValue

if TYPE_CHECKING:
    from ...core.base import Translator

_LIBRARY = torch.library.Library("ptdebug", "FRAGMENT")
_PARAMETERS = (
    "Tensor input, Tensor hx, Tensor[] params, bool has_biases, int num_layers, float dropout, bool train, "
    "bool bidirectional, bool batch_first"
)
_COUNT = 9


def _fake(
    input: torch.Tensor, hx: torch.Tensor, params: Any, biases: bool, layers: int, dropout: float, train: bool,
    both_ways: bool, batch_first: bool,
) -> tuple[torch.Tensor, torch.Tensor]:  # fmt: skip
    """Outputs of every step, (steps, batch, features) in memory, and the last hidden states, like `hx`."""
    steps, batch = (input.shape[1], input.shape[0]) if batch_first else (input.shape[0], input.shape[1])
    made = input.new_empty((steps, batch, hx.shape[2] * (2 if both_ways else 1)))
    return (made.transpose(0, 1) if batch_first else made), hx.new_empty(hx.shape)


def _define(name: str) -> None:
    function = getattr(torch, name)
    _LIBRARY.define(f"{name}({_PARAMETERS}) -> (Tensor, Tensor)")
    _LIBRARY.impl(name, lambda *args: function(*args), "CompositeExplicitAutograd")
    torch.library.register_fake(f"ptdebug::{name}", _fake, lib=_LIBRARY)
    operator = getattr(torch.ops.ptdebug, name).default

    @handles(function)
    def handler(tx: Translator, args: Sequence[Value], kwargs: Mapping[str, Value]) -> Value:
        fits = not kwargs and len(args) == _COUNT and _varies(args)
        return tx.graph.call(operator if fits else function, args, kwargs, tx)


def _varies(args: Sequence[Value]) -> bool:
    """Whether the length is a symbol, and no gradient is needed, on the CPU."""
    given, hidden, params = args[:3]
    batch_first = args[-1].as_constant() if args[-1].is_constant() else None
    tensors = [given, hidden, *getattr(params, "items", ())]
    fakes = [tensor.fake for tensor in tensors if isinstance(tensor, TensorValue)]
    if len(fakes) != len(tensors) or type(batch_first) is not bool or fakes[0].dim() != 3 or fakes[1].dim() != 3:
        return False
    needs_gradients = torch.is_grad_enabled() and any(fake.requires_grad for fake in fakes)
    steps = fakes[0].shape[1 if batch_first else 0]
    on_cpu = all(fake.device.type == "cpu" for fake in fakes) and not torch.is_autocast_enabled("cpu")
    return on_cpu and not needs_gradients and isinstance(steps, torch.SymInt)


for _name in ("gru", "rnn_tanh", "rnn_relu"):
    _define(_name)
