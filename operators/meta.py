"""Where fake kernels give another result than eager's kernels: what is corrected, and what cannot be.

Functionalization asks all of this while it traces a graph, capture the part that a program may see while it is traced.
The facts are in `traits.py` (`no_meta`, `unsafe`, `wrong_result`, `strides`, `captured_strides`, `symbolic_meta`).
"""
from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import torch

from .layouts import Strides, is_one, is_same, of_elements
from .traits import traits_of
from .unbacked import unbacked_in


def untraceable(operator: Any, args: Sequence[Any]) -> str:
    """Why a call cannot be traced at all; "" where it can."""
    no_meta = traits_of(operator).no_meta
    return no_meta(operator, args) if no_meta is not None else ""


def unsafe(operator: Any, args: Sequence[Any]) -> str:
    """Why generated code would do something else than eager's kernel, which reads or writes memory in its own way, or
    raises; "" where it would not."""
    check = traits_of(operator).unsafe
    return check(operator, args) if check is not None else ""


def wrong_result(operator: Any, out: Any, args: Sequence[Any]) -> str:
    """Why the sizes or dtypes of a fake result cannot be trusted; "" where they can."""
    check = traits_of(operator).wrong_result
    return check(operator, out, args) if check is not None else ""


def apart(out: Any) -> Any:
    """A fake result whose parts are tensors of their own. A kernel may return one tensor twice (the gradients of an
    LSTM's two biases), and does not where torch answers from its cache of fake results: graphs are to be the same."""
    if type(out) is not tuple or len({id(part) for part in out}) == len(out):
        return out
    parts: list[Any] = []
    for part in out:
        again = isinstance(part, torch.Tensor) and any(part is other for other in parts)
        parts.append(part.new_empty_strided(part.shape, part.stride()) if again else part)
    return tuple(parts)


def is_wrong_view(operator: Any, result: Any, args: Sequence[Any]) -> bool:
    """Whether a fake result shares memory with an argument, and eager's has memory of its own: a fake kernel or a rule
    that has nothing to do (drop, move) may return the argument."""
    if not isinstance(result, torch.Tensor) or result.layout is not torch.strided or not _makes_memory(operator):
        return False
    memory = result.untyped_storage()._cdata
    given = [tensor for tensor in _tensors(args) if tensor.layout is torch.strided]
    return any(tensor.untyped_storage()._cdata == memory for tensor in given)


@cache
def _makes_memory(operator: Any) -> bool:
    """Whether an operator never returns a view. What is made of other operators returns what these do."""
    composite = torch._C._dispatch_has_kernel_for_dispatch_key(operator.name(), "CompositeImplicitAutograd")
    return not composite and not returns_view(operator)


def returns_view(operator: torch._ops.OpOverload) -> bool:
    """Whether an operator may return a view of an argument: its schema says so, or its kernel does it untold."""
    return traits_of(operator).view or any(r.alias_info is not None for r in operator._schema.returns)


def eager_strides(operator: Any, result: torch.Tensor, args: Sequence[Any], single: bool = False) -> Strides | None:
    """The strides that eager gives the (first) result of an operator; None where the fake tensor's are right, or where
    sizes are unbacked.

    Sizes that vary are compared, which is a guard on the order of strides. Those of dimensions of size 1, which only a
    memory format shows, count with `single`.
    """
    traits = traits_of(operator)
    layout = traits.strides or (of_elements if torch.Tag.pointwise in operator.tags else None)
    if result.device.type == "cuda" and traits.gpu_strides is not None:
        layout = traits.gpu_strides
    if layout is None or result.device.type not in ("cpu", "cuda"):
        return None
    tensors = _tensors(args)  # none where the program has given numbers alone
    if not tensors or any(map(unbacked_in, tensors)) or (not traits.sized_by_input and unbacked_in(result)):
        return None
    strides = layout(result, *args)
    if strides is None:
        return None
    differ = [n for n, a, b in zip(result.shape, strides, result.stride()) if not is_same(a, b)]
    return strides if any(single or not is_one(n) for n in differ) else None


def captured_strides(operator: Any, args: Sequence[Any], made: Any) -> Strides | None:
    """The strides of `made`, (a part of) what capture made as `operator(*args)`, where they are others in eager;
    else, or for symbols, None."""
    traits = traits_of(operator)
    find = traits.captured_strides
    if not args or not isinstance(args[0], torch.Tensor) or not isinstance(made, torch.Tensor):
        return None
    if find is None:
        known, tensors = traits.strides or traits.gpu_strides, (made, *_tensors(args))
        strided = known and all(t.layout is torch.strided for t in tensors)
        fixed = strided and all(type(n) is int for t in tensors for n in (*t.shape, *t.stride()))
        return eager_strides(operator, made, args, True) if fixed else None
    sizes = (*args[0].shape, *made.shape)
    if any(type(number) is not int for number in (*sizes, *args[0].stride())) or 1 not in sizes or 0 in sizes:
        return None
    strides: Strides | None = find(operator, args, made)
    return strides if strides is not None and strides != made.stride() else None


def _tensors(args: Sequence[Any]) -> list[torch.Tensor]:
    flat = [part for a in args for part in (a if isinstance(a, (tuple, list)) else (a,))]
    return [a for a in flat if isinstance(a, torch.Tensor)]
