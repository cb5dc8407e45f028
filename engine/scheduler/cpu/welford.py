"""Mean and sum of squared deviations in two passes over the data: first the sum, then the deviations from its mean.

A row fits in L1, so the second pass is cheap and vectorizes plainly, and no other summation order is closer to the
exact value. The second pass also sums the deviations themselves, which corrects for the rounding of the first mean (the
corrected two-pass algorithm of Chan, Golub and LeVeque, 1983); an infinite mean stays infinite, and so do squares that
overflow.
"""
from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import sympy
import torch

from ...ir.ir import Axis, LoopBody, Statement

MEAN = "_mean"  # suffix of the scratch buffer with the mean, from the first pass to the second


def expand(bodies: Sequence[LoopBody]) -> tuple[list[LoopBody], dict[str, torch.dtype]]:
    """`bodies` without welford reductions, and the dtypes of the scratch buffers that replace them."""
    result: list[LoopBody] = []
    local: dict[str, torch.dtype] = {}
    for body in bodies:
        while any(s.op == "reduce" and s.mode == "welford" for s in body.statements):
            first, body, name, dtype = _two_passes(body)
            result.append(first)
            local[name] = dtype
        result.append(body)
    return result, local


def _two_passes(body: LoopBody) -> tuple[LoopBody, LoopBody, str, torch.dtype]:
    at = next(i for i, s in enumerate(body.statements) if s.op == "reduce" and s.mode == "welford")
    reduction = body.statements[at]
    name, t = f"{body.name}_{reduction.name}{MEAN}", reduction.name
    dtype = reduction.dtype
    count = sympy.prod([a.extent for a in body.reduction_axes])
    place = _row_major(body.axes)

    def make(suffix: str, op: str, args: tuple[str, ...] = (), **fields: object) -> Statement:
        return Statement(t + suffix, op, args, fields.pop("dtype", dtype), origins=reduction.origins, **fields)  # type: ignore[arg-type]

    exact = {"dtype": torch.float64}
    counted = (make("_points", "index", index=count, dtype=torch.int64), make("_n", "cast", (t + "_points",), **exact))
    first = replace(body, name=name, statements=(
        *_needed(body.statements[:at], reduction.args[0]),
        make("_sum", "reduce", reduction.args, mode="sum", **exact), *counted,
        make("_first", "truediv", (t + "_sum", t + "_n"), **exact), make("_near", "cast", (t + "_first",)),
        replace(make("", "store", (t + "_near",), buffer=name, index=place), name=""),
    ))
    second = (
        make("_near", "load", buffer=name, index=place), make("_base", "cast", (t + "_near",), **exact),
        make("_off", "sub", (reduction.args[0], t + "_near")), make("_squared", "mul", (t + "_off", t + "_off")),
        make("_rest", "reduce", (t + "_off",), mode="sum", **exact),
        make("_squares", "reduce", (t + "_squared",), mode="sum", **exact), *counted,
        make("_shift", "truediv", (t + "_rest", t + "_n"), **exact),
        make("_moved", "add", (t + "_base", t + "_shift"), **exact),
        make("_size", "abs", (t + "_base",), **exact), make("_infinity", "constant", (), value=math.inf, **exact),
        make("_finite", "lt", (t + "_size", t + "_infinity"), dtype=torch.bool),
        make("_exact", "where", (t + "_finite", t + "_moved", t + "_base"), **exact),
        make("_excess", "mul", (t + "_rest", t + "_shift"), **exact),
        make("_less", "sub", (t + "_squares", t + "_excess"), **exact),
        make("_fits", "lt", (t + "_squares", t + "_infinity"), dtype=torch.bool),
        make("_left", "where", (t + "_fits", t + "_less", t + "_squares"), **exact),
        make("_mean", "cast", (t + "_exact",)), make("_m2", "cast", (t + "_left",)),
        make("_count", "cast", (t + "_n",)),
    )
    results = {0: t + "_mean", 1: t + "_m2", 2: t + "_count"}
    parts = {s.name: results[int(s.value or 0)] for s in body.statements if s.op == "part" and s.args == (t,)}
    rest = [s for s in body.statements[at + 1:] if s.name not in parts or not s.name]
    renamed = [replace(s, args=tuple(parts.get(a, a) for a in s.args), mask=parts.get(s.mask, s.mask)) for s in rest]
    return first, replace(body, statements=(*body.statements[:at], *second, *renamed)), name, dtype


def _needed(statements: Sequence[Statement], value: str) -> tuple[Statement, ...]:
    """Those of `statements` that `value` depends on."""
    wanted = {value}
    for s in reversed(statements):
        if s.name in wanted:
            wanted.update((*s.args, s.mask))
            if s.index is not None:
                wanted.update(x.name for x in s.index.free_symbols)
    return tuple([s for s in statements if s.name and s.name in wanted])


def _row_major(axes: Sequence[Axis]) -> sympy.Expr:
    index: sympy.Expr = sympy.S.Zero
    for a in axes:
        index = index * a.extent + a.symbol
    return sympy.expand(index)
