"""Programs of the fuzz in eager: their results, and how far others' may be off.

How far a floating-point value may be off is measured for each program: it runs several times with every rounded result
changed (Monte Carlo arithmetic; Parker, 1997) by up to two units in the last place and eager's own distance from the
same function on float64 values; for float64, by its distance from more digits (`fuzz_exact.py`), or by the distance of
float32 from it, in units of float32. The widest deviation seen, times four, and two roundings of the largest result,
are allowed. Where no such change matters, results must be equal.

Kernels keep 16-bit floats in float32 between operators unless told to round as eager does. Then what the program gives
with float32 in the place of 16-bit floats counts as one more of those runs.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator, Sequence
from itertools import islice, product, zip_longest
from typing import Any

import torch
import torch.nn.functional as F

from .fuzz_devices import here, random_state, set_random_state
from .fuzz_exact import EXTENDED, extended
from .fuzz_operators import ACTIVATIONS, BINARY, UNARY
from .fuzz_programs import LOW, RANDOM, Call, Program, apply, kind_of, mapped, refs
from .fuzz_ways import BY_PARTS
from .fuzz_widened import widened

RUNS = 9  # runs with changed roundings
WAYS = 64  # runs, at most, with other functions in the place of some
EXACT = frozenset(
    """
    abs neg where clamp maximum minimum fmax fmin floor ceil trunc relu getitem cat stack pad to transpose permute
    reshape view expand select narrow squeeze unsqueeze flip roll diagonal movedim unfold chunk split unbind
    flatten contiguous clone detach gather index_select take embedding max min amax amin sort topk copy_ fill_
    zero_ masked_fill masked_fill_ real imag conj view_as_real tril triu scatter index_copy index_fill
    slice_scatter select_scatter positive broadcast_to tile ravel rot90 as_strided relu_ neg_ clamp_ index_fill_
    aminmax cummax cummin median one_hot hardtanh relu6 max_pool1d max_pool2d adaptive_max_pool1d
    adaptive_max_pool2d copysign nan_to_num signbit mode nanmedian kthvalue nextafter
    """.split()
)
"""Functions that round nothing: what they give is not changed."""

ELEMENTWISE = frozenset(name.rpartition(".")[2] for name in (*UNARY, *ACTIVATIONS, *BINARY))
"""Functions each of whose results comes from one element: its error says nothing about larger or smaller results."""

CHOOSING = frozenset("clamp clamp_ relu relu_ relu6 hardtanh maximum minimum max min amax amin aminmax".split())
"""Functions that choose one of their values: which bits of a NaN arrive is nobody's."""


def _finite(x: torch.Tensor, other: float) -> torch.Tensor:
    return torch.where(x.isfinite(), x.abs(), other)


def _products(x: torch.Tensor, *args: Any, **options: Any) -> torch.Tensor:
    """The largest product of some elements; infinite where the smallest becomes zero."""
    sizes = _finite(x, 1.0)
    smallest = torch.prod(torch.where(x == 0, 1.0, sizes).clamp_max(1.0), *args, **options)
    return torch.where(smallest > 0, torch.prod(sizes.clamp_min(1.0), *args, **options), torch.inf)


def _pooled(pool: Any) -> Any:
    """Sums of windows, as the means that they become."""
    return lambda x, *args: pool(_finite(x, 0.0), *args)


def _scores(query: torch.Tensor, key: torch.Tensor, *_: Any, **__: Any) -> torch.Tensor:
    """The largest score of each row of an attention."""
    scores = _finite(query, 0.0) @ _finite(key, 0.0).transpose(-2, -1)
    return scores.amax(-1, keepdim=True).expand_as(query)


POOLS = [f"{kind}avg_pool{n}d" for kind in ("", "adaptive_") for n in (1, 2, 3)]
ADDING = frozenset(("sum", "mean", "nansum", "_softmax_backward_data", "_log_softmax_backward_data", *POOLS))
"""Functions that add up: in some orders, the result is off by a rounding of the largest sum on the way."""

PARTIAL: dict[str, Any] = {
    "prod": _products,
    **{name: lambda x, *args, correction=1, **options: torch.sum(_finite(x, 0.0), *args, **options)
       for name in ("sum", "mean", "nansum", "var_mean", "std_mean", "ops.aten.var_mean.correction",
                    "ops.aten.std_mean.correction")},
    **{f"F.{pool}": _pooled(getattr(F, pool)) for pool in POOLS},
    "F.scaled_dot_product_attention": _scores,
    "ops.aten._log_softmax_backward_data":
        lambda grad, output, dim, _: torch.sum(_finite(grad, 0.0), dim, keepdim=True).expand_as(grad),
    "ops.aten._softmax_backward_data":
        lambda grad, output, dim, _: torch.sum(_finite(grad * output, 0.0), dim, keepdim=True).expand_as(grad),
}
"""The largest result on the way to the result, in the worst order: where it overflows, the order decides."""

ROUNDED_INSIDE = frozenset(("F.batch_norm",))
"""Functions whose kernel rounds 16-bit floats on the way, too: sums of squares to bfloat16."""

KEEPING = frozenset(("F.batch_norm",))
"""Functions that write to their second and third argument: running statistics."""

FROM_ONE = frozenset(("gelu", "ndtr", "log_ndtr"))
"""Functions that take a small result from 1: its error is that of results near 1."""

Errors = dict[str, list[torch.Tensor]]  # by call, for each of its results: how far eager is from float64


def execute(
    program: Program,
    inputs: Sequence[torch.Tensor],
    change: random.Random | None = None,
    errors: Errors | None = None,
    run: int = 1,
) -> list[torch.Tensor]:
    """The results on `inputs`; with `change`, every rounded value is changed a little (in `run`, as in `changed`).

    `errors` are filled where there is no `change`, and are how far results are changed where there is.
    """
    values: dict[str, Any] = dict(zip([i.name for i in program.inputs], inputs))
    for call in program.calls:
        name = call.function.rpartition(".")[2]
        exact = name in EXACT or call.function in RANDOM
        if name == "abs":  # of a complex number it rounds
            exact = not values[refs(call.args)[0].name].dtype.is_complex
        given = values
        if change is not None and not exact:
            given = {
                **values,
                **{
                    r.name: changed(values[r.name], change, None, run)
                    for r in refs((call.args, call.kwargs))
                    if not (name.endswith("_") and r is call.args[0])
                },
            }
        measured = errors is not None and change is None and not exact
        reference = precise(call, values, name in ELEMENTWISE) if measured else None
        partial = _partial(call, values) if measured else None
        values[call.name] = result = apply(call, given)
        if errors is not None and reference is not None:
            errors[call.name] = _errors(name, result, reference, partial)
        elif errors is not None and partial is not None:  # of whole numbers
            errors[call.name] = [torch.where(partial.isfinite(), 0.0, torch.inf)]
        if change is not None and call.function in KEEPING:
            for kept in refs(call.args[1:3]):
                with contextlib.suppress(RuntimeError):  # overlapping memory
                    values[kept.name].copy_(changed(given[kept.name], change, None, run))
        if change is not None and not exact:
            known = errors.get(call.name, []) if errors is not None else []
            moved = [changed(part, change, error, run) for part, error in zip_longest(_parts(result), known)]
            if not name.endswith("_"):
                values[call.name] = tuple(moved) if isinstance(result, (tuple, list)) else moved[0]
            else:
                with contextlib.suppress(RuntimeError):  # overlapping memory
                    result.copy_(moved[0])
        elif change is not None and run < 2 and name in CHOOSING and isinstance(result, torch.Tensor):
            bits: Any = torch.nan if run == 0 else mapped(call.args, given)[0].to(result.dtype)
            _give_nans(values, call.name, result, bits, name.endswith("_"))
    return [values[name] for name in program.results]


def _parts(result: Any) -> tuple[Any, ...]:
    return tuple(result) if isinstance(result, (tuple, list)) else (result,)


def _errors(
    name: str, result: Any, reference: tuple[tuple[Any, ...], float], partial: torch.Tensor | None
) -> list[torch.Tensor]:
    """How far each result of a function is off, infinite where the order of its sum or product decides."""
    exact, unit = reference
    least = 1.0 if name in FROM_ONE else 0.0
    errors = [distance(one, (other, unit), name in ELEMENTWISE, least) for one, other in zip(_parts(result), exact)]
    if partial is None:
        return errors
    if name in ADDING and kind_of(result.dtype) == "f":
        errors = [torch.maximum(error, torch.finfo(result.dtype).eps * partial.double().abs()) for error in errors]
    return [torch.where(partial.isfinite(), error, torch.inf) for error in errors]


def _partial(call: Call, values: dict[str, Any]) -> torch.Tensor | None:
    """The largest result on the way to the float that a call gives; None where nothing is known of it."""
    function = PARTIAL.get(call.function.removeprefix("torch."))
    x, *args = mapped(call.args, values)
    options = mapped(call.kwargs, values)
    dtype = options.get("dtype") or x.dtype if isinstance(x, torch.Tensor) else None
    if function is None or dtype is None or kind_of(dtype) != "f":
        return None
    made: torch.Tensor = function(x if kind_of(x.dtype) == "f" else x.to(dtype), *args, **options)
    return made


def _give_nans(values: dict[str, Any], name: str, result: torch.Tensor, bits: Any, in_place: bool) -> None:
    """The result of a call with the NaNs of `bits`, a tensor or one for all."""
    if kind_of(result.dtype) != "f":
        return
    with contextlib.suppress(RuntimeError):  # another shape, or overlapping memory
        given = torch.where(result.isnan() & torch.as_tensor(bits).isnan(), bits, result)
        if in_place:
            result.copy_(given)
        else:
            values[name] = given.view(result.shape)


def changed(value: Any, change: random.Random, error: torch.Tensor | None = None, run: int = 1) -> Any:
    """A floating-point tensor, each element up to two units in the last place and `error` off; others as they are.

    What overflowed on the way, which an infinite error says, is one of `UNKNOWN`, by the number of the run. In run
    0, what could be a whole number is: there, functions have their steps and poles. The sign of a NaN is nobody's:
    the result has another in run 0. In run 2, a NaN has all of its bits, as comparisons of vectors make
    them. In run 1, all numbers are as large as they could be: the largest become infinite.
    """
    if not isinstance(value, torch.Tensor) or kind_of(value.dtype) not in "fc":
        return value
    source = torch.Generator().manual_seed(change.randrange(2**31))
    eps = torch.finfo(value.dtype).eps
    toss = 2 * torch.rand(value.shape, generator=source, dtype=torch.float64).to(value.device) - 1
    if value.dtype.is_complex:
        return value * (1 + eps * 2 * toss).to(value.dtype)
    if run == 1:
        toss = torch.ones_like(toss).copysign(value.double())
    error = torch.zeros(()) if error is None else error
    off = toss * (2 * eps * value.double().abs() + error.nan_to_num(posinf=0.0))
    moved = torch.where(value.isfinite(), (value.double() + off).to(value.dtype), value)
    if run == 0:
        whole = value.round()
        reach = 4 * eps * value.double().abs() + 4 * error.nan_to_num(posinf=0.0)
        moved = torch.where((value.double() - whole.double()).abs() <= reach, whole, moved)
    moved = torch.where(value.isnan(), value.copysign(value.new_tensor(-1.0 if run == 0 else 1.0)), moved)
    if run == 2:
        moved = torch.where(value.isnan(), ALL_BITS[value.dtype.itemsize].view(value.dtype), moved)
    unknown = UNKNOWN[run % len(UNKNOWN)]
    return torch.where(error.isinf(), toss.to(value.dtype) if unknown is None else unknown, moved)


ALL_BITS = {dtype.itemsize: torch.tensor(-1, dtype=dtype) for dtype in (torch.int16, torch.int32, torch.int64)}
UNKNOWN = (None, 0.0, torch.inf, torch.nan, -torch.inf, 1.0, -1.0)  # None: a random number around 0


def precise(call: Call, values: dict[str, Any], elementwise: bool) -> tuple[tuple[Any, ...], float] | None:
    """The results of a call on float64 values, and the unit of errors; of float64 values, on float32 values.

    What `EXTENDED` has is done in more digits instead. Whole numbers that become floats `elementwise` count as floats.
    """
    given = {r.name: values[r.name] for r in refs((call.args, call.kwargs))}
    if not all(isinstance(v, torch.Tensor) for v in given.values()):
        return None
    kinds = "fi" if elementwise else "f"
    floats = {v.dtype for v in given.values() if kind_of(v.dtype) in kinds}
    if not floats:
        return None
    if floats == {torch.float64} and call.function in EXTENDED and not call.kwargs.get("dtype"):
        return extended(call.function, *mapped(call.args, given), **mapped(call.kwargs, given)), 1.0
    other, unit = (torch.float32, 2.0**-29) if floats == {torch.float64} else (torch.float64, 1.0)
    copies = {n: v.to(other) if kind_of(v.dtype) in kinds else v.clone() for n, v in given.items()}
    try:
        result = call.target(*mapped(call.args, copies), **mapped(call.kwargs, copies))
    except Exception:  # a function that float32 or mixed dtypes have not
        return None
    return tuple(r.clone() if isinstance(r, torch.Tensor) else r for r in _parts(result)), unit


def distance(
    result: Any, reference: tuple[Any, float], elementwise: bool, least: float = 0.0
) -> torch.Tensor:
    """For each element, the largest error among results that are no more than four times as large, or among all.

    Results below `least` count as that large.

    It is infinite where sums or squares overflowed on the way to another result. A sum may be 0.0 or -0.0.
    """
    exact, unit = reference
    if not isinstance(result, torch.Tensor) or not isinstance(exact, torch.Tensor):
        return torch.zeros(())
    if kind_of(result.dtype) != "f" or exact.shape != result.shape:
        return torch.zeros(())
    overflown = ~result.isfinite() & ~same(result, exact.to(result.dtype))
    off = (result.double() - exact.double()).abs() * unit
    off = torch.where(off.isfinite(), off, 0.0)
    if not elementwise or result.numel() == 0:
        largest = off.max() if off.numel() else off
        return torch.where(overflown, torch.inf, largest + torch.finfo(result.dtype).tiny)
    size = torch.where(result.isfinite(), result.double().abs(), 0.0).flatten().clamp_min(least)
    ordered, order = size.sort()
    largest = off.flatten()[order].cummax(0).values
    nearby = largest[torch.searchsorted(ordered, 4 * size, right=True) - 1].view(result.shape)
    return torch.where(overflown, torch.inf, nearby)


def ways(program: Program) -> Iterator[dict[str, Any]]:
    """What may stand for the functions of a program that are in `BY_PARTS`: all firsts, all seconds, and so on; then
    each way of one beside each of another."""
    targets = {call.function: call.target for call in program.calls if call.function in BY_PARTS}
    choices = [(*BY_PARTS[name], target) for name, target in targets.items()]
    for way in range(max(map(len, choices), default=1) - 1):
        yield {name: BY_PARTS[name][way % len(BY_PARTS[name])] for name in targets}
    yield from (dict(zip(targets, chosen)) for chosen in islice(product(*choices), WAYS))


def separately(program: Program, chosen: dict[str, Any]) -> list[torch.Tensor]:
    """Results and inputs of a run with other functions in the place of some, as `ways` gives them."""
    inputs = program.tensors()
    values: dict[str, Any] = dict(zip([i.name for i in program.inputs], inputs))
    for call in program.calls:
        function = chosen.get(call.function, call.target)
        values[call.name] = function(*mapped(call.args, values), **mapped(call.options(here().tensors), values))
    return [*[values[name] for name in program.results], *inputs]


def random_states(programs: Sequence[Program]) -> list[torch.Tensor | None]:
    """The state of the random numbers before each program, where they run one after the other from the first's seed."""
    states: list[torch.Tensor | None] = []
    torch.manual_seed(programs[0].seed)
    for program in programs:
        draws = any(call.function in RANDOM for call in program.calls)
        states.append(random_state() if draws else None)
        if draws:
            with torch.no_grad():
                execute(program, program.tensors())
    return states


def _drawing_from(state: torch.Tensor | None) -> None:
    if state is not None:
        set_random_state(state)


def difference(
    program: Program,
    got: Sequence[Any],
    mine: Sequence[torch.Tensor],
    rounding: str = "",
    state: torch.Tensor | None = None,
) -> str:
    """How results (None: not looked at) and inputs after the run differ from eager's.

    With `rounding` "eager", 16-bit floats must have been rounded after each operator. `state` is that of the random
    numbers before the program.
    """
    inputs = program.tensors()
    _drawing_from(state)
    with torch.no_grad():
        results = execute(program, inputs)
    spread: list[list[torch.Tensor]] = []
    named = [*zip(program.results, got, results), *zip([i.name for i in program.inputs], mine, inputs)]
    for place, (name, one, other) in enumerate(named):
        if one is None:
            continue
        if (one.dtype, one.shape) != (other.dtype, other.shape):
            return f"{name} is {one.dtype} {tuple(one.shape)}, eager {other.dtype} {tuple(other.shape)}"
        if here().tensors == here().fakes and other.numel() and strides(one) != strides(other):
            return f"{name} has strides {one.stride()}, eager {other.stride()} of {tuple(other.shape)}"
        one, other = plain(one), plain(other)
        if same(one, other).all():
            continue
        if not spread:
            wide = rounding != "eager" or any(call.function in ROUNDED_INSIDE for call in program.calls)
            spread = _spread(program, wide, state)
        bad = ~excused(one, other, [plain(run[place]).to(other.dtype) for run in spread])
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


def _spread(program: Program, wide: bool, state: torch.Tensor | None) -> list[list[torch.Tensor]]:
    """Results and inputs of runs with changed roundings."""
    runs = []
    errors: Errors = {}
    _drawing_from(state)
    with torch.no_grad():
        execute(program, program.tensors(), errors=errors)
    for number in range(RUNS):
        _drawing_from(state)
        with contextlib.suppress(Exception):  # an integer divided by what became zero
            runs.append(_changed_run(program, number, errors))
    for chosen in ways(program):
        _drawing_from(state)
        with torch.no_grad():
            runs.append(separately(program, chosen))
    if wide and any(i.dtype in LOW for i in program.inputs):
        _drawing_from(state)
        with torch.no_grad(), contextlib.suppress(Exception):  # float32 beside another dtype, where 16 bits agreed
            runs.append(widened(program))
    # A view of 16 bits in another dtype has another shape where those are 32.
    return [run for run in runs if [r.shape for r in run] == [r.shape for r in runs[0]]]


def _changed_run(program: Program, number: int, errors: Errors) -> list[torch.Tensor]:
    """Results and inputs of one run with changed roundings."""
    inputs = program.tensors()
    change = random.Random(program.seed * RUNS + number)
    with torch.no_grad():
        return [*execute(program, inputs, change, errors, number), *inputs]


def said(program: Program) -> set[str]:
    """What eager says where the random numbers of the program's seed, or changed roundings, make it raise."""
    errors: Errors = {}
    torch.manual_seed(program.seed)
    try:
        with torch.no_grad():
            execute(program, program.tensors(), errors=errors)
    except Exception as error:
        return {str(error)}
    messages = set()
    for number in range(RUNS):
        try:
            _changed_run(program, number, errors)
        except Exception as error:
            messages.add(str(error))
    return messages


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
    widest = torch.zeros(other.shape, dtype=torch.float64, device=other.device)
    wild = torch.zeros_like(fine)
    for run in spread:
        finite = run.isfinite() & other.isfinite()
        widest = torch.where(finite, torch.maximum(widest, (run.double() - other.double()).abs()), widest)
        wild |= run.isfinite() != other.isfinite()
        fine |= (run.isnan() != other.isnan()) & ~one.isfinite()  # infinities meet, or do not
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
