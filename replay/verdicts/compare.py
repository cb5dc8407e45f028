"""The verdict on two values: equal, different by rounding only, or different.

Rounding is judged against a float64 reference, if there is one: a result may be `FACTOR` times as far from it as
eager's, measured over the whole tensor, because two valid summation orders disagree element by element. The largest of
a few such distances is mostly chance, so a small tensor may be `FACTOR_OF_FEW` times as far. Without a reference, the
distance to eager counts. For float64 results, the reference is eager run on inputs moved by a unit in the last place,
which shows how much cancellation amplifies rounding.

Eager's own distance is one draw of a random number, and in a deep graph a few early roundings move all elements of a
result together: then one draw says little. So what is too far by this rule is held against several more draws before
anybody calls it a bug (`judge`): eager with each operation rounded at random.
"""
from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from .nonfinite import examined

FACTOR = 2.0
FACTOR_OF_FEW = 4.0
FEW = 64
"""Elements. Where errors are normal, the largest of 16 is over twice another largest of 16 once in 55 draws, over four
times once in 20,000; of 64 it is over twice once in 700."""
SLACK_ULPS = 4.0
"""Below this many units in the last place of the largest magnitude, a distance counts as rounding in any case."""
SLACK_ULPS_UNTOLD = 1e3
"""The same where no more exact reference says how far eager itself is off."""
MOST_UNTOLD = 0.05
"""And at most this share of the largest magnitude: in bfloat16 and float16, units in the last place are large."""

DRAWS = 8
"""Runs of eager with random rounding."""
FACTOR_OF_DRAWS = 6.0
"""Times their root mean square distance that a result may be off: a Student's t of 8 degrees of freedom is beyond 6
once in 3,000 draws."""

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
    kind: str = ""  # the class of the difference (`classes.py`); "" where the verdict says it
    explanation: str = ""  # how that was proven

    @property
    def classified(self) -> str:
        """The class: equal, rounding and bug where nothing more was found out."""
        return self.kind or {"different": "bug"}.get(self.verdict, self.verdict)


EQUAL = Comparison("equal")


def worst(comparisons: list[Comparison]) -> Comparison:
    """The comparison with the worst verdict; among equals the largest relative difference. EQUAL for none."""
    return max(comparisons, key=lambda c: (ORDER.index(c.verdict), c.max_rel), default=EQUAL)


def compare(value: Any, eager: Any, reference: Any = None) -> Comparison:
    """Compare `value` with eager's; `reference` is the same in float64, or None.

    Shape, dtype and strides must agree; NaNs must be in the same places, infinities equal.
    """
    if isinstance(value, float) and isinstance(eager, float):
        dtype = _read_out_of(value, eager)
        value, eager, reference = _as_tensor(value, dtype), _as_tensor(eager, dtype), _as_tensor(reference)
    if not isinstance(eager, torch.Tensor) or not isinstance(value, torch.Tensor):
        same = type(value) is type(eager) and (value == eager or (value != value and eager != eager))
        return EQUAL if same else _different(f"{value!r} is not {eager!r}")
    if value.dtype != eager.dtype or value.shape != eager.shape:
        return _different(f"{value.dtype}{list(value.shape)} is not {eager.dtype}{list(eager.shape)}")
    if _strides(value) != _strides(eager) and value.numel() > 1:
        return _different(f"strides {value.stride()} are not {eager.stride()}")
    if value.is_meta and eager.is_meta:  # no values to compare
        return EQUAL
    value, eager = value.detach().cpu(), eager.detach().cpu()
    if torch.equal(_bits(value), _bits(eager)):
        return EQUAL
    if not (eager.is_floating_point() or eager.is_complex()):
        return _different(f"{int((value != eager).sum())} of {eager.numel()} elements differ")
    return _distance(value, eager, reference.detach().cpu() if isinstance(reference, torch.Tensor) else None)


def judge(
    found: Comparison, value: Any, eager: Any, reference: Any, draws: Sequence[Any], undrawn: Any = None
) -> Comparison:
    """`found`, or rounding where `draws`, the same value of eager with each operation rounded at random, are about as
    far off: in distance, or, of numbers that jump (comparisons, indices, an overflow), at the same places. `undrawn` is
    the value of the graph that was drawn, if it is not eager's: draws say how far rounding moves that."""
    if isinstance(value, float) and isinstance(eager, float):
        dtype = _read_out_of(value, eager)
        value, eager, undrawn, *draws = (_as_tensor(number, dtype) for number in (value, eager, undrawn, *draws))
        reference = _as_tensor(reference)
    drawn = [draw for draw in draws if isinstance(draw, torch.Tensor) and isinstance(eager, torch.Tensor)
             and draw.shape == eager.shape and draw.dtype == eager.dtype]
    if found.verdict != "different" or not drawn or not _alike(value, eager):
        return found
    value, eager, drawn = value.detach().cpu(), eager.detach().cpu(), [draw.detach().cpu() for draw in drawn]
    center = eager if not isinstance(undrawn, torch.Tensor) or undrawn.shape != eager.shape else undrawn.detach().cpu()
    exact = _exact(eager, reference)
    moved = torch.stack([_apart(draw, center) for draw in drawn]).any(0)
    keep = examined(eager).isfinite()
    if not (eager.is_floating_point() or eager.is_complex()) or found.max_abs == math.inf:
        jumped = _apart(value, eager)
        if bool((jumped & ~moved).any()):
            return found
        why = f"all elements that differ are among {int(moved.sum())} of {eager.numel()} that rounding decides in eager"
        if compare(value[~jumped], eager[~jumped], exact[~jumped]).verdict != "different":
            return replace(found, verdict="rounding", explanation=why)
        keep &= ~jumped
    wide = torch.complex128 if eager.is_complex() else torch.float64
    pairs = [(value, exact), (eager, exact), *((draw, center) for draw in drawn)]
    distances = [_furthest((one.to(wide) - other.to(wide))[keep].abs()) for one, other in pairs]
    spread = math.sqrt(sum(d * d for d in distances[1:]) / len(distances[1:]))
    if not distances[0] <= FACTOR_OF_DRAWS * spread:
        return found
    why = (f"eager itself is off by {spread:.3g} (root mean square of {len(distances) - 1} runs) where each of its "
           f"operations rounds at random; this by {distances[0]:.3g}")
    return replace(found, verdict="rounding", explanation=why)


def _read_out_of(*numbers: float) -> torch.dtype:
    """The dtype of the tensor that numbers were read out of: Python has floats of 64 bits only."""
    narrow = torch.tensor(numbers, dtype=torch.float64).to(torch.float32).tolist()
    is_narrow = all(a == b or b != b for a, b in zip(narrow, numbers))
    return torch.float32 if is_narrow else torch.float64


def _as_tensor(number: Any, dtype: torch.dtype = torch.float64) -> Any:
    return torch.tensor(number, dtype=dtype) if isinstance(number, float) else number


def _furthest(distances: torch.Tensor) -> float:
    """The largest that is finite."""
    return distances[distances.isfinite()].max().item() if bool(distances.isfinite().any()) else 0.0


def _exact(eager: torch.Tensor, reference: Any) -> torch.Tensor:
    """The float64 reference; eager's own values where it has none, or none that is finite: in float64 as well, a number
    may lie just outside of where a function is defined."""
    if not isinstance(reference, torch.Tensor) or reference.shape != eager.shape:
        return eager
    wide = torch.complex128 if eager.is_complex() else torch.float64
    reference = reference.detach().cpu().to(wide)
    return torch.where(reference.isfinite(), reference, eager.to(wide))


def _alike(value: Any, eager: torch.Tensor) -> bool:
    return (isinstance(value, torch.Tensor) and value.shape == eager.shape and value.dtype == eager.dtype
            and value.stride() == eager.stride() and not eager.is_meta)


def _apart(one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    """Where two tensors differ in kind: other integers, or one NaN or infinite and the other not."""
    if not (one.is_floating_point() or one.is_complex()):
        return one != other
    one, other = examined(one), examined(other)
    return (one.isnan() != other.isnan()) | (one.isinf() != other.isinf()) | (one.isinf() & (one != other))


def worst_place(value: torch.Tensor, eager: torch.Tensor) -> tuple[int, ...]:
    """The index of the element that differs most; of those that are NaN in one alone, the first."""
    value, eager = value.detach().cpu(), eager.detach().cpu()
    if value.shape != eager.shape or not value.numel():
        return ()
    wide = torch.complex128 if eager.is_complex() or value.is_complex() else torch.float64
    apart = (value.to(wide) - eager.to(wide)).abs().reshape(-1)
    apart = torch.where(_apart(value, eager).reshape(-1), math.inf, apart.nan_to_num(0.0))
    return tuple(int(i) for i in torch.unravel_index(apart.argmax(), eager.shape))


def _strides(tensor: torch.Tensor) -> tuple[int, ...]:
    """Those that count: where a dimension has size 1, any stride leads to the same place."""
    return tuple(stride for size, stride in zip(tensor.shape, tensor.stride()) if size != 1)


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
    allowed = min(SLACK_ULPS if exact else SLACK_ULPS_UNTOLD, max(MOST_UNTOLD / epsilon, SLACK_ULPS)) * epsilon * top
    measured = max_abs
    why = "distance to eager"
    if reference is not None:
        r = _exact(eager, reference)[finite]
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
