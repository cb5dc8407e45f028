"""Reads the cache of a `functools.lru_cache` function without a call: a call would count as a hit, make its entry the
most recent, and run the function where the entry is gone."""
from __future__ import annotations

import functools
import gc
import types
from typing import Any

NOT_CACHED = object()
"""Represents a missing result."""


def cached_result(function: Any, args: tuple[Any, ...], kwargs: tuple[tuple[str, Any], ...]) -> Any:
    """The cached result of `function` for the arguments; NOT_CACHED where there is none, it is no such function, or its
    cache is full: which entry a call then evicts depends on the calls before, and a read is not one.

    Only the garbage collector exposes the cache (`lru_cache_tp_traverse` in CPython's _functoolsmodule.c): the class,
    then key, result and link class of each entry where the size is limited, then a dict of the entries, the function,
    and the object that precedes keywords in keys.
    """
    if type(function) is types.MethodType:
        function, args = function.__func__, (function.__self__, *args)
    if type(function) is not functools._lru_cache_wrapper:
        return NOT_CACHED
    parts, settings = gc.get_referents(function), function.cache_parameters()
    wrapped = function.__wrapped__
    place = next((i for i in range(len(parts) - 2) if parts[i + 1] is wrapped and type(parts[i]) is dict), 0)
    if not place or (settings["maxsize"] is not None and len(parts[place]) >= settings["maxsize"]):
        return NOT_CACHED
    try:
        key = _key(args, kwargs, parts[place + 2], settings["typed"])
        if settings["maxsize"] is None or key not in parts[place]:
            return parts[place].get(key, NOT_CACHED)
    except TypeError:  # an argument without a hash
        return NOT_CACHED
    links = zip(parts[1:place:3], parts[2:place:3])
    return next((result for known, result in links if type(known) is type(key) and known == key), NOT_CACHED)


def _key(args: tuple[Any, ...], kwargs: tuple[tuple[str, Any], ...], mark: Any, typed: bool) -> Any:
    """The key that `lru_cache_make_key` makes."""
    if not typed and not kwargs and len(args) == 1 and type(args[0]) in (int, str):
        return args[0]
    key = (*args, mark, *(part for pair in kwargs for part in pair)) if kwargs else args
    return (*key, *map(type, args), *(type(value) for _, value in kwargs)) if typed else key
