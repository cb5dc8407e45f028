"""How results, inputs after the call, and gradients differ from eager's."""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

UNDEFINED = frozenset(
    "empty empty_like empty_permuted empty_strided new_empty new_empty_strided resize_ resize_as_".split()
)
"""Operators whose results have no defined values: shape, strides and dtype are compared."""

TOLERANCE = {torch.float64: (1e-10, 1e-12), torch.float32: (1e-5, 1e-6)}
"""(relative, absolute) where no more exact value is known."""


@dataclass(frozen=True)
class Seen:
    """What one call gave: results, inputs after the call, gradients (of all results; of the first alone)."""

    results: list[Any]
    inputs: tuple[torch.Tensor, ...]
    gradients: tuple[list[Any], ...] = ()


def difference(operator: str, got: Seen, known: Seen, exact: Seen | None) -> str:
    """How what a compiled call gave differs from eager's; "" where they agree. `exact` is eager's on float64 inputs."""
    if len(got.results) != len(known.results):
        return f"{len(got.results)} results, eager has {len(known.results)}"
    undefined = operator.partition(".")[0] in UNDEFINED
    for i, (one, other) in enumerate(zip(got.results, known.results)):
        why = ""
        if isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor):
            if one.requires_grad != other.requires_grad:
                return f"result {i}: requires_grad {one.requires_grad}, eager {other.requires_grad}"
            one, other = one.detach(), other.detach()
            why = _aliases(one, other, got, known)
        why = why or differs(one, other, _place(exact and exact.results, i), undefined, _summed(other, got.inputs))
        if why:
            return f"result {i}: {why}"
    for i, (one, other) in enumerate(zip(got.inputs, known.inputs)):
        why = differs(one.detach(), other.detach(), _place(exact and exact.inputs, i), undefined)
        if why:
            return f"input {i} after the call: {why}"
    for k, (mine, eagers) in enumerate(zip(got.gradients, known.gradients)):
        for i, (one, other) in enumerate(zip(mine, eagers)):
            why = _gradient_differs(one, other, _place(exact.gradients[k], i) if exact is not None else None)
            if why:
                return f"gradient {i}{' of the first result' if k else ''}: {why}"
    return ""


def _place(values: Sequence[Any] | None, position: int) -> Any:
    return values[position] if values and position < len(values) else None


def _summed(result: Any, inputs: Sequence[torch.Tensor]) -> float:
    """The size of the terms of a result that has fewer elements than an input: a sum may cancel to less than those."""
    floats = [t.detach() for t in inputs if t.dtype.is_floating_point and t.layout is torch.strided and t.numel()]
    if not isinstance(result, torch.Tensor) or all(result.numel() >= t.numel() for t in floats):
        return 0.0
    return max(float(torch.nan_to_num(t, 0.0, 0.0, 0.0).abs().max()) for t in floats)


def _gradient_differs(one: Any, other: Any, exact: Any) -> str:
    if isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor) and one.layout is torch.strided:
        one = one.resolve_conj().contiguous()  # whoever keeps a gradient chooses its layout
        other = other.resolve_conj().contiguous() if other.layout is torch.strided else other
    if other is None and isinstance(one, torch.Tensor):
        return "a tensor, where eager has None"
    return differs(one, other, exact, scale=1.0)  # what comes back is of the order of one


def _aliases(one: torch.Tensor, other: torch.Tensor, got: Seen, known: Seen) -> str:
    """With which inputs and results a result shares memory, if that is not as in eager."""
    for what, mine, eagers in (("input", got.inputs, known.inputs), ("result", got.results, known.results)):
        for i, (a, b) in enumerate(zip(mine, eagers)):
            if isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor) and _shares(one, a) != _shares(other, b):
                return f"shares memory with {what} {i}: {_shares(one, a)}, eager {_shares(other, b)}"
    return ""


def _shares(a: torch.Tensor, b: torch.Tensor) -> bool:
    if not a.layout == b.layout == torch.strided:
        return a is b
    return bool(a.untyped_storage().nbytes()) and a.untyped_storage().data_ptr() == b.untyped_storage().data_ptr()


def differs(one: Any, other: Any, exact: Any, undefined: bool = False, scale: float = 0.0) -> str:
    """How a result differs from eager's: type, dtype, shape, strides, values; "" where it does not.

    Floating-point values may be as far from `exact` as twice eager's largest error, and four roundings of the value and
    one of a value of the size `scale`; without `exact` they may differ by `TOLERANCE`.
    """
    exact = exact.detach() if isinstance(exact, torch.Tensor) else None
    if not isinstance(other, torch.Tensor) or not isinstance(one, torch.Tensor):
        same = type(one) is type(other) and (one == other or (one != one and other != other))
        return "" if same else f"{_short(one)}, eager {_short(other)}"
    if (one.dtype, one.shape, one.layout) != (other.dtype, other.shape, other.layout):
        return f"{one.dtype} {tuple(one.shape)}, eager {other.dtype} {tuple(other.shape)}"
    if (one.is_conj(), one.is_neg()) != (other.is_conj(), other.is_neg()):
        return "lazily conjugated or negated, or not, unlike eager's"
    if other.layout is not torch.strided or other.is_quantized:
        same = torch.equal(one.to_dense(), other.to_dense()) if not other.is_quantized else torch.equal(one, other)
        return "" if same else "values of a sparse or quantized tensor"
    if other.numel() == 0:
        return ""
    if [s for s, n in zip(one.stride(), one.shape) if n > 1] != [
        s for s, n in zip(other.stride(), other.shape) if n > 1
    ]:
        return f"strides {one.stride()}, eager {other.stride()} of {tuple(other.shape)}"
    if undefined:
        return ""
    if other.dtype.is_complex:
        one, other = torch.view_as_real(one.resolve_conj()), torch.view_as_real(other.resolve_conj())
        exact = torch.view_as_real(exact.resolve_conj()) if exact is not None and exact.is_complex() else None
    return _values_differ(one, other, exact, scale)


def _short(value: Any) -> str:
    return f"a tensor of shape {tuple(value.shape)}" if isinstance(value, torch.Tensor) else repr(value)


def _values_differ(one: torch.Tensor, other: torch.Tensor, exact: torch.Tensor | None, scale: float) -> str:
    if not other.dtype.is_floating_point:
        return "" if torch.equal(one, other) else f"{_first_difference(one, other)}"
    if torch.equal(torch.nan_to_num(one), torch.nan_to_num(other)) and torch.equal(one.isnan(), other.isnan()):
        return ""
    if exact is None or exact.shape != other.shape or not exact.is_floating_point():
        eps = torch.finfo(other.dtype).eps
        relative, absolute = TOLERANCE.get(other.dtype, (2 * eps, eps))
        close = torch.isclose(one.double(), other.double(), rtol=relative, atol=absolute, equal_nan=True)
        return "" if bool(close.all()) else _first_difference(one, other)
    return _further_off(one, other, exact.double(), scale)


def _further_off(one: torch.Tensor, other: torch.Tensor, exact: torch.Tensor, scale: float) -> str:
    for special in (torch.isnan, torch.isposinf, torch.isneginf):
        if not torch.equal(special(one), special(other)) and not torch.equal(
            special(one), special(exact.to(one.dtype))
        ):
            return f"{special.__name__} elsewhere: {_first_difference(one, other)}"
    finite = exact.isfinite() & other.isfinite() & one.isfinite()
    if not bool(finite.any()):
        return ""
    gap, eagers = (one.double() - exact)[finite].abs(), (other.double() - exact)[finite].abs()
    unit = torch.finfo(one.dtype).eps
    allowed = 2 * eagers.max() + unit * (4 * exact[finite].abs() + exact[finite].abs().max() + scale)
    if bool((gap <= allowed).all()):
        return ""
    worst = int((gap - allowed).argmax())
    return (
        f"error {gap[worst].item():.3g} at {exact[finite][worst].item():.9g}, eager's largest {eagers.max().item():.3g}"
    )


def _first_difference(one: torch.Tensor, other: torch.Tensor) -> str:
    unequal = (one != other) & ~((one != one) & (other != other))
    where = unequal.nonzero()
    if not len(where):
        return "equal but for NaN"
    at = tuple(where[0].tolist())
    return f"{one[at].item()!r} at {list(at)}, eager {other[at].item()!r} ({len(where)} of {one.numel()} differ)"
