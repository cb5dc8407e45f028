"""Every operator of PyTorch's own operator database through the engine, against eager.

    python tests/engine/operator_sweep.py [--backward] [--only NAME ...] [--samples N] [--fast] [--together]

runs the whole sweep and prints a table: for each operator, whether all its sample inputs gave eager's results (and,
with --backward, gradients), and how: in kernels and library calls of the compiled graph, or through a fallback of the
graph to eager. A wrong result, or an exception that eager does not raise, is a failure. The samples of one operator are
compiled together as one graph, and in halves where that graph falls back or fails.
"""

from __future__ import annotations

import argparse
import collections
import itertools
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

import torch
import torch.fx
from ptdebug.artifacts.context import CompileContext
from ptdebug.engine import build as compiler
from ptdebug.engine.compile import compile_graph
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._pytree import tree_flatten, tree_leaves, tree_unflatten

UNDEFINED = frozenset(
    (
        "empty",
        "empty_like",
        "empty_permuted",
        "empty_strided",
        "new_empty",
        "new_empty_strided",
        "resize_",
        "resize_as_",
    )
)
"""Operators whose results have no defined values: shape, strides and dtype are compared."""

KINDS = {
    "kernels": "all in kernels of ours",
    "library": "compiled, with calls of ATen for some operators",
    "break": "the result depends on data, or fake tensors do not have the operator: the tracer breaks the graph there",
    "eager": "the engine gave up the graph, which runs in eager",
    "failed": "a wrong result, or an exception that eager does not raise",
}

BATCH = 24  # samples of one graph


@dataclass(frozen=True)
class Sample:
    """One call of an operator; tensors anywhere in its arguments are inputs, everything else is fixed."""

    operator: str
    number: int
    function: Callable[..., Any]
    leaves: tuple[Any, ...]
    structure: Any
    places: tuple[int, ...]
    tensors: tuple[torch.Tensor, ...]
    tracked: tuple[bool, ...] = ()  # which tensors require grad, where gradients are looked at

    def arguments(self, tensors: Sequence[Any]) -> tuple[Any, Any]:
        """(args, kwargs) of the function with something in the place of each tensor."""
        filled = list(self.leaves)
        for place, tensor in zip(self.places, tensors):
            filled[place] = tensor
        args, kwargs = tree_unflatten(filled, self.structure)
        return args, kwargs

    def call(self, *tensors: Any) -> list[Any]:
        """The results as a flat list."""
        args, kwargs = self.arguments(tensors)
        with torch.set_grad_enabled(bool(self.tracked)):
            return tree_leaves(self.function(*args, **kwargs))

    def inputs(self, dtype: torch.dtype | None = None) -> tuple[torch.Tensor, ...]:
        """New inputs, those that are tracked requiring grad; floating-point ones converted to `dtype`."""
        made = copies(self.tensors, dtype)
        for tensor, wanted in zip(made, self.tracked):
            tensor.requires_grad_(wanted)
        return made

    @property
    def name(self) -> str:
        """What a report calls it."""
        return f"{self.operator}[{self.number}]"


@dataclass(frozen=True)
class Outcome:
    """How a sample went: `kind` is one of `KINDS`."""

    sample: str
    kind: str
    why: str = ""


# ---- samples ---------------------------------------------------------------------------------------------------------
def operators(only: Sequence[str] = ()) -> list[Any]:
    """The entries of the operator database that take float32 on the CPU."""
    import torch.testing._internal.common_methods_invocations as database

    database.wrapper_set_seed = _unseeded  # random entries seed inside the call, where a compiled graph cannot
    found = [op for op in database.op_db if torch.float32 in op.dtypes and not op.name.startswith("to_sparse")]
    return [op for op in found if any(fnmatchcase(full_name(op), name) for name in only)] if only else found


def _unseeded(op: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    return op(*args, **kwargs)


def full_name(op: Any) -> str:
    """The name of an entry with its variant."""
    return f"{op.name}.{op.variant_test_name}" if op.variant_test_name else str(op.name)


def samples(op: Any, dtype: torch.dtype = torch.float32, grad: bool = False) -> Iterator[Sample]:
    """The sample inputs of an entry, each as a function of tensors."""
    torch.manual_seed(0)
    for number, given in enumerate(op.sample_inputs("cpu", dtype, requires_grad=grad)):
        yield sample_of(op.op, full_name(op), number, (given.input, *given.args), given.kwargs)


def sample_of(function: Callable[..., Any], name: str, number: int, args: tuple[Any, ...], kwargs: Any) -> Sample:
    """A call as a `Sample`: tensors anywhere in the arguments become inputs, everything else is fixed."""
    leaves, structure = tree_flatten((args, kwargs))
    places = tuple(i for i, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor))
    tensors = copies([leaves[i].detach() for i in places])  # the database changes some after it has given them
    tracked = tuple(leaves[i].requires_grad for i in places)
    return Sample(name, number, function, tuple(leaves), structure, places, tensors, tracked if any(tracked) else ())


def copies(tensors: Sequence[torch.Tensor], dtype: torch.dtype | None = None) -> tuple[torch.Tensor, ...]:
    """Copies with the same strides and offsets, those that share memory sharing it again.

    With `dtype`, floating-point tensors are converted to it.
    """
    storages: dict[tuple[int, torch.dtype], torch.Tensor] = {}
    made = []
    for t in tensors:
        if t.layout is not torch.strided or t.is_quantized:
            made.append(t.clone())
            continue
        key = (t.untyped_storage()._cdata, t.dtype)
        if key not in storages:
            count = t.untyped_storage().nbytes() // t.element_size()
            flat = t.as_strided((count,), (1,), 0).clone()
            wide = dtype is not None and t.dtype.is_floating_point
            storages[key] = flat.to(dtype) if wide else flat
        made.append(storages[key].as_strided(t.shape, t.stride(), t.storage_offset()))
    return tuple(made)


# ---- running ---------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Reference:
    """What eager gives: results, inputs after the call, gradients, and results and gradients on float64 inputs."""

    results: list[Any]
    inputs: tuple[torch.Tensor, ...]
    gradients: list[Any]
    exact: list[Any] | None


def reference(sample: Sample) -> Reference | None:
    """Eager's results; None where eager raises."""
    inputs = sample.inputs()
    try:
        torch.manual_seed(1)
        results = sample.call(*inputs)
        found = gradients(results, inputs)
    except Exception:
        return None
    try:
        wide = sample.inputs(torch.float64)
        exact = sample.call(*wide)
        exact += gradients(exact, wide)
    except Exception:
        exact = None
    return Reference(results, inputs, found, exact)


def gradients(results: Sequence[Any], inputs: Sequence[torch.Tensor]) -> list[Any]:
    """Gradients of the inputs that require grad, for fixed gradients of the results."""
    wanted = [t for t in inputs if t.requires_grad]
    made = [r for r in results if isinstance(r, torch.Tensor) and r.requires_grad and not any(r is t for t in inputs)]
    if not wanted or not made:
        return []
    source = torch.Generator().manual_seed(2)
    tangents = []
    for r in made:
        values = torch.randn(r.shape, generator=source, dtype=torch.complex128 if r.is_complex() else torch.float64)
        tangents.append(values.to(r.dtype))
    return list(torch.autograd.grad(made, wanted, tangents, allow_unused=True))


def previewed(sample: Sample, mode: FakeTensorMode) -> list[Any]:
    """The results on fake tensors, as the tracer would find them; raises where it would break the graph."""
    fakes = [mode.from_tensor(t, static_shapes=True) for t in sample.inputs()]
    with mode:
        return sample.call(*fakes)


def captured(group: Sequence[Sample]) -> Any:
    """The samples side by side as one captured graph."""
    mode = FakeTensorMode()
    graph = torch.fx.Graph()
    fakes, outputs = [], []
    for position, sample in enumerate(group):
        nodes = [graph.placeholder(f"x{position}_{i}") for i in range(len(sample.tensors))]
        mine = [mode.from_tensor(t, static_shapes=True) for t in sample.inputs()]
        for node, fake in zip(nodes, mine):
            node.meta["val"] = fake
        fakes += mine
        args, kwargs = sample.arguments(nodes)
        made = graph.call_function(sample.function, tuple(args), kwargs)
        for i, result in enumerate(previewed(sample, mode)):
            outputs.append(graph.call_function(_leaf, (made, i)))
            outputs[-1].meta["val"] = result
    graph.output(tuple(outputs))
    return Captured(torch.fx.GraphModule({}, graph), tuple(fakes), any(sample.tracked for sample in group))


def _leaf(results: Any, position: int) -> Any:
    return tree_leaves(results)[position]


@dataclass(frozen=True)
class Captured:
    """The part of a captured graph that the engine reads."""

    module: torch.fx.GraphModule
    inputs: tuple[Any, ...]
    grad_enabled: bool = False


class Calls:
    """A recorder that keeps which operators were left to ATen, and why."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *args: None

    def decision(self, compile_id: str, decision: Any) -> None:
        """Keep the reasons of library calls."""
        if decision.kind == "fallback":
            self.calls.append(decision.why)


def run(group: Sequence[Sample], expected: Sequence[Reference]) -> list[Outcome]:
    """Compile the samples as one graph, run it, and compare; one by one where that does not work."""
    recorder = Calls()
    context = CompileContext(recorder=recorder, recording=True)  # type: ignore[arg-type]
    compiled = compile_graph(captured(group), context)
    if context.fallback and len(group) > 1:
        half = len(group) // 2
        return run(group[:half], expected[:half]) + run(group[half:], expected[half:])
    inputs = [sample.inputs() for sample in group]
    try:
        torch.manual_seed(1)
        with torch.set_grad_enabled(any(sample.tracked for sample in group)):
            results = iter(compiled(*[t for tensors in inputs for t in tensors]))
    except Exception as error:
        return _apart(group, expected, f"raised {type(error).__name__}: {error}")
    outcomes = []
    for sample, known, mine in zip(group, expected, inputs):
        got = [next(results) for _ in known.results]
        why = difference(sample, known, got, mine)
        if why and len(group) > 1:  # random numbers depend on what else runs
            outcomes += run([sample], [known])
        elif why:
            outcomes.append(Outcome(sample.name, "failed", why))
        elif context.fallback:
            outcomes.append(Outcome(sample.name, "eager", context.fallback.partition("\n")[0]))
        else:
            calls = "; ".join(dict.fromkeys(recorder.calls))
            outcomes.append(Outcome(sample.name, "library" if calls else "kernels", calls))
    return outcomes


def _apart(group: Sequence[Sample], expected: Sequence[Reference], why: str) -> list[Outcome]:
    if len(group) == 1:
        return [Outcome(group[0].name, "failed", why)]
    return [outcome for sample, known in zip(group, expected) for outcome in run([sample], [known])]


# ---- comparing -------------------------------------------------------------------------------------------------------
def difference(sample: Sample, known: Reference, got: Sequence[Any], inputs: Sequence[torch.Tensor]) -> str:
    """How results and changed inputs differ from eager's; "" where they agree."""
    if len(got) != len(known.results):
        return f"{len(got)} results, eager has {len(known.results)}"
    undefined = sample.operator.partition(".")[0] in UNDEFINED
    for i, (one, other) in enumerate(zip(got, known.results)):
        exact = known.exact[i] if known.exact is not None and i < len(known.exact) else None
        if isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor):
            if known.gradients and one.requires_grad != other.requires_grad:
                return f"result {i}: requires_grad {one.requires_grad}, eager {other.requires_grad}"
            one, other = one.detach(), other.detach()
        why = differs(one, other, exact, undefined, _summed(other, inputs))
        if not why and isinstance(other, torch.Tensor):
            why = _aliases(one, other, inputs, known.inputs)
        if why:
            return f"result {i}: {why}"
    for i, (one, other) in enumerate(zip(inputs, known.inputs)):
        why = differs(one.detach(), other.detach(), None, undefined)
        if why:
            return f"input {i} after the call: {why}"
    return _gradients_differ(known, got, inputs)


def _summed(result: Any, inputs: Sequence[torch.Tensor]) -> float:
    """The size of the terms of a result that has fewer elements than an input: a sum may cancel to less than those."""
    floats = [t.detach() for t in inputs if t.dtype.is_floating_point and t.layout is torch.strided and t.numel()]
    if not isinstance(result, torch.Tensor) or all(result.numel() >= t.numel() for t in floats):
        return 0.0
    return max(float(torch.nan_to_num(t, 0.0, 0.0, 0.0).abs().max()) for t in floats)


def _gradients_differ(known: Reference, got: Sequence[Any], inputs: Sequence[torch.Tensor]) -> str:
    try:
        mine = gradients(got, inputs)
    except Exception as error:
        return f"backward raised {type(error).__name__}: {error}"
    if len(mine) != len(known.gradients):
        return f"{len(mine)} gradients, eager has {len(known.gradients)}"
    for i, (one, other) in enumerate(zip(mine, known.gradients)):
        place = len(known.results) + i
        exact = known.exact[place] if known.exact is not None and place < len(known.exact) else None
        if isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor) and one.layout is torch.strided:
            one = one.contiguous()  # whoever keeps a gradient chooses its layout
            other = other.contiguous() if other.layout is torch.strided else other
        if other is None and isinstance(one, torch.Tensor) and not one.any():
            continue  # zeros, where eager says that nothing depends on it
        why = differs(one, other, exact, scale=1.0)  # what comes back is of the order of one
        if why:
            return f"gradient {i}: {why}"
    return ""


def _aliases(
    one: torch.Tensor,
    other: torch.Tensor,
    mine: Sequence[torch.Tensor],
    eagers: Sequence[torch.Tensor],
) -> str:
    if other.layout is not torch.strided:
        return ""
    for i, (a, b) in enumerate(zip(mine, eagers)):
        if b.layout is torch.strided and _shares(one, a) != _shares(other, b):
            return f"shares memory with input {i}: {_shares(one, a)}, eager {_shares(other, b)}"
    return ""


def _shares(a: torch.Tensor, b: torch.Tensor) -> bool:
    return bool(a.untyped_storage().nbytes()) and a.untyped_storage().data_ptr() == b.untyped_storage().data_ptr()


def differs(one: Any, other: Any, exact: Any, undefined: bool = False, scale: float = 0.0) -> str:
    """How a result differs from eager's: type, dtype, shape, strides, values; "" where it does not.

    Floating-point values may be as far from `exact` as twice eager's largest error, and four roundings of the value and
    one of a value of the size `scale`; without `exact` they may differ by a relative 1e-5.
    """
    exact = exact.detach() if isinstance(exact, torch.Tensor) else None
    if not isinstance(other, torch.Tensor) or not isinstance(one, torch.Tensor):
        same = type(one) is type(other) and (one == other or (one != one and other != other))
        return "" if same else f"{one!r}, eager {other!r}"
    if (one.dtype, one.shape, one.layout) != (other.dtype, other.shape, other.layout):
        return f"{one.dtype} {tuple(one.shape)}, eager {other.dtype} {tuple(other.shape)}"
    if (one.is_conj(), one.is_neg()) != (other.is_conj(), other.is_neg()):
        return "lazily conjugated or negated, or not, unlike eager's"
    if other.layout is not torch.strided or other.is_quantized:
        same = torch.equal(one.to_dense(), other.to_dense()) if not other.is_quantized else torch.equal(one, other)
        return "" if same else "values of a sparse or quantized tensor"
    if other.numel() == 0 or undefined:
        return ""
    if [s for s, n in zip(one.stride(), one.shape) if n > 1] != [
        s for s, n in zip(other.stride(), other.shape) if n > 1
    ]:
        return f"strides {one.stride()}, eager {other.stride()} of {tuple(other.shape)}"
    if other.dtype.is_complex:
        one, other = torch.view_as_real(one.resolve_conj()), torch.view_as_real(other.resolve_conj())
        exact = (
            torch.view_as_real(exact.resolve_conj()) if isinstance(exact, torch.Tensor) and exact.is_complex() else None
        )
    if not other.dtype.is_floating_point:
        return "" if torch.equal(one, other) else f"{_first_difference(one, other)}"
    if torch.equal(torch.nan_to_num(one), torch.nan_to_num(other)) and torch.equal(one.isnan(), other.isnan()):
        return ""
    if not isinstance(exact, torch.Tensor) or exact.shape != other.shape or not exact.is_floating_point():
        close = torch.isclose(one.double(), other.double(), rtol=1e-5, atol=1e-6, equal_nan=True)
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


# ---- the sweep -------------------------------------------------------------------------------------------------------
Pair = tuple[Sample, Reference]


def prepared(op: Any, limit: int = 0, backward: bool = False) -> tuple[list[Pair], list[Outcome]]:
    """The samples of an operator (the first `limit` where given) that eager runs, and those where tracers break."""
    wanted = (s for s in samples(op, grad=backward) if bool(s.tracked) == backward)
    pairs, breaks = [], []
    for sample in itertools.islice(wanted, limit or None):
        known = reference(sample)
        if known is None:
            continue
        try:
            previewed(sample, FakeTensorMode())
            pairs.append((sample, known))
        except Exception as error:  # whatever fake tensors refuse, the tracer leaves to eager
            first_line = str(error).partition("\n")[0]
            breaks.append(Outcome(sample.name, "break", f"{type(error).__name__}: {first_line}"))
    return pairs, breaks


def sweep(op: Any, limit: int = 0, backward: bool = False) -> list[Outcome]:
    """How the samples of an operator go, with gradients where asked for."""
    pairs, outcomes = prepared(op, limit, backward)
    for start in range(0, len(pairs), BATCH):
        samples_of, known = zip(*pairs[start : start + BATCH])
        outcomes += run(samples_of, known)
    return outcomes


def sweep_together(ops: Sequence[Any], limit: int, backward: bool) -> Iterator[tuple[str, list[Outcome]]]:
    """(operator, outcomes) where the samples of several operators share a graph: faster, but what is in kernels and
    what calls ATen is not told apart by operator."""
    waiting: list[Pair] = []
    done: dict[str, list[Outcome]] = {}
    for number, op in enumerate(ops):
        pairs, done[full_name(op)] = prepared(op, limit, backward)
        waiting += pairs
        if len(waiting) >= BATCH or number == len(ops) - 1:
            for outcome in run(*zip(*waiting)) if waiting else ():
                done[outcome.sample.rpartition("[")[0]].append(outcome)
            yield from done.items()
            waiting, done = [], {}


def verdict(outcomes: Sequence[Outcome]) -> str:
    """The worst kind among the outcomes of an operator."""
    return max((o.kind for o in outcomes), key=list(KINDS).index, default="no samples")


def outcomes_of(ops: Sequence[Any], arguments: argparse.Namespace) -> Iterator[tuple[str, list[Outcome]]]:
    """(operator, outcomes) of each."""
    if arguments.together:
        yield from sweep_together(ops, arguments.samples, arguments.backward)
        return
    for op in ops:
        try:
            yield full_name(op), sweep(op, arguments.samples, arguments.backward)
        except Exception:
            yield full_name(op), [Outcome(full_name(op), "failed", traceback.format_exc().strip())]


def differentiable(op: Any) -> bool:
    """Whether eager has gradients for an entry, in float32."""
    return bool(op.supports_autograd) and torch.float32 in op.supported_backward_dtypes("cpu")


def main() -> int:
    """Run the sweep and print its table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--only", nargs="*", default=(), help="names of operators, or patterns of them")
    parser.add_argument("--samples", type=int, default=0, help="at most this many of each operator")
    parser.add_argument("--fast", action="store_true", help="let g++ optimize nothing, which takes a third of the time")
    parser.add_argument("--together", action="store_true", help="several operators in one graph")
    parser.add_argument("--backward", action="store_true", help="gradients, too, of what has them")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    if arguments.fast:
        compiler.FLAGS = tuple("-O0" if flag == "-O2" else flag for flag in compiler.FLAGS)
    counts: collections.Counter[str] = collections.Counter()
    reasons: collections.Counter[str] = collections.Counter()
    start = time.time()
    ops = [op for op in operators(arguments.only) if not arguments.backward or differentiable(op)]
    for name, outcomes in outcomes_of(ops, arguments):
        kind = verdict(outcomes)
        counts[kind] += 1
        worst = [o for o in outcomes if o.kind == kind]
        first = f"{worst[0].sample} {worst[0].why}" if worst else ""
        note = "" if kind == "kernels" else f"{len(worst)} of {len(outcomes)}: {first}"
        print(f"{kind:10} {name:45} {note}", flush=True)
        reasons.update({o.why for o in outcomes if o.kind == "eager"})
    print(f"\n{dict(counts)} in {time.time() - start:.0f} s")
    for why, count in reasons.most_common():
        print(f"  eager in {count} operators: {why}")
    return 1 if counts["failed"] else 0


if __name__ == "__main__":
    sys.exit(main())
