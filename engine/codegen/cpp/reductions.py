"""Accumulators: the state of a reduction, how it takes a value, and how two of them are combined.

An accumulator has fields (the maximum and whether a NaN was seen, say). `at(field)` gives the location of a field: a
variable, or an element of an array with one for each lane or each chunk of the loop.
"""
from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

from .dtypes import ctype, literal
from .operators import is_float

Place = Callable[[str], str]


@dataclass(frozen=True)
class Field:
    """`type`, start value and, where `omp simd` can reduce it, the operator of its clause."""

    suffix: str
    type: str
    start: str
    clause: str = ""


@dataclass(frozen=True)
class Accumulator:
    """The reduction `kind` of values of `dtype`, kept in `fields`. `wide`: a float sum (product) that is in double."""

    kind: str
    dtype: torch.dtype
    operand: torch.dtype
    wide: bool = False

    @property
    def fields(self) -> tuple[Field, ...]:
        """The fields, main one first."""
        value = ctype(self.operand).value
        if self.kind in ("sum", "prod"):
            kind = "double" if self.wide else ctype(self.dtype).value
            start = "0" if self.kind == "sum" else "1"
            return (Field("", kind, f"{start}.0" if kind == "double" else start, "+" if self.kind == "sum" else "*"),)
        if self.kind in ("any", "all"):
            return (Field("", "int32", "0" if self.kind == "any" else "1", "|" if self.kind == "any" else "&"),)
        if self.kind in ("max", "min"):
            if value == "bool":
                return (Field("", "int32", "0" if self.kind == "max" else "1", "|" if self.kind == "max" else "&"),)
            main = Field("", value, extreme(self.operand, self.kind == "max"), self.kind)
            return (main, Field("_nan", "int32", "0", "|")) if is_float(value) else (main,)
        if self.kind in ("argmax", "argmin"):
            stored = "int32" if value == "bool" else value
            return Field("", stored, extreme(self.operand, self.kind == "argmax")), Field("_at", "int64", "0")
        raise NotImplementedError(f"reduction {self.kind}")

    @property
    def vectorizes(self) -> bool:
        """False where the loop must run sequentially."""
        return all(f.clause for f in self.fields)

    def update(self, at: Place, value: str, position: str) -> list[str]:
        """Statements that take `value`, found at `position` of the reduction, into the accumulator.

        The accumulator is selected as `+x`, an rvalue: of `x` gcc would take the address, and keep it in memory.
        """
        main = at("")
        if self.kind == "sum":
            return [f"{main} += {value};"]
        if self.kind == "prod":
            return [f"{main} *= {value};"]
        if self.kind in ("any", "all") or (len(self.fields) == 1 and self.fields[0].clause in "|&"):
            return [f"{main} {self.fields[0].clause}= {value};"]
        sign = ">" if self.kind in ("max", "argmax") else "<"
        floating = is_float(self.fields[0].type)
        if self.kind in ("max", "min"):
            lines = [f"{main} = {value} {sign} {main} ? {value} : +{main};"]
            return lines + ([f"{at('_nan')} |= {value} != {value};"] if floating else [])
        nan = f" | (({value} != {value}) & ({main} == {main}))" if floating else ""
        better = f"{value} {sign} {main}{nan}" if not nan else f"({value} {sign} {main}){nan}"
        return [f"{at('_at')} = {better} ? {position} : +{at('_at')};", f"{main} = {better} ? {value} : +{main};"]

    def combine_interleaved(self, at: Place, other: Place) -> list[str]:
        """Statements that combine `other`, whose elements interleave with the accumulator's."""
        if self.kind not in ("argmax", "argmin"):
            return self.combine(at, other)
        main, value, sign = at(""), other(""), ">" if self.kind == "argmax" else "<"
        better, same = f"({value} {sign} {main})", f"({value} == {main})"
        if is_float(self.fields[0].type):
            better = f"{better} | (({value} != {value}) & ({main} == {main}))"
            same = f"({same} | (({value} != {value}) & ({main} != {main})))"
        return [
            f"const bool taken = {better} | ({same} & ({other('_at')} < {at('_at')}));",
            f"{at('_at')} = taken ? {other('_at')} : +{at('_at')};", f"{main} = taken ? {value} : +{main};",
        ]

    def combine(self, at: Place, other: Place) -> list[str]:
        """Statements that combine `other`, whose elements come later, into the accumulator."""
        if self.kind in ("argmax", "argmin"):
            return self.update(at, other(""), other("_at"))
        if self.kind in ("max", "min") and len(self.fields) == 2:
            sign = ">" if self.kind == "max" else "<"
            mine, theirs = at(""), other("")
            return [f"{mine} = {theirs} {sign} {mine} ? {theirs} : +{mine};", f"{at('_nan')} |= {other('_nan')};"]
        return self.update(at, other(""), "")

    def result(self, at: Place) -> str:
        """The value of the finished reduction."""
        value = ctype(self.dtype).value
        if self.kind in ("argmax", "argmin"):
            return at("_at")
        if len(self.fields) == 2:
            return f"{at('_nan')} ? {literal(float('nan'), self.dtype)} : {at('')}"
        if value == "bool":
            return f"{at('')} != 0"
        return f"({value}){at('')}" if self.wide else at("")


def extreme(dtype: torch.dtype, lowest: bool) -> str:
    """The least (or greatest) value of `dtype`: where a maximum (or minimum) starts."""
    if dtype is torch.bool:
        return "-1" if lowest else "2"
    if ctype(dtype).value in ("float", "double"):
        return literal(float("-inf") if lowest else float("inf"), dtype)
    limits = torch.iinfo(dtype)
    return literal(limits.min if lowest else limits.max, dtype)
