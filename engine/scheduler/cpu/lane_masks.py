"""Conditions that do not change along a vector loop, as comparisons of its variable.

A pooling window at the border of a channels-last image is masked for all channels of a pixel or for none. The condition
is computed outside of the loop over channels, and g++ (11 to 15) has no vector code for a select by a truth value that
is the same in all lanes: it leaves the loop scalar, whose branches a processor cannot predict either. A comparison of
the loop's variable with an end, which is the end of the range where the condition holds and its start where it does
not, is a mask like any other. A truth value that is loaded (`c[i] != 0`) is compared in the loop anyway.

Measured on a Zen 5: a max pool of 3 x 3 with its indices, channels-last, takes a thirtieth of the time.
"""
from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import torch

from ...ir.loop_nest import VECTOR, Band, Loop, Nodes, Part, rewritten
from .nest_facts import NestFacts
from .threads_and_vectors import EVERYWHERE

OPTIONS = ("by-lane", "once")


def compare_in_lanes(band: Band, facts: NestFacts) -> Band:
    """The vector loop with its invariant conditions as comparisons of its variable (a decision)."""
    if not facts.axes:
        return band
    masks = tuple([(part, name) for part, depths in zip(facts.nest.parts, facts.depths)
                   for name in _invariant(part, depths, len(facts.axes))])
    if not masks:
        return band
    axis = facts.axes[-1]

    def compared(loop: Loop) -> Nodes:
        return (replace(loop, masks=masks) if loop.kind == VECTOR else loop,)

    body = rewritten(band.body, axis, compared, EVERYWHERE)
    if body is band.body:
        return band
    names = ", ".join(name for _, name in masks)
    why = f"{names} do not change along {axis.symbol}, and g++ has no vector select by such a condition"
    chosen = facts.context.decide("invariant-masks", facts.subject, OPTIONS, OPTIONS[0], why)
    return replace(band, body=body) if chosen == OPTIONS[0] else band


def _invariant(part: Part, depths: Mapping[str, int], inside: int) -> list[str]:
    """The computed truth values that statements of the loop at depth `inside` use, and that are known before it."""
    found = {s.name for s in part.statements
             if s.dtype is torch.bool and s.op not in ("load", "constant") and depths.get(s.name, inside) < inside}
    used: dict[str, None] = {}
    for s in part.statements:
        if depths.get(s.name, 0) == inside and s.op not in ("reduce", "scan"):
            used |= dict.fromkeys(name for name in (*s.args, s.mask) if name in found)
    return list(used)
