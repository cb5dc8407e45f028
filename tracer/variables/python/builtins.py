"""Handlers of Python's builtin functions and types."""
from __future__ import annotations

import inspect
import operator
import sys
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from ...breaks.reasons import Reason
from ...breaks.unsupported import Unsupported
from ..containers.deques import DequeValue
from ..containers.lists import ListValue, is_backwards, sort_items
from ..containers.mappings import DictValue
from ..containers.sequences import TupleValue
from ..containers.sets import SetValue
from ..containers.slices import SliceValue, as_index
from ..core.attributes import SuperValue, can_be_called, is_python_method, special
from ..core.base import ObservedException, Value, with_arguments
from ..core.constant import constant, fold, is_none
from ..core.handlers import handles
from ..core.iteration import collected, each
from ..core.keys import check_hash, hash_of
from ..core.late import late
from ..core.operators import apply
from ..core.registry import from_python
from ..strings.strings import CarriedString, StringValue, number_text, string_of
from ..torch.tensor import TensorValue
from ..torch.tensor_constructors import warned_of_history
from .exceptions import ExceptionValue
from .float_sum import add_up
from .functions import FunctionValue
from .identities import identity_of
from .instance_checks import is_instance, is_subclass
from .objects import ObjectValue
from .symbolic_numbers import NumberValue

if TYPE_CHECKING:
    from ..core.base import Translator

Args = Sequence[Value]
Kwargs = Mapping[str, Value]


def positional(function: Callable[..., Value], *callables: Any) -> None:
    """Register `function(tx, *args, **kwargs)` as the handler of `callables`."""

    @handles(*callables)
    def handler(tx: Translator, args: Args, kwargs: Kwargs) -> Value:
        result: Value = with_arguments(function, tx, *args, **kwargs)
        return result


# ---- objects -------------------------------------------------------------------------------------------------------
def _len(tx: Translator, value: Value) -> Value:
    return value.length(tx)


def _isinstance(tx: Translator, value: Value, classes: Value) -> Value:
    return constant(is_instance(tx, value, classes))


def _issubclass(tx: Translator, cls: Value, classes: Value) -> Value:
    return constant(is_subclass(tx, cls, classes))


def _type(tx: Translator, value: Value, *rest: Value) -> Value:
    if rest:
        raise Unsupported(Reason.UNSUPPORTED_BUILTIN, type, detail="with three arguments")
    return from_python(tx, value.python_type())


def _attribute(tx: Translator, name: Value) -> str:
    """The name of an attribute, as getattr() accepts it."""
    if not issubclass(name.python_type(), str):
        tx.raise_observed(TypeError, f"attribute name must be string, not '{name.python_type().__name__}'")
    found: str = name.as_constant()
    return found


def _getattr(tx: Translator, value: Value, name: Value, default: Value | None = None) -> Value:
    attribute = _attribute(tx, name)
    if default is None:
        return value.getattr(tx, attribute)
    try:
        return value.getattr(tx, attribute)
    except ObservedException as raised:
        if not issubclass(raised.value.python_type(), AttributeError):
            raise
        return default


def _hasattr(tx: Translator, value: Value, name: Value) -> Value:
    attribute = _attribute(tx, name)
    try:
        value.getattr(tx, attribute)
    except ObservedException as raised:
        if not issubclass(raised.value.python_type(), AttributeError):
            raise
        return constant(False)
    return constant(True)


def _setattr(tx: Translator, value: Value, name: Value, new: Value) -> Value:
    value.setattr(tx, _attribute(tx, name), new)
    return constant(None)


def _delattr(tx: Translator, value: Value, name: Value) -> Value:
    value.delattr(tx, _attribute(tx, name))
    return constant(None)


def _callable(tx: Translator, value: Value) -> Value:
    return constant(can_be_called(tx, value))


def _id(tx: Translator, value: Value) -> Value:
    real = getattr(value, "real", None)
    if real is None and value.is_constant():
        real = value.as_constant()
    if isinstance(value, FunctionValue) and value.source is not None:
        real = value.function
    if real is None or (isinstance(value, TensorValue) and value.source is None):
        if value.source is not None or not value.identified or not isinstance(value, _MADE):
            raise Unsupported(Reason.UNSUPPORTED_BUILTIN, id, given=(value,))
        return identity_of(tx, value)
    if value.source is not None:
        tx.guards.add(value.source, "ID_MATCH", real)
    return constant(id(real))


_MADE = TensorValue, ObjectValue, ListValue, DictValue, SetValue, ExceptionValue
"""Types that make a distinct object at each call in the trace."""


def _hash(tx: Translator, value: Value) -> Value:
    check_hash(tx, value)
    if value.is_constant():
        return fold(tx, hash, [value])
    return constant(hash_of(tx, value))


def _super(tx: Translator, *args: Value) -> Value:
    if len(args) == 2:
        return SuperValue(args[0].as_constant(), args[1])
    if args:
        raise Unsupported(Reason.UNSUPPORTED_BUILTIN, super, detail="with one argument")
    if not tx.code.co_argcount:
        tx.raise_observed(RuntimeError, "super(): no arguments")
    name = tx.code.co_varnames[0]
    owner = tx.load_cell(name) if name in tx.cells else tx.load_local(name)
    if "__class__" not in tx.cells:
        tx.raise_observed(RuntimeError, "super(): __class__ cell not found")
    return SuperValue(tx.load_cell("__class__").as_constant(), owner)


def _vars(tx: Translator, value: Value | None = None) -> Value:
    if value is None:
        return _locals(tx, [], {})
    try:
        return value.getattr(tx, "__dict__")
    except ObservedException as raised:
        if not issubclass(raised.value.python_type(), AttributeError):
            raise
        tx.raise_observed(TypeError, "vars() argument must have __dict__ attribute")


def _dir(tx: Translator, value: Value | None = None) -> Value:
    if value is None:
        if sys.version_info < (3, 13) and tx.locals_asked:  # it changes the dict as well
            raise Unsupported(Reason.UNSUPPORTED_BUILTIN, dir)
        return ListValue([constant(name) for name in sorted(_bound(tx, "dir"))], list)
    if value in tx.effects.attributes:
        raise Unsupported(Reason.UNSUPPORTED_BUILTIN, dir, detail=f"of {value.describe()} after stores to it")
    return fold(tx, dir, [value])


# ---- numbers and strings -------------------------------------------------------------------------------------------
def _int(tx: Translator, value: Value | None = None, base: Value | None = None) -> Value:
    if value is None or base is not None or value.is_constant():
        if value is not None and base is None and issubclass(value.python_type(), np.integer):
            return value.call_method(tx, "__index__", [], {})
        return fold(tx, int, [v for v in (value, base) if v is not None])
    return _converted(tx, value, int, "__int__")


def _float(tx: Translator, value: Value | None = None) -> Value:
    if value is None or value.is_constant():
        return fold(tx, float, [value] if value is not None else [])
    return _converted(tx, value, float, "__float__")


def _converted(tx: Translator, value: Value, kind: type, method: str) -> Value:
    if isinstance(value, NumberValue):
        return value.converted(tx, kind)
    if isinstance(value, TensorValue):
        if tx.trace.overrides.may_ask:
            raise Unsupported(
                Reason.UNSUPPORTED_ARGUMENT, kind, detail=f"of {value.describe()}, whose class has a say,"
            )
        number = value.call_method(tx, "item", [], {})
        if kind is float and value.fake.requires_grad:
            warned_of_history(tx)
        return number.converted(tx, kind) if isinstance(number, NumberValue) else fold(tx, kind, [number])
    if isinstance(value, ObjectValue):
        return _converted_object(tx, value, kind, method)
    if not hasattr(value.python_type(), method):
        raise Unsupported(Reason.RAISES, detail=f"TypeError: {kind.__name__} of {value.describe()}")
    return value.call_method(tx, method, [], {})


def _converted_object(tx: Translator, value: ObjectValue, kind: type, name: str) -> Value:
    """int(value) or float(value) by `__int__` or `__float__`, else by `__index__`."""
    method = value.method(tx, name)
    if method is None and value.method(tx, "__index__") is not None:
        return fold(tx, kind, [constant(as_index(tx, value))])
    if method is None:
        raise Unsupported(Reason.UNSUPPORTED_BUILTIN, kind, given=(value,))
    result = method.call(tx, [], {})
    given = result.python_type()
    if not issubclass(given, kind):
        owner = f"{value.cls.__name__}." if kind is float else ""
        tx.raise_observed(TypeError, f"{owner}{name} returned non-{kind.__name__} (type {given.__name__})")
    if given is not kind:
        raise Unsupported(Reason.UNSUPPORTED_BUILTIN, kind, given=(value,))  # with a warning
    return result


def _bool(tx: Translator, value: Value | None = None) -> Value:
    return constant(value is not None and value.truth(tx))


def _str(tx: Translator, value: Value | None = None, *rest: Value) -> Value:
    if value is None:
        return constant("")
    if rest:
        return fold(tx, str, [value, *rest])
    return string_of(tx, value, str)


def _repr(tx: Translator, value: Value) -> Value:
    return string_of(tx, value, repr)


_CONVERSIONS: dict[str, Callable[[Any], str]] = {"s": str, "r": repr, "a": ascii}


def format_value(tx: Translator, value: Value, conversion: str, spec: Value | None) -> Value:
    """How an f-string formats a value."""
    if conversion:
        value = string_of(tx, value, _CONVERSIONS[conversion])
    pattern = spec.as_constant() if spec is not None else ""
    if isinstance(value, ObjectValue) and is_python_method(special(tx, value.cls, "__format__")):
        return value.call_method(tx, "__format__", [constant(pattern)], {})
    if not pattern and not value.is_constant():
        return string_of(tx, value, str)
    if isinstance(value, (CarriedString, StringValue)) and not pattern:
        return value
    if isinstance(value, NumberValue):
        if value.python_type() is int and not conversion:
            return number_text(tx, value, pattern)
        value = constant(value.specialize(tx))
    return fold(tx, format, [value, constant(pattern)])


def _format(tx: Translator, value: Value, spec: Value | None = None) -> Value:
    return format_value(tx, value, "", spec)


@handles(locals)
def _locals(tx: Translator, args: Args, kwargs: Kwargs) -> Value:
    """The bound variables; before Python 3.13 later calls change the dict, so it is made once."""
    if sys.version_info < (3, 13) and tx.locals_asked:
        raise Unsupported(Reason.FRAME_INTROSPECTION, locals)
    tx.locals_asked = True
    bound = {name: (tx.load_cell if name in tx.cells else tx.load_local)(name) for name in _bound(tx, "locals")}
    return late.make_dict(tx, [constant(name) for name in bound], list(bound.values()))


def _bound(tx: Translator, asked: str) -> list[str]:
    """The names of the function's bound variables. Raises Unsupported in the body of a class statement, whose variables
    are a dict that user code may write."""
    if not tx.code.co_flags & inspect.CO_OPTIMIZED:
        raise Unsupported(Reason.FRAME_INTROSPECTION, detail=asked)
    return [name for name in tx.code.co_varnames if name not in tx.cells and tx.is_bound(name)] + list(tx.bound_cells())


def _left_to_python(function: Any) -> None:
    @handles(function)
    def handler(tx: Translator, args: Args, kwargs: Kwargs) -> Value:
        raise Unsupported(Reason.UNSUPPORTED_BUILTIN, function)


for _function in (print, input, breakpoint, open, exec, eval, compile, globals):
    _left_to_python(_function)


# ---- containers ----------------------------------------------------------------------------------------------------
def _list(tx: Translator, items: Value | None = None) -> Value:
    return ListValue(collected(tx, items) if items is not None else [], list)


def _tuple(tx: Translator, items: Value | None = None) -> Value:
    if isinstance(items, TupleValue) and items.kind is tuple:
        return items
    return TupleValue(collected(tx, items) if items is not None else [], tuple)


def _size(tx: Translator, items: Value | None = None) -> Value:
    sizes = list(items.iterate(tx)) if items is not None else []
    if not all(hasattr(size.python_type(), "__index__") for size in sizes):
        raise Unsupported(Reason.RAISES, detail="TypeError: torch.Size of what is no number")
    return TupleValue(sizes, torch.Size)


def _set(tx: Translator, items: Value | None = None) -> Value:
    return SetValue(set).made_from(tx, items) if items is not None else SetValue(set)


def _frozenset(tx: Translator, items: Value | None = None) -> Value:
    if isinstance(items, SetValue) and items.kind is frozenset:
        return items
    return SetValue(frozenset).made_from(tx, items) if items is not None else SetValue(frozenset)


def _dict(tx: Translator, /, *args: Value, **items: Value) -> Value:
    return _filled(tx, DictValue(dict), args, items)


def _ordered_dict(tx: Translator, /, *args: Value, **items: Value) -> Value:
    return _filled(tx, DictValue(OrderedDict), args, items)


def _defaultdict(tx: Translator, factory: Value | None = None, /, *args: Value, **items: Value) -> Value:
    if factory is not None and not is_none(factory) and not can_be_called(tx, factory):
        tx.raise_observed(TypeError, "first argument must be callable or None")
    made = DictValue(defaultdict)
    made.default_factory = factory or constant(None)
    return _filled(tx, made, args, items)


def _filled(tx: Translator, made: DictValue, args: Args, items: Kwargs) -> Value:
    made.call_method(tx, "update", args, items)
    return made


def _deque(tx: Translator, items: Value | None = None, maxlen: Value | None = None) -> Value:
    limit = maxlen.as_constant() if maxlen is not None else None
    if limit is not None and (type(limit) is not int or limit < 0):
        return fold(tx, deque, [constant(()), constant(limit)])  # raises
    return DequeValue(items.iterate(tx) if items is not None else [], limit)


def _slice(tx: Translator, *args: Value) -> Value:
    none = constant(None)
    parts = {1: (none, *args, none), 2: (*args, none), 3: args}.get(len(args))
    if parts is None:
        raise Unsupported(Reason.RAISES, detail="TypeError: the arguments of slice")
    return SliceValue(parts)


def _range(tx: Translator, *args: Value) -> Value:
    return fold(tx, range, [constant(as_index(tx, arg)) for arg in args])


# ---- folds over items ----------------------------------------------------------------------------------------------
def _sum(tx: Translator, items: Value, start: Value | None = None) -> Value:
    return add_up(tx, items, start if start is not None else constant(0))


def _any(tx: Translator, items: Value) -> Value:
    return constant(any(item.truth(tx) for item in each(tx, items)))


def _all(tx: Translator, items: Value) -> Value:
    return constant(all(item.truth(tx) for item in each(tx, items)))


def _sorted(tx: Translator, items: Value, /, *, key: Value | None = None, reverse: Value | None = None) -> Value:
    made = collected(tx, items)
    sort_items(tx, made, key, is_backwards(tx, reverse))
    return ListValue(made, list)


def _extremum(function: Any, better: Callable[..., Any], symbolic: Callable[..., Any]) -> Callable[..., Value]:
    def handler(tx: Translator, *args: Value, key: Value | None = None, default: Value | None = None) -> Value:
        if not args or (len(args) > 1 and default is not None):
            raise Unsupported(Reason.RAISES, detail=f"TypeError: the arguments of {function.__name__}")
        items = each(tx, args[0]) if len(args) == 1 else iter(args)
        best = next(items, None)
        if best is None:
            return default if default is not None else fold(tx, function, [constant(())])  # raises
        best_key = key.call(tx, [best], {}) if key is not None and not _is_none(key) else best
        for item in items:
            item_key = key.call(tx, [item], {}) if key is not None and not _is_none(key) else item
            if isinstance(best_key, NumberValue) or isinstance(item_key, NumberValue):
                chosen = symbolic_extremum(tx, symbolic, best_key, item_key)
                if chosen is not None and best_key is best:
                    best = best_key = chosen
                    continue
            if apply(tx, better, item_key, best_key).truth(tx):
                best, best_key = item, item_key
        return best

    return handler


def symbolic_extremum(tx: Translator, function: Callable[..., Any], left: Value, right: Value) -> Value | None:
    """torch.sym_min or sym_max, where one of two numbers varies. Python returns one of the operands: its type is known
    where both have the same."""
    number = left if isinstance(left, NumberValue) else right
    if not isinstance(number, NumberValue) or left.python_type() is not right.python_type():
        return None
    return number.binary(tx, function, left, right)


def _is_none(value: Value) -> bool:
    return value.is_constant() and value.as_constant() is None


def _round(tx: Translator, value: Value, digits: Value | None = None) -> Value:
    if isinstance(value, ObjectValue):
        return value.call_method(tx, "__round__", [] if digits is None else [digits], {})
    kind = value.python_type()
    if isinstance(value, TensorValue) and not hasattr(kind, "__round__"):
        tx.raise_observed(TypeError, f"type {kind.__name__} doesn't define __round__ method")
    if isinstance(value, TensorValue):
        raise Unsupported(Reason.UNSUPPORTED_BUILTIN, round, given=(value,))
    if isinstance(value, NumberValue):
        if digits is None or digits.is_constant():
            return value.rounded(tx, digits)
        value = constant(value.specialize(tx))
    return fold(tx, round, [value] if digits is None else [value, digits])


def _divmod(tx: Translator, left: Value, right: Value) -> Value:
    for owner, other, name in ((left, right, "__divmod__"), (right, left, "__rdivmod__")):
        if isinstance(owner, ObjectValue) and is_python_method(special(tx, owner.cls, name)):
            return owner.call_method(tx, name, [other], {})
    if left.is_constant() and right.is_constant():
        return fold(tx, divmod, [left, right])
    if any(issubclass(value.python_type(), torch.Tensor) for value in (left, right)):  # TypeError in Python
        raise Unsupported(Reason.UNSUPPORTED_BUILTIN, divmod, detail="of a tensor")
    return TupleValue([apply(tx, operator.floordiv, left, right), apply(tx, operator.mod, left, right)], tuple)


def _pow(tx: Translator, base: Value, exponent: Value, modulus: Value | None = None) -> Value:
    if modulus is not None:
        return fold(tx, pow, [base, exponent, modulus])
    return apply(tx, operator.pow, base, exponent)


def _concat(tx: Translator, left: Value, right: Value) -> Value:
    for value in (left, right):  # `+` of a subclass may be user-defined
        if value.python_type() not in (str, bytes, list, tuple):
            raise Unsupported(Reason.UNSUPPORTED_ARGUMENT, operator.concat, given=(value,))
    return apply(tx, operator.add, left, right)


_TABLE: dict[Callable[..., Value], tuple[Any, ...]] = {
    _len: (len,), _isinstance: (isinstance,), _issubclass: (issubclass,), _type: (type,), _getattr: (getattr,),
    _hasattr: (hasattr,), _setattr: (setattr,), _delattr: (delattr,), _callable: (callable,), _id: (id,),
    _hash: (hash,), _super: (super,), _vars: (vars,), _dir: (dir,), _int: (int,), _float: (float,), _bool: (bool,),
    _str: (str,), _repr: (repr,), _format: (format,),
    _list: (list,), _tuple: (tuple,), _size: (torch.Size,), _set: (set,), _frozenset: (frozenset,), _dict: (dict,),
    _ordered_dict: (OrderedDict,), _defaultdict: (defaultdict,), _deque: (deque,), _slice: (slice,), _range: (range,),
    _sum: (sum,), _any: (any,), _all: (all,), _sorted: (sorted,), _round: (round,), _divmod: (divmod,), _pow: (pow,),
    _concat: (operator.concat,),
    _extremum(min, operator.lt, torch.sym_min): (min,), _extremum(max, operator.gt, torch.sym_max): (max,),
}  # fmt: skip
for _function, _callables in _TABLE.items():
    positional(_function, *_callables)


def _operator(function: Callable[..., Any]) -> Callable[..., Value]:
    def handler(tx: Translator, *args: Value) -> Value:
        return apply(tx, function, *args)

    return handler


_OPERATORS = (
    "add sub mul truediv floordiv mod pow matmul and_ or_ xor lshift rshift eq ne lt le gt ge iadd isub imul itruediv"
    " ifloordiv imod ipow imatmul iand ior ixor ilshift irshift neg pos invert not_ is_ is_not truth contains getitem"
    " setitem delitem index"
)
for _name in _OPERATORS.split():
    positional(_operator(getattr(operator, _name)), getattr(operator, _name))
positional(_operator(operator.abs), abs, operator.abs)
