"""The state of a scan, and how it takes the next value: as eager's kernels do.

Sums and products are kept in the dtype of the statement, which the lowering chose as eager's accumulator. Of equal
extremes the last one counts, after a NaN only another NaN (`cummax_helper_cpu` in aten/src/ATen/native/ReduceOps.cpp).
"""
from __future__ import annotations

from dataclasses import dataclass

import torch

from .dtypes import ctype, literal
from .operators import is_float
from .reductions import Field, Place, extreme


@dataclass(frozen=True)
class Scan:
    """The scan `kind` with results of `dtype`, of values of `operand`, kept in `fields`."""

    kind: str
    dtype: torch.dtype
    operand: torch.dtype

    @property
    def fields(self) -> tuple[Field, ...]:
        """The fields, main one first."""
        value = ctype(self.operand).value
        starts = {"sum": 0, "prod": 1, "logsumexp": float("-inf")}
        if self.kind in starts:
            start = starts[self.kind]
            return (Field("", value, literal(float(start) if is_float(value) else int(start), self.operand)),)
        main = Field("", "int32" if value == "bool" else value, extreme(self.operand, self.kind.endswith("max")))
        return (main, Field("_at", "int64", "0")) if self.kind.startswith("arg") else (main,)

    def update(self, at: Place, value: str, position: str) -> list[str]:
        """Statements that take `value`, found at `position`, into what is kept."""
        main = at("")
        simple = {"sum": f"{main} += {value};", "prod": f"{main} *= {value};",
                  "logsumexp": f"{main} = log_add_exp({value}, {main});"}
        if self.kind in simple:
            return [simple[self.kind]]
        sign = ">=" if self.kind.endswith("max") else "<="
        taken = f"{value} {sign} {main}"
        if is_float(self.fields[0].type):
            taken = f"({value} != {value}) | ({taken})"
        lines = [f"{at('_at')} = {taken} ? {position} : {at('_at')};"] if self.kind.startswith("arg") else []
        return [*lines, f"{main} = {taken} ? {value} : {main};"]

    def result(self, at: Place) -> str:
        """The value at the point that was taken in last."""
        if self.kind.startswith("arg"):
            return at("_at")
        return f"{at('')} != 0" if ctype(self.dtype).value == "bool" else at("")
