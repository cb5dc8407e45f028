"""Functions of `math` that process the items of an iterable one by one."""
from __future__ import annotations

import math
import operator
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from ..containers.sequences import TupleValue
from ..core.base import Value
from ..core.constant import constant, fold
from ..core.handlers import handles
from ..core.iteration import each
from ..core.operators import apply

if TYPE_CHECKING:
    from ..core.base import Translator

Args = Sequence[Value]
Kwargs = Mapping[str, Value]


@handles(math.prod)
def _prod(tx: Translator, args: Args, kwargs: Kwargs) -> Value:
    """In order, as Python multiplies: varying sizes and tensors are allowed as factors."""
    if len(args) != 1 or kwargs.keys() - {"start"}:
        return fold(tx, math.prod, args, kwargs)  # raises
    items = list(each(tx, args[0]))
    start = kwargs.get("start", constant(1))
    if all(value.is_constant() for value in (*items, start)):
        return fold(tx, math.prod, [TupleValue(items, tuple)], {"start": start})
    product = start
    for item in items:
        product = apply(tx, operator.mul, product, item)
    return product


@handles(math.fsum)
def _fsum(tx: Translator, args: Args, kwargs: Kwargs) -> Value:
    """Of known numbers."""
    return fold(tx, math.fsum, [TupleValue(list(each(tx, arg)), tuple) for arg in args], kwargs)
