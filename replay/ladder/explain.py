"""Why a lowered stage differs from eager: each suspicion is tested by running again without what is suspected."""
from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch

from ...engine.ir.ir import ExternCall, LoopBody
from ..recorded.state import deterministic
from ..verdicts import classes
from ..verdicts.compare import Comparison, worst
from .reference import Reference, comparable, like
from .regenerate import Collector
from .rungs import Execution

RunVariant = Callable[[Any, Mapping[str, Any] | None], Execution]
"""Runs a stage of the given work, with values for the results of random operators."""

ROUNDED_AS_EAGER = {"*intermediate-precision:*": "eager"}
"""The decision that has each 16-bit operation of a fused kernel round as in eager."""


def explained(
    found: Comparison, reference: Reference, work: Any, run: RunVariant, collector: Collector,
    variant: Callable[[Mapping[str, str]], Any], random: Mapping[str, Any],
) -> Comparison:
    """`found`, a difference of a lowered stage or a large rounding, with its class where it can be proven. `random` are
    the values that the results of random operators have in eager, by buffer."""
    if random and found.verdict == "different" and _agrees(reference, lambda: run(work, random)):
        why = (f"with eager's random numbers in place of those of {', '.join(sorted(random))} the results agree: "
               "random operators ran in another order, or from another state")
        return dataclasses.replace(found, kind=classes.RANDOM, explanation=why)
    if any(d.kind == "intermediate-precision" and d.chosen == "float32" for d in collector.decisions) and _agrees(
            reference, lambda: run(variant(ROUNDED_AS_EAGER), None)):
        why = ("fused operations keep float32 between them, where eager rounds each result to 16 bits: generated again "
               "with these roundings (intermediate-precision = eager), the results agree")
        return dataclasses.replace(found, verdict="rounding", kind=classes.ELIDED, explanation=why)
    reductions = _reductions(work) if found.verdict == "rounding" else []
    if reductions and _agrees(reference, lambda: run(variant({f"*lowering:{n}": "extern" for n in reductions}), None)):
        why = f"with ATen's own reductions in place of {', '.join(reductions[:4])} it is gone; {found.explanation}"
        return dataclasses.replace(found, kind=classes.ORDER, explanation=why)
    return found


def _reductions(work: Any) -> list[str]:
    """The ATen nodes that loop bodies reduce for."""
    parts = [getattr(work, half) for half in ("forward", "backward") if hasattr(work, half)] or [work]
    steps = [step for part in parts if hasattr(part, "program") for step in part.program.steps]
    statements = [s for step in steps if isinstance(step, LoopBody) for s in step.statements]
    return list(dict.fromkeys(s.origins[0] for s in statements if s.op == "reduce" and s.origins))


def _agrees(reference: Reference, run: Callable[[], Execution]) -> bool:
    """Whether a run is as close to eager as one may be without further proof."""
    try:
        with deterministic():
            ran = run()
    except Exception:  # what cannot be tried proves nothing
        return False
    found = reference.observed(ran)
    return worst(found).verdict != "different" and not any(comparison.explanation for comparison in found)


def random_results(steps: Any, nodes: Reference, values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """What results of random operators are in eager, by buffer, if any of them is something else in `values`."""
    found, differ = {}, False
    for step in steps:
        for name, node in _random_buffers(step):
            expected: Any = nodes.eager.values.get(node)
            value: Any = values.get(prefix + name)
            if comparable(value, expected):
                found[name] = like(expected, value)
                differ = differ or not torch.equal(found[name], value)
    return found if differ else {}


def _random_buffers(step: Any) -> Iterator[tuple[str, str]]:
    tags = getattr(getattr(step, "target", None), "tags", ())
    if isinstance(step, ExternCall) and torch.Tag.nondeterministic_seeded in tags and step.origins:
        yield from ((name, step.origins[-1]) for name in step.outputs if name is not None)
