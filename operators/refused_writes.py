"""Writes through memory that several elements share: eager refuses most of them, fake tensors none."""
from __future__ import annotations

import operator
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain, combinations
from types import BuiltinFunctionType
from typing import Any

import torch

from .overlap import hinted
from .traits import traits_named

_IN_PLACE = frozenset((
    operator.iadd, operator.isub, operator.imul, operator.itruediv, operator.ifloordiv, operator.imod, operator.ipow,
    operator.iand, operator.ior, operator.ixor, operator.ilshift, operator.irshift, operator.setitem,
))  # fmt: skip
_DUNDERS = frozenset([f"__{function.__name__}__" for function in _IN_PLACE])
_SETS = "setitem", "__setitem__"
_ELEMENTWISE = {*_DUNDERS, *[function.__name__ for function in _IN_PLACE], "copy_"} - {*_SETS}
_MANY = 16


def may_be_refused(op: str, target: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> str:
    """Why eager may refuse to write to a tensor, which fake tensors do not, or what it writes depends on the order: it
    has one element for several indices, or shares some with a tensor that is read (`assert_no_internal_overlap`,
    `assert_no_partial_overlap` and `assert_no_overlap` in ATen/MemoryOverlap.cpp). "" where nothing of this is so.

    May guard on sizes: that what is read and what is written stay apart.
    """
    name = target if op == "call_method" else getattr(target, "__name__", "")
    written, others = kwargs.get("out"), args
    if written is None:
        if not args or not _writes_first(op, target, name, args, kwargs):
            return ""
        written, others = args[0], args[1:]
    ones = [one for one in _listed(written) if isinstance(one, torch.Tensor) and one.layout is torch.strided]
    if not traits_named(name).writes_equal and any(map(_shares_elements, ones)):
        return "several elements of what is written are one in memory"
    if len(ones) > 1 and any(_share_some(a, b, False) for a, b in _of_one_memory(ones)):
        return "some elements are written twice"
    others = (*others, *[value for key, value in kwargs.items() if key != "out"])
    read = [part for arg in others for part in _listed(arg) if isinstance(part, torch.Tensor)]
    elementwise = writes_lists(target) or _is_elementwise(name)
    for one in ones:
        for part in read:
            if _share_some(one, part, elementwise) and not _sets_others(name, args, part):
                return "some elements of what is written are also read"
    return ""


def _writes_first(op: str, target: Any, name: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bool:
    if op == "call_method" or (isinstance(target, BuiltinFunctionType) and target.__module__ != "_operator"):  # or_
        if name in _DUNDERS or (name.endswith("_") and not name.endswith("__")):
            return True
    asked = kwargs.get("inplace", _is_at(target, "inplace", args)) is True
    return asked or target in _IN_PLACE or writes_lists(target)


@lru_cache(1024)
def _is_elementwise(name: str) -> bool:
    """Whether an operator reads for each element that it writes no other element of what has its shape."""
    if name in _ELEMENTWISE:
        return True
    packet = getattr(torch.ops.aten, name, None)
    return packet is not None and any(
        torch.Tag.pointwise in getattr(packet, overload).tags for overload in packet.overloads()
    )


def _listed(arg: Any) -> Sequence[Any]:
    return arg if isinstance(arg, (list, tuple)) else (arg,)


def _of_one_memory(tensors: Sequence[torch.Tensor]) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Each two of the tensors that lie in one storage."""
    by_storage = defaultdict(list)
    for tensor in tensors:
        by_storage[tensor.untyped_storage()._cdata].append(tensor)
    return chain.from_iterable(combinations(group, 2) for group in by_storage.values())


def _sets_others(name: str, args: tuple[Any, ...], value: torch.Tensor) -> bool:
    """Whether `args[0][args[1]] = value` is asked for, and `value` shares no element with that part, or is that."""
    if name not in _SETS or isinstance(args[1], list):
        return False
    whole, parts = args[0], _listed(args[1])
    if not all(part is None or part is ... or type(part) in (int, slice, torch.SymInt) for part in parts):
        return False
    bounds = [bound for part in parts if type(part) is slice for bound in (part.start, part.stop, part.step)]
    if any(map(_is_told_by_data, bounds)):
        return False
    try:
        view = whole[tuple([0 if _is_told_by_data(part) else part for part in parts])]
    except (IndexError, RuntimeError, ValueError):  # which the assignment says itself
        return True
    if any(map(_is_told_by_data, parts)):  # a row: the same or another one
        return value.shape == view.shape and value.stride() == view.stride()
    return not _share_some(view, value, True)


def _is_told_by_data(number: Any) -> bool:
    return isinstance(number, torch.SymInt) and not number.node.has_hint()


def _share_some(a: torch.Tensor, b: torch.Tensor, elementwise: bool) -> bool:
    """Whether an element of `a` is one of `b`; if `elementwise`, and they are not the same ones in the same order."""
    if b.layout is not torch.strided or not torch._C._is_alias_of(a, b):  # type: ignore[attr-defined]
        return False
    numbers = [(t.storage_offset(), *t.shape, *t.stride()) for t in (a, b)]  # where offsets differ, no size is guarded
    if a is b or (numbers[0] == numbers[1] and a.dtype == b.dtype):
        return not elementwise
    vary: list[Any] = [n for n in (*numbers[0], *numbers[1]) if type(n) is not int]
    if any(map(_is_told_by_data, vary)):
        return True
    first, second = _Span.of(a), _Span.of(b)
    if any(size == 0 for size, _ in (*first.dims, *second.dims)):
        return False
    if _meet(second.begin - first.begin, _differences(first, second)):
        return True
    return bool(vary) and not _stay_apart(a, b)


def _stay_apart(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Guard that tensors which share no element at the sizes of this call share none at others; False where no guard is
    found that says so. One lies behind the other, or does between any two multiples of a stride of `a`, and all larger
    strides are such multiples: columns of a matrix."""
    if a.element_size() != b.element_size():
        return False
    for step in (None, *a.stride()):
        if step is not None and hinted(step) == 0:
            continue
        reached = sorted((_reach(a, step), _reach(b, step)), key=lambda reach: hinted(reach[0]))
        (first, last, outer), (begin, end, more) = reached
        if hinted(last) >= hinted(begin) or (step is not None and hinted(end - first) >= hinted(step)):
            continue
        if any(hinted(stride) % hinted(step) for stride in (*outer, *more)):
            continue
        whole = all(bool(stride % step == 0) for stride in (*outer, *more))  # bool() of what varies is a guard
        return whole and bool(last < begin) and (step is None or bool(end - first < step))
    return False


def _reach(tensor: torch.Tensor, step: Any) -> tuple[Any, Any, list[Any]]:
    """The first and the last element in memory of what `tensor` is without the dimensions whose strides are `step` or
    more, and those strides."""
    first = last = tensor.storage_offset()
    outer = []
    for size, stride in zip(tensor.shape, tensor.stride()):
        if step is not None and hinted(stride) >= hinted(step):
            outer.append(stride)
        else:
            last = last + (size - 1) * stride
    return first, last, outer


@dataclass(frozen=True)
class _Span:
    """Which bytes of its storage a tensor of the sizes of this call has."""

    begin: int
    itemsize: int
    dims: tuple[tuple[int, int], ...]  # (size, stride)

    @staticmethod
    def of(tensor: torch.Tensor) -> _Span:
        item = tensor.element_size()
        dims = [(hinted(size), hinted(stride) * item) for size, stride in zip(tensor.shape, tensor.stride())]
        return _Span(hinted(tensor.storage_offset()) * item, item, tuple(dims))


def _differences(a: _Span, b: _Span) -> list[tuple[int, int, int]]:
    """(stride, least, most), the largest stride first: the bytes from an element of `b` to one of `a`, less those
    between their beginnings, are a sum of multiples of the strides."""
    least, most = Counter[int](), Counter[int]()
    for size, stride in (*a.dims, (a.itemsize, 1)):
        most[stride] += size - 1
    for size, stride in (*b.dims, (b.itemsize, 1)):
        least[stride] -= size - 1
    return [(stride, least[stride], most[stride]) for stride in sorted({*least, *most} - {0}, reverse=True)]


def _meet(distance: int, terms: list[tuple[int, int, int]]) -> bool:
    """Whether `distance` is a sum of multiples of strides, each between the least and the most that is given; also
    True where strides are of sizes so close to each other that it would take long to know."""
    if not terms:
        return distance == 0
    (stride, least, most), *rest = terms
    low = sum(stride * least for stride, least, _ in rest)
    high = sum(stride * most for stride, _, most in rest)
    first, last = max(least, -((high - distance) // stride)), min(most, (distance - low) // stride)
    return last - first >= _MANY or any(_meet(distance - n * stride, rest) for n in range(first, last + 1))


def _shares_elements(tensor: torch.Tensor) -> bool:
    return tensor.layout is torch.strided and any(
        type(stride) is int and stride == 0 and (type(size) is not int or size > 1)
        for stride, size in zip(tensor.stride(), tensor.shape)
    )


def _is_at(function: Any, name: str, args: tuple[Any, ...]) -> Any:
    """The argument that a Python function of torch (`F.relu`) gets as its parameter `name`, by position; else None."""
    code = getattr(function, "__code__", None)
    names = code.co_varnames[: min(code.co_argcount, len(args))] if code is not None else ()
    return args[names.index(name)] if name in names else None


def writes_lists(target: Any) -> bool:
    """Whether a function changes the tensors of its first argument, a list: `torch._foreach_add_`."""
    name = getattr(target, "__name__", "").partition(".")[0]
    return name.startswith("_foreach_") and name.endswith("_")
