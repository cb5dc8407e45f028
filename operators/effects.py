"""What an operator does beyond its result: it samples random numbers, writes, asserts, or raises for some data.

The tracer asks by the name under which the program calls a function, the engine by ATen operator.
"""
from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import torch
import torch.fx
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols

from .traits import traits_named, traits_of

# ---- random numbers
_RANDOM = re.compile(
    "rand|dropout|bernoulli|normal(?!iz)|uniform|multinomial|exponential|poisson|gumbel|rrelu|attention|cauchy|geometric"
    "|fractional|binomial|dirichlet|standard_gamma|lowrank|lobpcg|lstm|gru|rnn"
)
_DROPOUTS = frozenset((
    torch.nn.functional.dropout, torch.dropout, torch.ops.aten.dropout, torch.ops.aten.dropout.default,
))  # fmt: skip
_NATIVE_DROPOUTS = frozenset((
    torch.native_dropout, torch.ops.aten.native_dropout, torch.ops.aten.native_dropout.default,
))  # fmt: skip
_RECURRENT = frozenset((torch.lstm, torch.gru, torch.rnn_tanh, torch.rnn_relu))


def may_draw(node: torch.fx.Node) -> bool:
    """Whether a captured operation may draw random numbers, by its name; a graph inside the graph may."""
    return node.op == "get_attr" or may_draw_by_name(str(getattr(node.target, "__name__", node.target)))


def may_draw_by_name(function: str) -> bool:
    """The same of the name of a function or method."""
    return bool(_RANDOM.search(function))


def is_random(operator: Any) -> bool:
    """Whether an ATen operator samples random numbers for some arguments."""
    return torch.Tag.nondeterministic_seeded in getattr(operator, "tags", ())


def drops_nothing(node: torch.fx.Node) -> bool:
    """Whether the probability of a dropout inside an ATen call is 0: attention is random only where it drops."""
    target: Any = node.target
    for i, argument in enumerate(target._schema.arguments):
        if argument.name in ("dropout_p", "dropout"):
            given: Any = node.args[i] if i < len(node.args) else node.kwargs.get(argument.name, argument.default_value)
            return type(given) in (int, float) and bool(given == 0)
    return False


def gives_itself(target: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    """Whether a captured call is a dropout (of a tensor, a probability, and whether to drop) that drops nothing, which
    gives the tensor itself."""
    if target not in _DROPOUTS:
        return False
    p = next(iter(args[1:2]), kwargs.get("p", 0.5))
    drops = next(iter(args[2:3]), kwargs.get("training", kwargs.get("train", True)))
    return not drops or (type(p) in (int, float) and p == 0)


def is_native_dropout(target: Any) -> bool:
    """Whether a function gives the mask of a dropout, too: torch's Python form of it may give the tensor itself."""
    return target in _NATIVE_DROPOUTS


def drops_between_layers(target: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    """Whether a recurrent function of torch (`torch.lstm`) drops values between its layers."""
    if target not in _RECURRENT:
        return False
    if kwargs.get("num_layers", 2) != 1 and kwargs.get("train") is True and not (kwargs.get("dropout", 1) == 0):
        return True
    return any(
        type(layers) is int and layers > 1 and not isinstance(share, bool) and train is True and not (share == 0)
        for layers, share, train in zip(args, args[1:], args[2:])
    )


# ---- effects
@cache
def has_effect(operator: torch._ops.OpOverload) -> bool:
    """Whether running an operator matters beyond its result: it samples random numbers, writes, asserts, or is not
    torch's."""
    if is_random(operator) or operator._schema.is_mutable:
        return True
    return operator.namespace not in ("aten", "prims") or not operator._schema.returns  # only there to raise


def is_pure_method(name: str) -> bool:
    """Whether an unused call of a tensor's method can be dropped; whatever is not known to be pure stays."""
    return traits_named(name).pure


def moves_memory(name: str) -> bool:
    """Whether a function of this name gives a tensor other memory."""
    return traits_named(name).moves_memory


# ---- data-dependent errors
_MAY_RAISE = (
    "index", "gather", "scatter", "take", "embedding", "nll_loss", "_linalg", "linalg", "cholesky", "_assert",
    "multinomial", "bernoulli", "normal", "poisson", "floor_divide", "remainder", "fmod", "div", "_local_scalar_dense",
)
"""Beginnings of the names of more library calls that may raise for some data; whether they run is told otherwise."""


def may_raise(name: str) -> bool:
    """Whether a library call, by the name of its operator, may raise for some data: before it, no input may change."""
    return raises_by_name(name) or name.startswith(_MAY_RAISE)


def raises_by_name(name: str) -> bool:
    """Whether a function of this name, or the one that it is the in-place form of, raises for some data."""
    functional = name[:-1] if name.endswith("_") and not name.endswith("__") else name
    traits = traits_named(functional)
    return bool(traits.raises) or traits.asserts


def captured_may_raise(name: str, args: Sequence[Any]) -> bool:
    """Whether a captured call with these arguments (nodes and constants) raises for some data; an index does where a
    part of it varies."""
    if name in ("getitem", "setitem"):
        return any(map(_may_be_out_of_range, args[1] if isinstance(args[1], tuple) else (args[1],)))
    return raises_by_name(name)


def raises_by_value(operator: Any, args: Sequence[Any], result: Any) -> bool:
    """Whether an ATen call raises for some values of its arguments (nodes and constants), as far as known; what only
    asserts is not meant."""
    if getattr(operator, "namespace", "") != "aten":
        return False
    raises = traits_of(operator).raises
    return raises(args, result) if callable(raises) else raises


def _may_be_out_of_range(item: Any) -> bool:
    """A slice fits any size; its bounds may still be data: a tensor, or an unbacked symbol."""
    nodes: list[torch.fx.Node] = []
    torch.fx.node.map_arg(item, nodes.append)
    if not isinstance(item, slice) or item.step is not None:
        return bool(nodes)
    found = [node.meta["val"] for node in nodes]
    return any(isinstance(part, torch.Tensor) or free_unbacked_symbols(part) for part in found)
