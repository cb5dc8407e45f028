"""A loop body under construction: statements are emitted here, shared when equal, and frozen into a `LoopBody`."""
from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import sympy
import torch

from ..ir.affine import Linear, Size, axis_symbol, constant as constant_index, expr, indirect, recombine
from ..ir.ir import Axis, LoopBody, Statement, identity, scalar_buffer

COMPARISONS = frozenset(("eq", "ne", "lt", "le", "gt", "ge", "isnan", "isinf", "logical_not", "logical_and",
                         "logical_or", "logical_xor"))
ON_BOOL = {  # arithmetic on bools, as in torch
    "add": "logical_or", "mul": "logical_and", "maximum": "logical_or", "minimum": "logical_and",
    "bitwise_and": "logical_and", "bitwise_or": "logical_or", "bitwise_xor": "logical_xor",
    "bitwise_not": "logical_not",
}
LOW_PRECISION = frozenset((torch.bfloat16, torch.float16, torch.float8_e4m3fn, torch.float8_e5m2,
                           torch.float8_e4m3fnuz, torch.float8_e5m2fnuz))


def compute_dtype(dtype: torch.dtype) -> torch.dtype:
    """The dtype in which values of `dtype` are computed: float32 for the 16- and 8-bit floats (torch's opmath)."""
    return torch.float32 if dtype in LOW_PRECISION else dtype


class BodyBuilder:
    """Emits statements of one body. `builder("add", x, y)` gives the name of the result.

    Arguments are names of statements, or Python numbers, which become constants of the other arguments' dtype. Equal
    statements are emitted once; their origins add up. Inside `masked(...)`, loads carry the mask.
    """

    def __init__(self) -> None:
        self.dtypes: dict[str, torch.dtype] = {}
        self.memo: dict[Any, str] = {}  # of values at indices, see `lazy_tensors.py`
        self.mask = ""
        self.reduces = True  # whether the body has reduction axes
        self.nothing = False  # whether it reduces over no point at all
        self.origin = ""
        self.device = "cpu"  # of the operator that is being written, by type
        self._rows: dict[tuple[Any, ...], _Row] = {}
        self._constants: dict[str, Any] = {}
        self._widened: dict[str, str] = {}  # float32 statements that are a low-precision one, cast

    def __call__(self, op: str, *args: Any, dtype: torch.dtype | None = None) -> str:
        """Emit an operation. Its dtype is bool for comparisons, else that of its operands (`where`: the branches)."""
        typed = next((a for a in (args[1:] if op == "where" else args) if type(a) is str), None)
        operand = self.dtypes[typed] if typed is not None else dtype
        assert operand is not None, f"{op} of numbers alone needs a dtype"
        if operand is torch.bool:
            op = ON_BOOL.get(op, op)
        names = tuple([a if type(a) is str else self.constant(a, operand) for a in args])
        return self._emit(op, names, dtype or (torch.bool if op in COMPARISONS else operand))

    def _emit(self, op: str, args: tuple[str, ...], dtype: torch.dtype, buffer: str = "", index: Linear | None = None,
              value: Any = None, mask: str = "", mode: str = "", bound: Size | None = None) -> str:
        same = value if value is None else repr(value)  # unlike ==: 0.0 is not -0.0, True is not 1, and nan is nan
        key = (op, args, dtype, buffer, index, same, mask, mode, bound)
        row = self._rows.get(key)
        if row is None:
            name = "" if op == "store" else f"t{len(self._rows)}"
            self._rows[key] = row = _Row(name, op, args, dtype, buffer, index, value, mask, mode, bound)
            self.dtypes[name] = dtype
            if op == "constant":
                self._constants[name] = value
        if self.origin:
            row.origins[self.origin] = None
        return row.name

    # ---- leaves ------------------------------------------------------------------------------------------------------
    def constant(self, value: bool | int | float | sympy.Expr, dtype: torch.dtype) -> str:
        """A constant (or a symbolic number), converted to `dtype` as torch converts a Python number (low precision: of
        its compute dtype)."""
        dtype = compute_dtype(dtype)
        if isinstance(value, sympy.Expr):
            return self.cast(self.number(value), dtype)
        if dtype is torch.bool:
            value = bool(value)
        elif dtype.is_floating_point:
            value = float(value)
        else:
            value = int(value)
        return self._emit("constant", (), dtype, value=value)

    def number(self, value: sympy.Expr) -> str:
        """A symbolic number: sizes as int64, what is computed from floats in float64, as Python computes it."""
        if value.is_integer:
            return self.index_value(constant_index(value))
        if value.is_Symbol:
            index = recombine(Linear({}, 0))
            return self._emit("load", (), torch.float64, buffer=scalar_buffer(value), index=index)
        if value.is_number:
            return self.constant(float(value), torch.float64)
        op = {sympy.Add: "add", sympy.Mul: "mul", sympy.Pow: "pow"}[value.func]
        first, *others = [self.cast(self.number(part), torch.float64) for part in value.args]
        for other in others:
            first = self(op, first, other)
        return first

    def known(self, name: str) -> Any:
        """The value of a constant statement, None for any other."""
        return self._constants.get(name)

    def index_value(self, index: Linear) -> str:
        """The value of an index expression, as an int64."""
        if not index.terms and type(index.const) is int:
            return self.constant(index.const, torch.int64)
        return self._emit("index", (), torch.int64, index=recombine(index))

    def load(self, buffer: str, index: Linear, dtype: torch.dtype) -> str:
        """Load an element, in its compute dtype."""
        fill = None
        if self.mask:
            fill = False if dtype is torch.bool else 0.0 if dtype.is_floating_point else 0
        name = self._emit("load", (), dtype, buffer=buffer, index=recombine(index), value=fill, mask=self.mask)
        return self.cast(name, compute_dtype(dtype))

    # ---- conversions -------------------------------------------------------------------------------------------------
    def cast(self, name: str, dtype: torch.dtype) -> str:
        """Convert a value as `Tensor.to` does; nothing when it has that dtype already."""
        if self.dtypes[name] is dtype:
            return name
        value = self._constants.get(name)
        if value is not None and not isinstance(value, float) and abs(value) < 128 and dtype not in LOW_PRECISION:
            return self.constant(value, dtype)
        if dtype is torch.bool:
            return self("ne", name, 0)
        widened = self._widened.get(name)
        if widened is not None and self.dtypes[widened] is dtype:
            return widened  # back to what it was, bit for bit
        made = self._emit("cast", (name,), dtype)
        if self.dtypes[name] in LOW_PRECISION and dtype is torch.float32:
            self._widened[made] = name
        return made

    def rounded_to(self, name: str) -> torch.dtype | None:
        """The narrower dtype to which a float32 value was already rounded; None if unknown."""
        narrow = self._widened.get(name)
        return None if narrow is None else self.dtypes[narrow]

    def rounded(self, name: str, dtype: torch.dtype) -> str:
        """Round to the low precision `dtype` and come back to its compute dtype; nothing for other dtypes."""
        if dtype not in LOW_PRECISION:
            return self.cast(name, dtype)
        return self.cast(self.cast(name, dtype), compute_dtype(dtype))

    def bitcast(self, name: str, dtype: torch.dtype) -> str:
        """Read the bits as another dtype of the same width."""
        return self._emit("bitcast", (name,), dtype)

    def indirect(self, name: str, bound: Size, strict: bool = False, unchecked: bool = False) -> Linear:
        """An integer value as an index in [0, bound); `strict`: a negative one is out of bounds, too.

        `unchecked`: a decomposition made the value so that it is in bounds.
        """
        name = self.cast(name, torch.int64)
        known = self._constants.get(name)
        if known is not None and type(bound) is int and (0 if strict else -bound) <= known < bound:
            return Linear({}, known % bound)
        if self.mask:
            name = self("where", self.mask, name, 0)
        mode = "strict" if strict else "unchecked" if unchecked else ""
        return indirect(self._emit("indirect", (name,), torch.int64, bound=bound, mode=mode), bound)

    # ---- structure ---------------------------------------------------------------------------------------------------
    def reduce(self, kind: str, name: str, dtype: torch.dtype) -> str:
        """Reduce over the body's reduction axes; over a single point, the value itself."""
        if self.nothing:
            return self.constant(identity(kind, dtype), dtype)
        if not self.reduces:
            return self.constant(0, dtype) if kind in ("argmax", "argmin") else self.cast(name, dtype)
        return self._emit("reduce", (name,), dtype, mode=kind)

    def scan(self, kind: str, name: str, dtype: torch.dtype) -> str:
        """The reduction of this point of the body's reduction axes and all before it."""
        if not self.reduces:
            return self.constant(0, dtype) if kind in ("argmax", "argmin") else self.cast(name, dtype)
        return self._emit("scan", (name,), dtype, mode=kind)

    def part(self, name: str, which: int, dtype: torch.dtype) -> str:
        """One result of a reduction that has several (Welford: mean, sum of squared deviations, count)."""
        if self.nothing:
            return self.constant(float("nan") if which == 0 else 0.0, dtype)
        if not self.reduces:
            return (name, self("sub", name, name), self.constant(1, dtype))[which]  # NaN of an infinity, else 0
        return self._emit("part", (name,), dtype, value=which)

    def store(self, buffer: str, index: Linear, name: str, dtype: torch.dtype, mode: str = "") -> None:
        """Store a value, converted to the buffer's dtype."""
        self._emit("store", (self.cast(name, dtype),), dtype, buffer=buffer, index=recombine(index), mode=mode)

    def masked(self, condition: str, inside: Callable[[], str], fill: str | bool | int | float) -> str:
        """`inside()` where the condition holds, `fill` (a statement or a number) elsewhere, without loads there."""
        known = self._constants.get(condition)
        if known is True:
            return inside()
        outer = self.mask
        self.mask = self("logical_and", outer, condition) if outer else condition
        try:
            value = inside()
        finally:
            self.mask = outer
        return self("where", condition, value, fill)

    def indices(self) -> Iterator[Linear]:
        """Every index expression emitted so far."""
        return (row.index for row in self._rows.values() if row.index is not None)

    def build(self, axes: Sequence[tuple[str, Size]], reduction_axes: Sequence[tuple[str, Size]] = ()) -> LoopBody:
        """Freeze: statements in order of emission, without those that nothing uses and that raise nothing: an index is
        checked even if every element that it looks up is the same constant, unless it looks nothing up."""
        used: set[str] = set()
        kept: list[_Row] = []
        for row in reversed(self._rows.values()):
            checks = row.op == "indirect" and row.mode != "unchecked" and not self.nothing
            if row.op == "store" or row.name in used or checks:
                used.update(row.args)
                used.add(row.mask)
                if row.index is not None:
                    used.update(_indirect_names(row.index))
                kept.append(row)
        statements = tuple([row.freeze() for row in reversed(kept)])
        return LoopBody(
            next(s.buffer for s in statements if s.op == "store"),
            tuple([Axis(axis_symbol(n), expr(e)) for n, e in axes]),
            tuple([Axis(axis_symbol(n), expr(e)) for n, e in reduction_axes]),
            statements,
        )


@dataclass(slots=True)
class _Row:
    """A statement whose origins are still collected."""

    name: str
    op: str
    args: tuple[str, ...]
    dtype: torch.dtype
    buffer: str
    index: Linear | None
    value: Any
    mask: str
    mode: str
    bound: Size | None
    origins: dict[str, None] = field(default_factory=dict)

    def freeze(self) -> Statement:
        return Statement(
            self.name, self.op, self.args, self.dtype, self.buffer, None if self.index is None else self.index.expr,
            self.value, self.mask, self.mode, None if self.bound is None else expr(self.bound), tuple(self.origins),
        )


def _indirect_names(form: Linear) -> Iterator[str]:
    for atom in form.terms:
        if atom.kind == "indirect":
            yield atom.name
        elif atom.inner is not None:
            yield from _indirect_names(atom.inner)
