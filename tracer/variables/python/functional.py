"""functools: partial, reduce, wraps, functions with a cache, dispatch on a type, comparison functions as keys."""
from __future__ import annotations

import functools
import itertools
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import torch

from ....operators.effects import may_draw
from ...breaks.reasons import Reason
from ...breaks.unsupported import Unsupported
from ...sources.cached_results import NOT_CACHED, cached_result
from ...sources.source import AttrSource, CellSource, ItemSource, ResultSource, Source
from ..containers.mappings import DictValue
from ..containers.sequences import TupleValue
from ..core.attributes import can_be_called, lookup
from ..core.base import ObservedException, Value
from ..core.constant import constant
from ..core.handlers import handler_of, handles, is_pure
from ..core.iteration import each
from ..core.keys import checked_key
from ..core.late import late
from ..core.operators import COMPARISONS, apply
from ..core.registry import build, builds, from_python, is_library, is_stable
from .builtin_functions import BuiltinValue
from .functions import CODES, FunctionValue
from .objects import ObjectValue
from .partials import MethodValue, PartialValue
from .symbolic_numbers import NumberValue

if TYPE_CHECKING:
    from ..core.base import Codegen, Translator

Args = Sequence[Value]
Kwargs = Mapping[str, Value]


@handles(functools.partial)
def _partial(tx: Translator, args: Args, kwargs: Kwargs) -> Value:
    function = args[0]
    if not can_be_called(tx, function):
        tx.raise_observed(TypeError, "the first argument must be callable")
    if isinstance(function, PartialValue):
        return PartialValue(function.function, [*function.args, *args[1:]], {**function.kwargs(tx), **kwargs})
    return PartialValue(function, args[1:], kwargs)


class PartialKeywords(DictValue):
    """The keyword arguments of a partial that the trace made: they can only be read."""

    __slots__ = ("partial",)

    def __init__(self, tx: Translator, partial: PartialValue) -> None:
        super().__init__(dict)
        self.partial = partial
        self.items = dict(partial.given)
        self.key_values = {name: constant(name) for name in partial.given}

    def changed(self, tx: Translator) -> None:
        """Left to eager."""
        raise Unsupported(Reason.SET_ITEM, detail=f"the keywords of {self.partial.describe()}")

    def reconstruct(self, codegen: Codegen) -> None:
        """That of the partial."""
        codegen(self.partial)
        codegen.load_attr("keywords")


late.partial_keywords = PartialKeywords


@handles(functools.reduce)
def _reduce(tx: Translator, args: Args, kwargs: Kwargs) -> Value:
    items = each(tx, args[1])
    total = args[2] if len(args) > 2 else next(items, None)
    if total is None:
        tx.raise_observed(TypeError, "reduce() of empty iterable with no initial value")
    for item in items:
        total = args[0].call(tx, [total, item], {})
    return total


@handles(functools.update_wrapper)
def _update_wrapper(tx: Translator, args: Args, kwargs: Kwargs) -> Value:
    wrapper, wrapped = args[0], args[1] if len(args) > 1 else kwargs["wrapped"]
    if len(args) > 2 or {"assigned", "updated"} & set(kwargs):
        raise Unsupported(Reason.UNSUPPORTED_ARGUMENT, functools.update_wrapper, detail="with names")
    if not isinstance(wrapper, FunctionValue) or wrapper.function is not None:
        raise Unsupported(Reason.UNSUPPORTED_ARGUMENT, functools.update_wrapper, detail="of an existing function")
    for name in ("__module__", "__name__", "__qualname__", "__doc__", *_own_attributes(wrapped)):
        with suppress(ObservedException):  # as for a partial: missing attributes are not copied
            wrapper.attributes[name] = wrapped.getattr(tx, name)
    wrapper.attributes["__wrapped__"] = wrapper.wrapped = wrapped
    return wrapper


def _own_attributes(wrapped: Value) -> list[str]:
    """The names in its `__dict__`, if it is a function."""
    if not isinstance(wrapped, FunctionValue):
        return []
    return list(wrapped.attributes if wrapped.function is None else vars(wrapped.function))


@handles(functools.wraps)
def _wraps(tx: Translator, args: Args, kwargs: Kwargs) -> Value:
    wrapped = args[0] if args else kwargs["wrapped"]
    if len(args) > 1 or {"assigned", "updated"} & set(kwargs):
        raise Unsupported(Reason.UNSUPPORTED_ARGUMENT, functools.wraps, detail="with names")
    return PartialValue(from_python(tx, functools.update_wrapper), [], {"wrapped": wrapped})


# ---- functions with a cache -----------------------------------------------------------------------------------------
class CachedFunction(Value):
    """An existing function with lru_cache. Its results for constants are the user's objects: the call is an expression
    that reads them from the cache, which is filled as in eager; such a read does not count as a hit."""

    __slots__ = ("inner", "real")

    def __init__(self, real: Any, inner: Value, source: Source | None) -> None:
        super().__init__(source)
        self.real = real
        self.inner = inner

    def python_type(self) -> type:
        """The type of such functions."""
        return type(self.real)

    def truth(self, tx: Translator) -> bool:
        """It is true."""
        return True

    def bound_to(self, owner: Value) -> Value:
        """The function as a method."""
        return MethodValue(self, owner)

    def call(self, tx: Translator, args: Args, kwargs: Kwargs) -> Value:
        """The cached object; the body is interpreted where an argument exists only in the trace."""
        source, owner = self.source, args[0] if args else None
        real = self.real
        if isinstance(owner, ObjectValue) and owner.real is not None and owner.source is not None:
            if lookup(owner.cls, real.__name__) is real:
                source, args = AttrSource(owner.source, real.__name__), args[1:]
                real = real.__get__(owner.real)
        known = all(arg.is_constant() for arg in (*args, *kwargs.values()))
        if source is None or not known or is_library(self.real.__module__):
            with tx.effects.sealed(f"{self.describe()}, which has a cache,"):
                computed = self.inner.call(tx, args if source is self.source else [owner, *args], kwargs)  # type: ignore[list-item]
            plain = computed.is_constant() or isinstance(computed, NumberValue)
            if not is_library(self.real.__module__) and (not plain or self._may_know(args, kwargs)):
                raise Unsupported(
                    Reason.UNSUPPORTED_ARGUMENT, self, detail=", whose cache the trace cannot ask for this object"
                )
            return computed
        values = tuple(arg.as_constant() for arg in args)
        named = tuple((name, value.as_constant()) for name, value in kwargs.items())
        place = ResultSource(source, values, named, repr((values, named)))
        result = cached_result(real, values, named)
        if result is NOT_CACHED:
            try:
                self._refuse_effects(tx, args if source is self.source else [owner, *args], kwargs)  # type: ignore[list-item]
            except Unsupported:
                tx.guards.add(place, "ID_MATCH", NOT_CACHED)
                raise
            result = real(*values, **dict(named))
        return build(tx, result, place)

    def _may_know(self, args: Args, kwargs: Kwargs) -> bool:
        """Whether the cache may hold what an argument gave before the program changed it: it looks objects up by
        identity, or by an equality of their own."""
        return self.real.cache_parameters()["maxsize"] != 0 and not all(map(_never_changes, (*args, *kwargs.values())))

    def _refuse_effects(self, tx: Translator, args: Args, kwargs: Kwargs) -> None:
        """Raises Unsupported where the function does more than compute: the trace is about to call it, to fill its
        cache. Only eager may then call it, in order."""
        limit, last = self.real.cache_parameters()["maxsize"], next(iter(reversed(tx.graph.graph.nodes)), None)
        if limit is None or self.real.cache_info().currsize < limit:
            with tx.effects.sealed(f"{self.describe()}, which has a cache,"):
                self.inner.call(tx, args, kwargs)
            new = itertools.takewhile(lambda node: node is not last, reversed(tx.graph.graph.nodes))
            if not any(map(may_draw, new)) and not tx.effects.reach_outside():
                return
        raise Unsupported(Reason.UNSUPPORTED_ARGUMENT, self, detail=", whose cache does not have the result")

    def getattr(self, tx: Translator, name: str) -> Value:
        """What the function has; cache statistics are left to eager."""
        if name.startswith("cache_"):
            raise Unsupported(Reason.UNSUPPORTED_METHOD, self, name)
        return self.inner if name == "__wrapped__" else self.inner.getattr(tx, name)

    def reconstruct(self, codegen: Any) -> None:
        """The function itself."""
        codegen.const(self.real)

    def describe(self) -> str:
        """For messages."""
        return self.inner.describe()


def _never_changes(value: Value) -> bool:
    """Whether arguments that are equal to this one give equal results at any time: constants, instances of frozen
    dataclasses, tuples of such, and tensors of the trace, of which each call makes new ones."""
    if isinstance(value, TupleValue):
        return all(map(_never_changes, value.items))
    if isinstance(value, ObjectValue):
        settings = getattr(value.cls, "__dataclass_params__", None)
        return settings is not None and settings.frozen and settings.eq
    made = value.source is None and issubclass(value.python_type(), torch.Tensor)
    return made or value.is_constant() or isinstance(value, NumberValue)


@builds(functools._lru_cache_wrapper)
def build_lru_cache(tx: Translator, obj: Any, source: Source | None) -> Value:
    """A function with a cache."""
    if handler_of(obj) is not None or is_pure(obj):
        return BuiltinValue(obj, source)
    if source is not None and not is_stable(source):
        tx.guards.add(source, "ID_MATCH", obj)
    inner = obj.__wrapped__
    where = AttrSource(source, "__wrapped__") if source is not None else None
    return CachedFunction(obj, from_python(tx, inner) if where is None else build(tx, inner, where), source)


class NewCachedFunction(Value):
    """A function with lru_cache that the trace made."""

    __slots__ = ("cache", "function", "hits", "limit", "misses", "typed")

    def __init__(self, function: Value, limit: int | None, typed: bool) -> None:
        super().__init__()
        self.function = function
        self.limit = limit
        self.typed = typed
        self.cache: OrderedDict[Any, Value] = OrderedDict()
        self.hits = self.misses = 0

    def python_type(self) -> type:
        """The type of such functions."""
        return functools._lru_cache_wrapper

    def truth(self, tx: Translator) -> bool:
        """It is true."""
        return True

    def call(self, tx: Translator, args: Args, kwargs: Kwargs) -> Value:
        """The cached result, or the call."""
        keys = tuple(checked_key(tx, arg) for arg in args), {n: checked_key(tx, value) for n, value in kwargs.items()}
        key: Any = functools._make_key(*keys, self.typed)
        if key in self.cache:
            self.hits += 1
            self.cache.move_to_end(key)
            return self.cache[key]
        self.misses += 1
        result = self.function.call(tx, args, kwargs)
        self.cache[key] = result
        if self.limit is not None and len(self.cache) > self.limit:
            self.cache.popitem(last=False)
        return result

    def call_method(self, tx: Translator, name: str, args: Args, kwargs: Kwargs) -> Value:
        """cache_info and cache_clear."""
        if name == "cache_info":
            numbers = self.hits, self.misses, self.limit, len(self.cache)
            return TupleValue([constant(number) for number in numbers], functools._CacheInfo)
        if name == "cache_clear":
            self.cache.clear()
            self.hits = self.misses = 0
            return constant(None)
        return super().call_method(tx, name, args, kwargs)

    def getattr(self, tx: Translator, name: str) -> Value:
        """What the function has."""
        return self.function if name == "__wrapped__" else self.function.getattr(tx, name)

    def describe(self) -> str:
        """For messages."""
        return f"{self.function.describe()} with a cache"


class CacheDecorator(Value):
    """lru_cache(maxsize, typed), about to be called with a function."""

    __slots__ = ("limit", "typed")

    def __init__(self, limit: int | None, typed: bool) -> None:
        super().__init__()
        self.limit = limit
        self.typed = typed

    def call(self, tx: Translator, args: Args, kwargs: Kwargs) -> Value:
        """The function with its cache."""
        if not can_be_called(tx, args[0]):
            raise Unsupported(Reason.RAISES, detail="TypeError: lru_cache() of what cannot be called")
        return NewCachedFunction(args[0], self.limit, self.typed)


@handles(functools.lru_cache)
def _lru_cache(tx: Translator, args: Args, kwargs: Kwargs) -> Value:
    given = dict(zip(("maxsize", "typed"), args)) | dict(kwargs)
    first = given.get("maxsize", constant(128))
    typed = "typed" in given and given["typed"].truth(tx)
    if not first.is_constant() or callable(first.as_constant()):
        return NewCachedFunction(first, 128, typed)
    limit = first.as_constant()
    return CacheDecorator(limit if limit is None else max(limit, 0), typed)


@handles(functools.cache)
def _cache(tx: Translator, args: Args, kwargs: Kwargs) -> Value:
    return NewCachedFunction(args[0], None, False)


# ---- dispatch on a type ---------------------------------------------------------------------------------------------
_DISPATCH = functools.singledispatch(lambda arg: arg).dispatch.__code__


def dispatched(tx: Translator, dispatch: FunctionValue, kind: type) -> Value:
    """`dispatch(kind)` of a function with singledispatch: the current implementation, which is guarded."""
    function: Any = dispatch.function
    found = function(kind)
    if dispatch.source is None or is_stable(dispatch.source):
        return from_python(tx, found)
    unchanged = (lambda dispatch: dispatch(kind) is found, f"{{}}({kind.__name__}) is {found.__qualname__}")
    tx.guards.add(dispatch.source, "LAMBDA", unchanged)
    place = dispatch.code.co_freevars.index("registry")
    registry = function.__closure__[place].cell_contents
    key = next(key for key, known in registry.items() if known is found)
    return build(tx, found, ItemSource(CellSource(dispatch.source, place, "registry"), key))


CODES[_DISPATCH] = lambda tx, function, args: dispatched(tx, function, args[0].as_constant())


# ---- comparison functions -------------------------------------------------------------------------------------------
class ComparisonKey(Value):
    """cmp_to_key(function), or its result for an object when a sort calls it."""

    __slots__ = ("function", "object")

    def __init__(self, function: Value, object: Value | None = None) -> None:
        super().__init__()
        self.function = function
        self.object = object

    def python_type(self) -> type:
        """The type of such keys."""
        return type(functools.cmp_to_key(lambda left, right: 0))

    def call(self, tx: Translator, args: Args, kwargs: Kwargs) -> Value:
        """The key for an object."""
        return ComparisonKey(self.function, args[0])

    def binary(self, tx: Translator, function: Callable[..., Any], left: Value, right: Value) -> Value | None:
        """As the comparison function says."""
        if function not in COMPARISONS or not isinstance(left, ComparisonKey) or not isinstance(right, ComparisonKey):
            return None
        assert left.object is not None and right.object is not None
        return apply(tx, function, self.function.call(tx, [left.object, right.object], {}), constant(0))


@handles(functools.cmp_to_key)
def _cmp_to_key(tx: Translator, args: Args, kwargs: Kwargs) -> Value:
    return ComparisonKey(args[0] if args else kwargs["mycmp"])
