"""Programs of the fuzz in eager: their results, and how far others' may be off.

How far a floating-point value may be off is measured for each program: it runs several times with every rounded result
changed by up to two units in the last place (Monte Carlo arithmetic; Parker, 1997), and the widest deviation seen,
times four, and two roundings of the largest result, are allowed. Where no such change matters, results must be equal.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Sequence
from typing import Any

import torch

from .fuzz_programs import Program, apply, kind_of, refs

RUNS = 8  # runs with changed roundings
EXACT = frozenset(
    """
    abs neg where clamp maximum minimum fmax fmin floor ceil trunc relu getitem cat stack pad to transpose permute
    reshape view expand select narrow squeeze unsqueeze flip roll diagonal movedim unfold chunk split unbind
    flatten contiguous clone detach gather index_select take embedding max min amax amin sort topk copy_ fill_
    zero_ masked_fill masked_fill_ real imag conj view_as_real tril triu scatter index_copy index_fill
    slice_scatter select_scatter positive broadcast_to tile ravel rot90 as_strided relu_ neg_ clamp_ index_fill_
    aminmax cummax cummin median one_hot hardtanh relu6 max_pool1d max_pool2d adaptive_max_pool1d
    adaptive_max_pool2d copysign nan_to_num signbit
    """.split()
)
"""Functions that round nothing: what they give is not changed."""


def execute(
    program: Program, inputs: Sequence[torch.Tensor], change: random.Random | None = None
) -> list[torch.Tensor]:
    """The results on `inputs`; with `change`, every rounded value is changed a little."""
    values: dict[str, Any] = dict(zip([i.name for i in program.inputs], inputs))
    for call in program.calls:
        name = call.function.rpartition(".")[2]
        exact = name in EXACT
        given = values
        if change is not None and not exact:
            given = {
                **values,
                **{
                    r.name: changed(values[r.name], change)
                    for r in refs((call.args, call.kwargs))
                    if not (name.endswith("_") and r is call.args[0])
                },
            }
        values[call.name] = result = apply(call, given)
        if change is not None and not exact and isinstance(result, torch.Tensor):
            if name.endswith("_"):
                with contextlib.suppress(RuntimeError):  # overlapping memory
                    result.copy_(changed(result, change))
            else:
                values[call.name] = changed(result, change)
    return [values[name] for name in program.results]


def changed(value: Any, change: random.Random) -> Any:
    """A floating-point tensor with each element up to two units in the last place off; others as they are."""
    if not isinstance(value, torch.Tensor) or kind_of(value.dtype) not in "fc":
        return value
    source = torch.Generator().manual_seed(change.randrange(2**31))
    eps = torch.finfo(value.dtype).eps
    factor = 1 + eps * 2 * (2 * torch.rand(value.shape, generator=source, dtype=torch.float64) - 1)
    if value.dtype.is_complex:
        return value * factor.to(value.dtype)
    return torch.where(value.isfinite(), (value.double() * factor).to(value.dtype), value)


def difference(program: Program, got: Sequence[Any], mine: Sequence[torch.Tensor]) -> str:
    """How results (None: not looked at) and inputs after the run differ from eager's."""
    inputs = program.tensors()
    with torch.no_grad():
        results = execute(program, inputs)
    spread: list[list[torch.Tensor]] = []
    named = [*zip(program.results, got, results), *zip([i.name for i in program.inputs], mine, inputs)]
    for place, (name, one, other) in enumerate(named):
        if one is None:
            continue
        if (one.dtype, one.shape) != (other.dtype, other.shape):
            return f"{name} is {one.dtype} {tuple(one.shape)}, eager {other.dtype} {tuple(other.shape)}"
        if other.numel() and strides(one) != strides(other):
            return f"{name} has strides {one.stride()}, eager {other.stride()} of {tuple(other.shape)}"
        one, other = plain(one), plain(other)
        if same(one, other).all():
            continue
        if not spread:
            spread = _spread(program)
        bad = ~excused(one, other, [plain(run[place]) for run in spread])
        if bad.any():
            return f"{name} {_worst(one, other, bad)}"
    return _shared(program, got, mine, results, inputs)


def strides(tensor: torch.Tensor) -> list[int]:
    """The strides that matter."""
    return [s for s, n in zip(tensor.stride(), tensor.shape) if n > 1]


def plain(tensor: torch.Tensor) -> torch.Tensor:
    """Complex numbers as pairs."""
    return torch.view_as_real(tensor.resolve_conj()) if tensor.dtype.is_complex else tensor.resolve_neg()


def same(one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    """Where two tensors agree: NaN equals NaN, and 0.0 is not -0.0."""
    if not one.dtype.is_floating_point:
        return one == other
    return ((one == other) & (torch.signbit(one) == torch.signbit(other))) | (one.isnan() & other.isnan())


def _spread(program: Program) -> list[list[torch.Tensor]]:
    """Results and inputs of runs with changed roundings."""
    runs = []
    for number in range(RUNS):
        inputs = program.tensors()
        with torch.no_grad(), contextlib.suppress(Exception):  # an integer divided by what became zero
            runs.append([*execute(program, inputs, random.Random(program.seed * RUNS + number)), *inputs])
    return runs


def excused(one: torch.Tensor, other: torch.Tensor, spread: Sequence[torch.Tensor]) -> torch.Tensor:
    """Where a difference is one that changed roundings make, too."""
    fine = same(one, other)
    for run in spread:
        fine |= same(one, run)
    if not one.dtype.is_floating_point:
        deviates = torch.zeros_like(fine)
        for run in spread:
            deviates |= run != other
        return fine | deviates
    widest = torch.zeros(other.shape, dtype=torch.float64)
    wild = torch.zeros_like(fine)
    for run in spread:
        finite = run.isfinite() & other.isfinite()
        widest = torch.where(finite, torch.maximum(widest, (run.double() - other.double()).abs()), widest)
        wild |= run.isfinite() != other.isfinite()
    info = torch.finfo(other.dtype)
    largest = torch.nan_to_num(other.double(), 0.0, 0.0, 0.0).abs().max()
    inside = torch.where(widest > 0, 2 * info.eps * largest, 0.0)  # of sums inside a function, which nothing changed
    return fine | wild | ((one.double() - other.double()).abs() <= 4 * widest + inside + info.tiny)


def _worst(one: torch.Tensor, other: torch.Tensor, bad: torch.Tensor) -> str:
    at = tuple(bad.nonzero()[0].tolist())
    return f"is {one[at].item()!r} at {list(at)}, eager {other[at].item()!r} ({int(bad.sum())} of {bad.numel()} differ)"


def _shared(
    program: Program,
    got: Sequence[Any],
    mine: Sequence[torch.Tensor],
    results: Sequence[torch.Tensor],
    inputs: Sequence[torch.Tensor],
) -> str:
    names = [*program.results, *[i.name for i in program.inputs]]
    ours, eagers = [*got, *mine], [*results, *inputs]
    for i in range(len(results)):
        for j in range(i + 1, len(names)):
            if ours[i] is None or ours[j] is None or not eagers[i].numel() or not eagers[j].numel():
                continue
            if _one_storage(ours[i], ours[j]) != _one_storage(eagers[i], eagers[j]):
                verb = "shares" if _one_storage(ours[i], ours[j]) else "does not share"
                return f"{names[i]} {verb} memory with {names[j]}, unlike in eager"
    return ""


def _one_storage(a: torch.Tensor, b: torch.Tensor) -> bool:
    return a.untyped_storage().data_ptr() == b.untyped_storage().data_ptr()
