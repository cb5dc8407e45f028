"""The verdict on two values: equal, different by rounding only, or different.

Rounding is judged against a float64 reference, if there is one: a result may be `FACTOR` times as far from it as
eager's, measured over the whole tensor, because two valid summation orders disagree element by element. The largest of
a few such distances is mostly chance, so a small tensor may be `FACTOR_OF_FEW` times as far. Without a reference, the
distance to eager counts. For float64 results, the reference is eager run on inputs moved by a unit in the last place,
which shows how much cancellation amplifies rounding.
"""
from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch

FACTOR = 2.0
FACTOR_OF_FEW = 4.0
FEW = 64
"""Elements. Where errors are normal, the largest of 16 is over twice another largest of 16 once in 55 draws, over four
times once in 20,000; of 64 it is over twice once in 700."""
SLACK_ULPS = 4.0
"""Below this many units in the last place of the largest magnitude, a distance counts as rounding in any case."""
SLACK_ULPS_UNTOLD = 1e3
"""The same where no more exact reference says how far eager itself is off."""

ORDER = ("equal", "rounding", "different")


@dataclass(frozen=True)
class Comparison:
    """The verdict with its figures: largest absolute and relative difference, and the former in ulps of the largest
    number. What is nearer to zero than such an ulp counts as that for the relative one."""

    verdict: str
    max_abs: float = 0.0
    max_rel: float = 0.0
    ulp: float = 0.0
    why: str = ""


EQUAL = Comparison("equal")


def worst(comparisons: list[Comparison]) -> Comparison:
    """The comparison with the worst verdict; among equals the largest relative difference. EQUAL for none."""
    return max(comparisons, key=lambda c: (ORDER.index(c.verdict), c.max_rel), default=EQUAL)


def compare(value: Any, eager: Any, reference: Any = None) -> Comparison:
    """Compare `value` with eager's; `reference` is the same in float64, or None.

    Shape, dtype and strides must agree; NaNs must be in the same places, infinities equal.
    """
    if not isinstance(eager, torch.Tensor) or not isinstance(value, torch.Tensor):
        same = type(value) is type(eager) and (value == eager or (value != value and eager != eager))
        return EQUAL if same else _different(f"{value!r} is not {eager!r}")
    if value.dtype != eager.dtype or value.shape != eager.shape:
        return _different(f"{value.dtype}{list(value.shape)} is not {eager.dtype}{list(eager.shape)}")
    if value.stride() != eager.stride() and value.numel() > 1:
        return _different(f"strides {value.stride()} are not {eager.stride()}")
    if value.is_meta and eager.is_meta:  # no values to compare
        return EQUAL
    value, eager = value.detach().cpu(), eager.detach().cpu()
    if torch.equal(_bits(value), _bits(eager)):
        return EQUAL
    if not (eager.is_floating_point() or eager.is_complex()):
        return _different(f"{int((value != eager).sum())} of {eager.numel()} elements differ")
    return _distance(value, eager, reference.detach().cpu() if isinstance(reference, torch.Tensor) else None)


def _distance(value: torch.Tensor, eager: torch.Tensor, reference: torch.Tensor | None) -> Comparison:
    wide = torch.complex128 if eager.is_complex() else torch.float64
    v, e = value.to(wide), eager.to(wide)
    if not torch.equal(v.isnan(), e.isnan()):
        return _different("NaNs are in other places")
    finite = e.isfinite()
    if not torch.equal(v.isfinite(), finite) or not torch.equal(v[~finite & ~e.isnan()], e[~finite & ~e.isnan()]):
        return _different("infinities are in other places")
    v, e = v[finite], e[finite]
    if v.numel() == 0 or torch.equal(v, e):  # NaN payloads and signs of zero aside
        return EQUAL
    apart = (v - e).abs()
    scale = e.abs()
    epsilon = torch.finfo(eager.dtype).eps
    max_abs = apart.max().item()
    top = scale.max().item()
    max_rel = (apart / scale.clamp_min(max(epsilon * top, torch.finfo(eager.dtype).tiny))).max().item()
    ulp = max_abs / (epsilon * top) if top else math.inf
    if reference is not None and reference.shape != eager.shape:
        reference = None
    exact = reference is not None and wide != eager.dtype
    allowed = (SLACK_ULPS if exact else SLACK_ULPS_UNTOLD) * epsilon * top
    measured = max_abs
    why = "distance to eager"
    if reference is not None:
        r = reference.to(wide)[finite]
        measured = (v - r).abs().max().item()
        factor = FACTOR_OF_FEW if r.numel() < FEW else FACTOR
        allowed = max(factor * (e - r).abs().max().item(), allowed)
        why = "distance to float64, against eager's own" if exact else "distance to eager on perturbed inputs"
    verdict = "rounding" if measured <= allowed else "different"
    return Comparison(verdict, max_abs, max_rel, ulp, f"{why}: {measured:.3g}, allowed {allowed:.3g}")


def _different(why: str) -> Comparison:
    return Comparison("different", math.inf, math.inf, math.inf, why)


def _bits(tensor: torch.Tensor) -> torch.Tensor:
    dense = tensor.resolve_conj().resolve_neg().contiguous()
    return dense.reshape(-1).view(torch.uint8)
