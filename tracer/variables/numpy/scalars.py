"""NumPy's scalars (`np.float64(0.5)`, `np.sqrt(64)`): NumPy computes with them while the frame is traced or, where a
number varies from call to call, before the graph runs.

Operators of torch take one as the equivalent Python number, so that is what the graph contains. Arrays, and numbers
that are not known, are left to eager.
"""
from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ...breaks.reasons import Reason
from ...breaks.unsupported import Unsupported
from ...sources.computed import ComputedSource
from ...sources.display_names import display_name
from ...sources.source import Source
from ..containers.sequences import SequenceValue
from ..core.base import Value
from ..core.constant import BoundBuiltin, ConstantValue
from ..core.handlers import handler_of, handles
from ..core.operators import IN_PLACE
from ..core.registry import builds, from_python
from ..python.builtin_functions import BuiltinValue
from ..python.floats import VARYING, FloatValue, compute, fits_symbol
from ..python.instances import build_object
from ..python.symbolic_numbers import NumberValue

if TYPE_CHECKING:
    import torch.fx

    from ..core.base import Translator


_FUNCTIONS = (
    "sqrt cbrt exp exp2 expm1 log log2 log10 log1p sin cos tan arcsin arccos arctan arctan2 sinh cosh tanh hypot power"
    " floor ceil trunc rint round abs absolute fabs sign maximum minimum clip mod fmod floor_divide add subtract"
    " multiply divide true_divide negative square reciprocal isnan isinf isfinite prod sum mean max min isscalar"
    " deg2rad rad2deg"
    " gcd lcm float_power logical_and logical_or logical_not"
).split()
"""Functions of NumPy that return a scalar for scalars, and for lists of them where they reduce."""


class NumpyScalar(ConstantValue):
    """A NumPy scalar."""

    __slots__ = ()

    def as_proxy(self) -> Any:
        """The Python number."""
        if isinstance(self.value, (np.integer, np.floating)):
            return self.value.item()
        raise Unsupported(Reason.NOT_A_CONSTANT, self)


class NumpyFloat(FloatValue):
    """A NumPy float that varies: results computed from it keep NumPy's types and rounding."""

    __slots__ = ()

    def _placeholder(self) -> torch.fx.Node:
        graph = self.trace.graph
        assert self.source is not None
        source = ComputedSource(np.generic.item, (self.source,))
        return graph.inputs.get(source) or graph.add_placeholder(
            source, graph.shapes.float_symbol(float(self.number), source)
        )

    def python_type(self) -> type:
        """NumPy's float16, float32 or float64."""
        return type(self.number)

    def converted(self, tx: Translator, kind: type) -> Value:
        """int(number), which is then known; float(number) is a Python float."""
        return self.computed_by(tx, kind, [self])

    def getattr(self, tx: Translator, name: str) -> Value:
        """Attributes of its type, and methods; anything else specializes the number."""
        if name in _OF_TYPE:
            return from_python(tx, getattr(self.number, name))
        if callable(getattr(self.number, name, None)):
            return BoundBuiltin(self, name)
        return self._fixed(tx).getattr(tx, name)

    def call_method(self, tx: Translator, name: str, args: Sequence[Value], kwargs: Mapping[str, Value]) -> Value:
        """`item()`; other methods specialize the number."""
        if name == "item" and not args and not kwargs:
            return self.computed_by(tx, np.generic.item, [self])
        return self._fixed(tx).call_method(tx, name, args, kwargs)

    def _fixed(self, tx: Translator) -> Value:
        return NumpyScalar(self.specialize(tx))


class NumpyInteger(Value):
    """A NumPy integer that varies. To operators of torch, as an index and as an int it is an input of the graph, and
    arithmetic is NumPy's, before the graph; every other read gets the value of this call, guarded."""

    __slots__ = ("number", "trace")

    def __init__(self, tx: Translator, number: np.integer[Any], source: Source) -> None:
        super().__init__(source)
        self.number = number
        self.trace = tx.trace

    def python_type(self) -> type:
        """NumPy's int8, int16, int32 or int64."""
        return type(self.number)

    def is_constant(self) -> bool:
        """It has a value at this call."""
        return True

    def as_constant(self) -> np.integer[Any]:
        """The integer at this call, guarded."""
        assert self.source is not None
        self.trace.guards.add(self.source, "COMPUTED", self.number)
        return self.number

    def truth(self, tx: Translator) -> bool:
        """Whether it is not zero, guarded."""
        return bool(compute(tx, bool, [self]).as_constant())

    def as_int(self) -> Value:
        """The Python number, an input."""
        assert self.source is not None
        source = ComputedSource(np.generic.item, (self.source,))
        known = self.trace.values_by_source.get(source)
        if known is None:
            graph, number = self.trace.graph, self.number.item()
            symbol = graph.shapes.int_symbol(number, source)
            known = NumberValue(symbol, node=graph.add_placeholder(source, symbol), source=source)
            self.trace.values_by_source[source] = known
        return known

    def as_proxy(self) -> Any:
        """As the Python number."""
        return self.as_int().as_proxy()

    def getattr(self, tx: Translator, name: str) -> Value:
        """Its methods."""
        if name in _AS_INT:
            return BoundBuiltin(self, name)
        return NumpyScalar(self.as_constant()).getattr(tx, name)

    def call_method(self, tx: Translator, name: str, args: Sequence[Value], kwargs: Mapping[str, Value]) -> Value:
        """`item()` is the Python number; other methods specialize the integer."""
        if name in _AS_INT and not args and not kwargs:
            return self.as_int()
        return NumpyScalar(self.as_constant()).call_method(tx, name, args, kwargs)

    def unary(self, tx: Translator, function: Callable[..., Any]) -> Value:
        """`operator.index`; negation and the like."""
        return self.as_int() if function is operator.index else compute(tx, function, [self])

    def binary(self, tx: Translator, function: Callable[..., Any], left: Value, right: Value) -> Value | None:
        """With another number that has a value at this call."""
        other = right if left is self else left
        if not _is_float(other):
            return None
        return compute(tx, IN_PLACE.get(function, function), [left, right])

    def describe(self) -> str:
        """Its name in the user's code."""
        assert self.source is not None
        return f"the number `{display_name(self.source)}`"


_AS_INT = ("item", "__index__", "__int__")

VARYING.update(dict.fromkeys((np.int8, np.int16, np.int32, np.int64), NumpyInteger))

_OF_TYPE = ("dtype", "shape", "ndim", "size", "itemsize", "nbytes")

VARYING.update(dict.fromkeys((np.float16, np.float32, np.float64), NumpyFloat))


@builds(np.generic)
def build_numpy_scalar(tx: Translator, obj: Any, source: Source | None) -> Value:
    """A scalar, guarded by type and value; by type only where the policy makes it dynamic."""
    kind = type(obj)
    if not issubclass(kind, (np.integer, np.floating, np.bool_)):
        raise Unsupported(Reason.UNKNOWN_TYPE, kind)
    if source is not None:
        tx.guards.add(source, "TYPE_MATCH", kind)
        if kind in VARYING and fits_symbol(obj) and tx.graph.shapes.policy.number(source, obj):
            return VARYING[kind](tx, obj, source)
        tx.guards.add(source, "EQUALS_MATCH", obj)
    return NumpyScalar(obj, source)


@builds(np.ufunc, type(np.prod))
def build_numpy_function(tx: Translator, obj: Any, source: Source | None) -> Value:
    """A function of NumPy, guarded by identity."""
    if handler_of(obj) is None:
        return build_object(tx, obj, source)
    if source is not None:
        tx.guards.add(source, "ID_MATCH", obj)
    return BuiltinValue(obj, source)


def _plain(value: Value) -> Any:
    """The object behind a constant, or behind a list of them. Raises Unsupported for anything else."""
    if isinstance(value, SequenceValue):
        return [_plain(item) for item in value.items]
    if isinstance(value, FloatValue) and not value.is_random:
        return value.as_constant()
    if not value.is_constant() or not isinstance(value.as_constant(), (int, float, np.generic, type(None))):
        raise Unsupported(Reason.NUMPY_UNSUPPORTED, detail=f"numpy on {value.describe()}")
    return value.as_constant()


def _is_float(value: Value) -> bool:
    known = value.is_constant() and isinstance(value.as_constant(), (int, float, np.number))
    return known or isinstance(value, FloatValue)


def _computes(function: Callable[..., Any]) -> None:
    """Calls of `function` on scalars are made while tracing."""

    @handles(function)
    def handler(tx: Translator, args: Sequence[Value], kwargs: Mapping[str, Value]) -> Value:
        varies = any(isinstance(arg, (FloatValue, NumpyInteger)) for arg in args)
        if varies and not kwargs and all(map(_is_float, args)):
            return compute(tx, function, args)
        plain = [_plain(arg) for arg in args], {name: _plain(value) for name, value in kwargs.items()}
        with np.errstate(all="raise"):  # eager shows NumPy's warnings
            try:
                result = function(*plain[0], **plain[1])
            except Exception as error:
                raise Unsupported(Reason.NUMPY_UNSUPPORTED, function) from error
        if not isinstance(result, (np.generic, bool)):
            raise Unsupported(Reason.NUMPY_UNSUPPORTED, function, detail=", which gives an array")
        return from_python(tx, result)


for _name in _FUNCTIONS:
    _computes(getattr(np, _name))
for _kind in (np.float16, np.float32, np.float64, np.int8, np.int16, np.int32, np.int64, np.uint8, np.bool_):
    _computes(_kind)
