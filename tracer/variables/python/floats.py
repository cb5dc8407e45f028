"""Floats that vary from call to call: a learning rate, a temperature, a running average in Python.

Such a float is an input of the graph. What user code computes from it in Python is computed in Python, before the graph
runs, by the same functions in the same order, and is another input: so no rounding differs. Branches on it (`if rate >
0.1`) are decided for this call and guarded.
"""
from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from ...breaks.reasons import Reason
from ...breaks.unsupported import Unsupported
from ...sources.computed import ComputedSource, ConstantSource
from ...sources.source import Source
from ..core.base import Value
from ..core.constant import constant, fold
from ..core.late import late
from ..core.operators import IN_PLACE
from .symbolic_numbers import NumberValue, is_number, origin

if TYPE_CHECKING:
    import torch.fx

    from ..core.base import Translator



class FloatValue(NumberValue):
    """A float read through `source`, whose value at this call is `number`."""

    __slots__ = ("number", "trace")

    def __init__(self, tx: Translator, number: float, source: Source) -> None:
        super().__init__(None, make_node=self._placeholder, source=source)
        self.number = number
        self.trace = tx.trace

    def _placeholder(self) -> torch.fx.Node:
        graph, source = self.trace.graph, self.source
        assert source is not None
        node = graph.inputs.get(source)
        return node or graph.add_placeholder(source, graph.shapes.float_symbol(self.number, source))

    def python_type(self) -> type:
        """float."""
        return float

    def is_constant(self) -> bool:
        """Never: it is an input."""
        return False

    def as_constant(self) -> float:
        """Reads of the number itself get the one of this call, guarded."""
        return self.specialize(None)  # type: ignore[arg-type]

    def as_proxy(self) -> Any:
        """The input."""
        return self.node

    def specialize(self, tx: Translator) -> float:
        """The float at this call, guarded."""
        assert self.source is not None
        self.trace.guards.add(self.source, "COMPUTED", self.number)
        return self.number

    def truth(self, tx: Translator) -> bool:
        """Whether it is not zero, guarded."""
        return bool(self.computed_by(tx, bool, [self]).as_constant())

    def key(self) -> Any:
        """As a key of a dict it is specialised."""
        return self.specialize(None)  # type: ignore[arg-type]

    def binary(self, tx: Translator, function: Callable[..., Any], left: Value, right: Value) -> Value | None:
        """Computed in Python, before the graph."""
        other = right if left is self else left
        if not isinstance(other, NumberValue) and not is_numpys(other) and not is_number(other):
            differs = other.is_constant() and function in (operator.eq, operator.ne)
            return constant(function is operator.ne) if differs else None
        return self.computed_by(tx, IN_PLACE.get(function, function), [left, right])

    def unary(self, tx: Translator, function: Callable[..., Any]) -> Value:
        """Negation and the like."""
        return self.computed_by(tx, function, [self])

    def math(self, tx: Translator, function: Callable[..., Any]) -> Value:
        """Any pure function of one number."""
        return self.computed_by(tx, function, [self])

    def getattr(self, tx: Translator, name: str) -> Value:
        """`real` and `imag`; methods."""
        return self if name == "real" else constant(0.0) if name == "imag" else super().getattr(tx, name)

    def call_method(self, tx: Translator, name: str, args: Sequence[Value], kwargs: Mapping[str, Value]) -> Value:
        """A method of float."""
        plain = all(isinstance(arg, FloatValue) or is_number(arg) for arg in args)
        if kwargs or not plain or not hasattr(float, name):
            return constant(self.specialize(tx)).call_method(tx, name, args, kwargs)
        return self.computed_by(tx, getattr(float, name), [self, *args])

    def computed_by(self, tx: Translator, function: Callable[..., Any], args: Sequence[Value]) -> Value:
        """`function(*args)`."""
        return compute(tx, function, args)

    def converted(self, tx: Translator, kind: type) -> Value:
        """int(number), which is then known; float(number) is the number."""
        return self if kind is float else self.computed_by(tx, kind, [self])

    def rounded(self, tx: Translator, digits: Value | None) -> Value:
        """round(number[, digits])."""
        return self.computed_by(tx, round, [self] if digits is None else [self, digits])

    def describe(self) -> str:
        """Its name in the user's code."""
        from ...sources.display_names import display_name

        assert self.source is not None
        return f"the number `{display_name(self.source)}`"


VARYING: dict[type, Callable[..., Value]] = {float: FloatValue}
"""By the type of a float, or of a NumPy number, its Value where it varies: it has the number of this call."""

_NUMPYS_FUNCTION = type(np.prod)


def is_numpys(value: Value) -> bool:
    """Whether it is a NumPy number that has a value at this call."""
    return (isinstance(value, FloatValue) or value.is_constant()) and issubclass(
        value.python_type(), (np.number, np.bool_)
    )


def fits_symbol(number: float) -> bool:
    """Whether a formula can have this value: sympy has no NaN and no sign of zero."""
    return math.isfinite(number) and (number != 0 or math.copysign(1.0, number) > 0)


@functools.cache
def _strictly(function: Callable[..., Any]) -> Callable[..., Any]:
    """`function`, raising for what NumPy would warn about."""

    @functools.wraps(function)
    def computed(*args: Any) -> Any:
        with np.errstate(all="raise"):
            return function(*args)

    return computed


def compute(tx: Translator, function: Callable[..., Any], args: Sequence[Value]) -> Value:
    """`function(*args)` of numbers: a float is a separate input, anything else is guarded and known. The result of a
    computation with a random number is random, too.

    Where it raises, or an argument has no source, the floats are specialized. What NumPy raises or warns about is left
    to eager.
    """
    sources = [_source_of(tx, arg) for arg in args]
    of_numpy = isinstance(function, (np.ufunc, _NUMPYS_FUNCTION)) or any(map(is_numpys, args))
    if of_numpy:
        function = _strictly(function)
    try:
        result = None if None in sources else function(*[_number_of(tx, arg) for arg in args])
    except (ArithmeticError, ValueError, TypeError):
        result = None
    is_random = any(isinstance(arg, NumberValue) and arg.is_random for arg in args)
    if of_numpy and (result is None or is_random or not isinstance(result, (np.generic, int, float))):
        raise Unsupported(Reason.UNSUPPORTED_ARGUMENT, function, detail="of NumPy scalars")
    if result is None:
        known = [constant(arg.specialize(tx)) if isinstance(arg, FloatValue) else arg for arg in args]
        return late.apply_numbers(tx, function, known)
    source = ComputedSource(function, tuple(s for s in sources if s is not None))
    value = tx.trace.values_by_source.get(source)
    if value is not None:
        return value
    if is_random:
        value = late.computed_from_random(tx, source, result)
    elif type(result) in VARYING and fits_symbol(result):
        _guard_computable(tx, source)
        value = VARYING[type(result)](tx, result, source)
    else:
        tx.trace.guards.add(source, "COMPUTED", result)
        return late.from_python(tx, result) if isinstance(result, np.generic) else constant(result)
    tx.trace.values_by_source[source] = value
    return value


def _compute_from_ints(tx: Translator, function: Callable[..., Any], args: Sequence[Value]) -> Value:
    """`function(*args)` for numbers made of ints that are inputs, and of sizes: `math.cos(math.pi * step / 10)`."""
    found = [origin(tx, arg) for arg in args]
    sources = tuple(source for source in found if source is not None)
    try:
        result = function(*[_evaluated(tx, source) for source in sources]) if len(sources) == len(args) else None
    except (ArithmeticError, ValueError, TypeError):
        result = None
    if type(result) is not float or not fits_symbol(result):
        known = [constant(arg.specialize(tx)) if isinstance(arg, NumberValue) else arg for arg in args]
        return fold(tx, function, known)
    computed = ComputedSource(function, sources)
    value = tx.trace.values_by_source.get(computed)
    if value is None:
        _guard_computable(tx, computed)
        value = tx.trace.values_by_source[computed] = FloatValue(tx, result, computed)
    return value


_NEVER_RAISE = (operator.add, operator.sub, operator.mul, operator.neg, operator.pos, operator.abs, abs, max, min)


def _guard_computable(tx: Translator, source: ComputedSource) -> None:
    """Division by zero and the like raise where user code computes them, even where nothing needs the result."""
    if source.function not in _NEVER_RAISE:
        tx.guards.add(source, "COMPUTABLE")


def _evaluated(tx: Translator, source: Source) -> Any:
    """The number at this call, by the functions that will compute it."""
    if isinstance(source, ConstantSource):
        return source.value
    if isinstance(source, ComputedSource):
        return source.function(*[_evaluated(tx, arg) for arg in source.args])
    return tx.guards.value(source)


late.compute_from_ints = _compute_from_ints


def _source_of(tx: Translator, value: Value) -> Source | None:
    if value.is_constant() and not hasattr(value, "number"):
        return ConstantSource(repr(value.as_constant()), value.as_constant())
    return value.source or origin(tx, value)


def _number_of(tx: Translator, value: Value) -> Any:
    if hasattr(value, "number"):
        return value.number
    if value.is_constant():
        return value.as_constant()
    found = origin(tx, value)
    if found is not None:
        return _evaluated(tx, found)
    return value.symbol.node.hint if isinstance(value, NumberValue) else None


def symbolic_float(tx: Translator, obj: float, source: Source) -> Value | None:
    """The float at `source` as an input of the graph, when the policy makes it dynamic."""
    if not fits_symbol(obj) or not tx.graph.shapes.policy.number(source, obj):
        return None
    tx.guards.add(source, "TYPE_MATCH", float)
    return FloatValue(tx, obj, source)


late.symbolic_float = symbolic_float
