"""einops (Rogozhnikov, ICLR 2022): `rearrange(x, "b (h d) -> b h d", h=2)`. What it computes once and caches, without
an observable trace, is computed while tracing; the rest is interpreted like any code."""
from __future__ import annotations

import contextlib
import sys
import warnings
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch

from ..core.base import Value
from ..core.handlers import NAMED
from ..core.registry import from_python
from ..python.functions import make_existing
from ..python.instances import new_object
from ..torch.tensor import TensorValue

if TYPE_CHECKING:
    from ..core.base import Translator

Args = Sequence[Value]
Kwargs = Mapping[str, Value]


def _backend(tx: Translator, args: Args, kwargs: Kwargs) -> Value:
    """The backend for a tensor type, which the first call with that type looks for among the subclasses of one."""
    get_backend, tensor = sys.modules["einops._backends"].get_backend, args[0]
    if not isinstance(tensor, TensorValue):
        return tx.inline(make_existing(tx, get_backend), args, kwargs)
    return from_python(tx, get_backend(torch.Tensor() if tensor.real is None else tensor.real))


def _recipe(tx: Translator, args: Args, kwargs: Kwargs) -> Value:
    """The parsed pattern: cached, and only read. The trace has a copy, of which nothing is guarded. A pattern that is
    wrong, or that reduces by a user-defined function, is interpreted, and all are where warnings are errors."""
    prepare = sys.modules["einops.einops"]._prepare_transformation_recipe
    if all(entry[0] != "error" for entry in warnings.filters):
        with contextlib.suppress(Exception):
            given = {name: value.as_constant() for name, value in kwargs.items()}
            return _copied(tx, prepare(*(arg.as_constant() for arg in args), **given))
    return tx.inline(make_existing(tx, prepare.__wrapped__), args, kwargs)


def _copied(tx: Translator, recipe: Any) -> Value:
    copy = new_object(tx, type(recipe))
    for name, value in vars(recipe).items():
        tx.effects.store_attr(copy, name, from_python(tx, value))
    return copy


NAMED["einops._backends", "get_backend"] = _backend
NAMED["einops.einops", "_prepare_transformation_recipe"] = _recipe
