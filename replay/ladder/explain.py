"""Why a lowered stage differs from eager: each suspicion is tested by running again without what is suspected."""
from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch

from ...engine.ir.ir import ExternCall
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
    """`found`, a difference of a lowered stage, with its class where it can be proven. `random` are the values that the
    results of random operators have in eager, by buffer."""
    if found.verdict != "different":
        return found
    if random and _agrees(reference, lambda: run(work, random)):
        why = (f"with eager's random numbers in place of those of {', '.join(sorted(random))} the results agree: random "
               "operators ran in another order, or from another state")
        return dataclasses.replace(found, kind=classes.RANDOM, explanation=why)
    if any(d.kind == "intermediate-precision" and d.chosen == "float32" for d in collector.decisions) and _agrees(
            reference, lambda: run(variant(ROUNDED_AS_EAGER), None)):
        why = ("fused operations keep float32 between them, where eager rounds each result to 16 bits: generated again "
               "with these roundings (intermediate-precision = eager), the results agree")
        return dataclasses.replace(found, verdict="rounding", kind=classes.ELIDED, explanation=why)
    return found


def _agrees(reference: Reference, run: Callable[[], Execution]) -> bool:
    try:
        with deterministic():
            ran = run()
    except Exception:  # what cannot be tried proves nothing
        return False
    return worst(reference.observed(ran)).verdict != "different"


def random_results(steps: Any, nodes: Reference, values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """What results of random operators are in eager, by buffer, if any of them is something else in `values`."""
    found, differ = {}, False
    for step in steps:
        for name, node in _random_buffers(step):
            expected, value = nodes.eager.values.get(node), values.get(prefix + name)
            if comparable(value, expected):
                found[name] = like(expected, value)
                differ = differ or not torch.equal(found[name], value)
    return found if differ else {}


def _random_buffers(step: Any) -> Iterator[tuple[str, str]]:
    tags = getattr(getattr(step, "target", None), "tags", ())
    if isinstance(step, ExternCall) and torch.Tag.nondeterministic_seeded in tags and step.origins:
        yield from ((name, step.origins[-1]) for name in step.outputs if name is not None)
