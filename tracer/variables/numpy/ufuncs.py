"""NumPy's ufuncs on arrays: for each, the operator of torch, and whether NumPy may warn.

`call_ufunc` gets the dtypes of operands and results from NumPy, converts, and calls. NumPy warns (or raises, as the
user has configured it) about division by zero, overflow and invalid results: where a function may, the graph checks
that every result is finite (or NaN because an operand is), and where one is not, the frame is rerun in eager
(`runtime_asserts.py`). To add a function, add a row to `UFUNCS`.
"""
from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from ...breaks.reasons import Reason
from ...breaks.unsupported import Unsupported
from ..core.base import Value
from ..core.constant import constant
from ..python.symbolic_numbers import NumberValue
from ..torch.runtime_asserts import assume, rely_on_rerun
from ..torch.tensor import TensorValue
from .dtypes import asked, computing_dtype, converted, kind_of, loop_dtypes, sample, torch_dtype
from .ndarrays import OPERATORS, ArrayValue, NdarrayValue, laid_out, on_arrays, plain, result, written

if TYPE_CHECKING:
    from ..core.base import Translator

Operands = Sequence[Value]
Compute = Callable[["Translator", Operands], Value]


@dataclass(frozen=True)
class Ufunc:
    """How a ufunc is computed: `compute(tx, operands)` on tensors of the loop's dtypes. `warns`: floats may."""

    compute: Compute
    warns: bool = False
    takes: str = "bif"
    """Kinds of loop dtypes for which it is right: bool, int (unsigned too), float."""


def node(target: Callable[..., Any]) -> Compute:
    """One operator."""
    return lambda tx, operands: tx.graph.call(target, list(operands), {}, tx)


def _tensor(value: Value) -> TensorValue:
    assert isinstance(value, TensorValue)
    return value


# ---- operands ------------------------------------------------------------------------------------------------------
def operand(tx: Translator, value: Value, dtype: np.dtype[Any], unsafe: bool = False) -> Value:
    """An array or number as a tensor of `dtype`. `unsafe`: as in assignments, any conversion is allowed."""
    target = torch_dtype(dtype, "conversion")
    if isinstance(value, ArrayValue):
        return cast(tx, value.tensor, dtype)
    if isinstance(value, NumberValue) and not value.is_constant():
        exact = value.python_type() is float if dtype.kind == "f" else value.python_type() is int
        if not exact or dtype.itemsize < (8 if dtype.kind == "i" else 4):
            raise Unsupported(Reason.NUMPY_UNSUPPORTED, detail=f"numpy on {value.describe()}")
        number: Value = value
    else:
        kind = kind_of(value)
        if unsafe or isinstance(kind, np.dtype) or kind is int or dtype.kind == "f":
            number = constant(converted(value.as_constant(), dtype))
        else:
            raise Unsupported(Reason.NUMPY_UNSUPPORTED, detail=f"numpy on {value.describe()}")
    options = {"dtype": constant(target), "device": constant(torch.device("cpu"))}
    return tx.graph.call(torch.full, [constant(()), number], options, tx)


def cast(tx: Translator, tensor: TensorValue, dtype: np.dtype[Any]) -> TensorValue:
    """The tensor in another dtype; where NumPy may warn that a number does not fit, the graph checks that all do."""
    target, own = torch_dtype(dtype, "conversion"), tensor.fake.dtype
    if own is target:
        return tensor
    cast_tensor = _tensor(tx.graph.call("to", [tensor, constant(target)], {}, tx, op="call_method"))
    if own.is_floating_point and target.is_floating_point:
        if target.itemsize < own.itemsize:
            check_finite(tx, cast_tensor, [tensor])
    elif own.is_floating_point and target is not torch.bool:
        limits = torch.iinfo(target)
        bits = min(limits.bits, 63) - (limits.min < 0)
        low, high = (0.0 if limits.min == 0 else -float(2**bits)), float(2**bits)
        above = tx.graph.call(operator.ge, [tensor, constant(low)], {}, tx)
        below = tx.graph.call(operator.lt, [tensor, constant(high)], {}, tx)
        fits = tx.graph.call(torch.logical_and, [above, below], {}, tx)
        _assume_all(tx, fits)
    return cast_tensor


# ---- where NumPy would warn ----------------------------------------------------------------------------------------
def _ignores_underflow(_: Any = None) -> bool:
    return np.geterr()["under"] == "ignore"


def check_finite(tx: Translator, value: Value, operands: Sequence[Value] = ()) -> None:
    """The graph checks that all results are finite, or NaN because an operand is."""
    if not _ignores_underflow():
        raise Unsupported(Reason.NUMPY_UNSUPPORTED, detail="numpy where underflow is not ignored")
    tx.guards.add(None, "LAMBDA", (_ignores_underflow, "numpy.geterr()['under'] == 'ignore'"))
    fine = tx.graph.call(torch.isfinite, [value], {}, tx)
    for one in operands:
        if isinstance(one, TensorValue) and one.fake.is_floating_point() and one.node.target is not torch.full:
            fine = tx.graph.call(torch.logical_or, [fine, tx.graph.call(torch.isnan, [one], {}, tx)], {}, tx)
    _assume_all(tx, fine)


def _assume_all(tx: Translator, condition: Value) -> None:
    why = Unsupported(Reason.NUMPY_UNSUPPORTED, np, detail=", which may warn, where a graph cannot run again")
    rely_on_rerun(tx, why)
    assume(tx, tx.graph.call(torch.all, [condition], {}, tx), why)


_WRAP_SILENTLY = (np.bitwise_and, np.bitwise_or, np.bitwise_xor, np.invert, np.sign, np.positive)


def _check_integer(tx: Translator, ufunc: np.ufunc, rule: Ufunc, operands: Operands, dtype: np.dtype[Any]) -> None:
    """Integers of arrays overflow silently; NumPy's scalars warn."""
    if ufunc in _WRAP_SILENTLY:
        return
    wide = [tx.graph.call("to", [one, constant(torch.float64)], {}, tx, op="call_method") for one in operands]
    exact = rule.compute(tx, wide)
    limits = np.iinfo(dtype)
    low, high = (limits.min, limits.max) if dtype.itemsize < 8 else (-(2**62), 2**62)
    above = tx.graph.call(operator.ge, [exact, constant(float(low))], {}, tx)
    below = tx.graph.call(operator.le, [exact, constant(float(high))], {}, tx)
    _assume_all(tx, tx.graph.call(torch.logical_and, [above, below], {}, tx))


# ---- calls ---------------------------------------------------------------------------------------------------------
def call_ufunc(tx: Translator, ufunc: np.ufunc, args: Operands, out: NdarrayValue | None = None) -> Value:
    """ufunc(*args), or into the memory of `out`. Raises Unsupported where NumPy raises, or torch is not known to
    agree."""
    rule = UFUNCS[ufunc]
    kinds = [kind_of(arg) for arg in args]
    loop = loop_dtypes(ufunc, kinds, out.dtype if out is not None else None)
    if any(one.kind not in rule.takes.replace("i", "iu") for one in loop[: ufunc.nin]):
        raise Unsupported(Reason.NUMPY_UNSUPPORTED, ufunc, detail=f"of {', '.join(map(str, kinds))}")
    for one in loop:
        computing_dtype(one, f"numpy.{ufunc.__name__}")
    operands = [operand(tx, arg, one) for arg, one in zip(args, loop)]
    single = out is None and all(_rank(arg) == 0 for arg in args)
    computed = _tensor(rule.compute(tx, operands))
    if rule.warns and loop[-1].kind == "f":
        check_finite(tx, computed, operands)
    elif single and loop[-1].kind in "iu" and loop[0].kind != "b":
        _check_integer(tx, ufunc, rule, operands, loop[-1])
    wanted = torch_dtype(loop[-1], ufunc.__name__)
    if computed.fake.dtype is not wanted:
        computed = _tensor(tx.graph.call("to", [computed, constant(wanted)], {}, tx, op="call_method"))
    if out is not None:
        return _stored(tx, computed, out)
    if computed.node in [one.node for one in operands if isinstance(one, TensorValue)]:
        computed = _tensor(tx.graph.call("clone", [computed], {}, tx, op="call_method"))
    return result(tx, _in_order(tx, ufunc, args, computed), scalar=single)


def _stored(tx: Translator, computed: TensorValue, out: NdarrayValue) -> Value:
    """Into the memory of an array."""
    if len(computed.fake.shape) > len(out.fake.shape):
        raise Unsupported(Reason.NUMPY_UNSUPPORTED, detail="numpy with a result of another shape than where it goes")
    written(tx, out)
    value = cast(tx, computed, out.dtype)
    tx.graph.call("copy_", [out.tensor, value], {}, tx, op="call_method")
    return out


def _rank(arg: Value) -> int:
    return arg.fake.dim() if isinstance(arg, ArrayValue) else 0


def _in_order(tx: Translator, function: Callable[..., Any], args: Operands, computed: TensorValue) -> Value:
    """The result with the strides that NumPy derives from those of the operands."""
    if computed.fake.dim() < 2:
        return laid_out(tx, computed, np.ones((1,) * computed.fake.dim()))
    if all(arg.fake.is_contiguous() for arg in args if isinstance(arg, ArrayValue)):
        return laid_out(tx, computed, np.ones((1,) * computed.fake.dim()))
    samples = [sample(arg.dtype, arg.fake) if isinstance(arg, ArrayValue) else 1 for arg in args]
    return laid_out(tx, computed, asked(function, *samples))


# ---- the table -----------------------------------------------------------------------------------------------------
def _remainder(tx: Translator, operands: Operands) -> Value:
    """NumPy gives a zero the sign of the divisor."""
    remainder = tx.graph.call(torch.remainder, list(operands), {}, tx)
    zero = tx.graph.call(operator.eq, [remainder, constant(0)], {}, tx)
    signed = tx.graph.call(torch.copysign, [remainder, operands[1]], {}, tx)
    return tx.graph.call(torch.where, [zero, signed, remainder], {}, tx)


def _by_float(compute: Compute) -> Compute:
    """Integer division by zero gives zero and a warning in NumPy, but an error in torch: for floats only."""

    def chosen(tx: Translator, operands: Operands) -> Value:
        if not _tensor(operands[0]).fake.is_floating_point():
            return _by_integer(tx, compute, operands)
        return compute(tx, operands)

    return chosen


def _by_integer(tx: Translator, compute: Compute, operands: Operands) -> Value:
    divisor = _tensor(operands[1]).node
    known = divisor.args[1] if divisor.target is torch.full else None
    if not isinstance(known, int) or known <= 0:
        raise Unsupported(
            Reason.NUMPY_UNSUPPORTED, detail="numpy's division of integers by what is not known to be above zero"
        )
    target = torch.remainder if compute is _remainder else torch.floor_divide
    return tx.graph.call(target, list(operands), {}, tx)


def _power(tx: Translator, operands: Operands) -> Value:
    """Integers to a power below zero raise."""
    exponent = _tensor(operands[1])
    known = exponent.node.args[1] if exponent.node.target is torch.full else None
    if not exponent.fake.is_floating_point() and (not isinstance(known, int) or known < 0):
        raise Unsupported(
            Reason.NUMPY_UNSUPPORTED, np.power, detail="of integers to what is not known to be zero or more"
        )
    return tx.graph.call(torch.pow, [operands[0], constant(known) if known is not None else exponent], {}, tx)


def _square(tx: Translator, operands: Operands) -> Value:
    return tx.graph.call(torch.mul, [operands[0], operands[0]], {}, tx)


def _shifted(target: Callable[..., Any]) -> Compute:
    def compute(tx: Translator, operands: Operands) -> Value:
        by = _tensor(operands[1]).node
        known = by.args[1] if by.target is torch.full else None
        width = _tensor(operands[0]).fake.dtype.itemsize * 8
        if not isinstance(known, int) or not 0 <= known < width:
            raise Unsupported(Reason.NUMPY_UNSUPPORTED, detail="numpy's shift by what is not known to be in range")
        return tx.graph.call(target, [operands[0], constant(known)], {}, tx)

    return compute


def _sign(tx: Translator, operands: Operands) -> Value:
    """NaN stays NaN."""
    sign = tx.graph.call(torch.sign, list(operands), {}, tx)
    unknown = tx.graph.call(torch.isnan, list(operands), {}, tx)
    return tx.graph.call(torch.where, [unknown, operands[0], sign], {}, tx)


def _scaled(factor: float) -> Compute:
    return lambda tx, operands: tx.graph.call(torch.mul, [operands[0], constant(factor)], {}, tx)


UFUNCS: Mapping[np.ufunc, Ufunc] = {
    np.add: Ufunc(node(torch.add), warns=True),
    np.subtract: Ufunc(node(torch.sub), warns=True, takes="if"),
    np.multiply: Ufunc(node(torch.mul), warns=True),
    np.divide: Ufunc(node(torch.div), warns=True, takes="f"),
    np.floor_divide: Ufunc(_by_float(node(torch.floor_divide)), warns=True, takes="if"),
    np.remainder: Ufunc(_by_float(_remainder), warns=True, takes="if"),
    np.power: Ufunc(_power, warns=True, takes="if"),
    np.negative: Ufunc(node(torch.neg), takes="if"),
    np.positive: Ufunc(node(torch.clone), takes="if"),
    np.absolute: Ufunc(node(torch.abs), takes="if"),
    np.fabs: Ufunc(node(torch.abs), takes="f"),
    np.sign: Ufunc(_sign, takes="if"),
    np.square: Ufunc(_square, warns=True, takes="if"),
    np.reciprocal: Ufunc(node(torch.reciprocal), warns=True, takes="f"),
    np.sqrt: Ufunc(node(torch.sqrt), warns=True, takes="f"),
    **{
        getattr(np, name): Ufunc(node(getattr(torch, name)), warns=True, takes="f")
        for name in (
            "exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sin", "cos", "tan", "arcsin", "arccos", "arctan",
            "sinh", "cosh", "tanh", "arcsinh", "arccosh", "arctanh", "arctan2", "hypot", "logaddexp",
        )
    },
    np.deg2rad: Ufunc(_scaled(np.pi / 180), takes="f"),
    np.rad2deg: Ufunc(_scaled(180 / np.pi), warns=True, takes="f"),
    np.floor: Ufunc(node(torch.floor), takes="if"),
    np.ceil: Ufunc(node(torch.ceil), takes="if"),
    np.trunc: Ufunc(node(torch.trunc), takes="if"),
    np.rint: Ufunc(node(torch.round), takes="f"),
    np.maximum: Ufunc(node(torch.maximum)),
    np.minimum: Ufunc(node(torch.minimum)),
    np.fmax: Ufunc(node(torch.fmax)),
    np.fmin: Ufunc(node(torch.fmin)),
    np.copysign: Ufunc(node(torch.copysign), takes="f"),
    **{
        getattr(np, name): Ufunc(node(target))
        for name, target in (
            ("equal", torch.eq), ("not_equal", torch.ne), ("less", torch.lt), ("less_equal", torch.le),
            ("greater", torch.gt), ("greater_equal", torch.ge), ("logical_and", torch.logical_and),
            ("logical_or", torch.logical_or), ("logical_xor", torch.logical_xor), ("logical_not", torch.logical_not),
            ("isnan", torch.isnan), ("isinf", torch.isinf), ("isfinite", torch.isfinite), ("signbit", torch.signbit),
        )
    },
    np.bitwise_and: Ufunc(node(torch.bitwise_and), takes="bi"),
    np.bitwise_or: Ufunc(node(torch.bitwise_or), takes="bi"),
    np.bitwise_xor: Ufunc(node(torch.bitwise_xor), takes="bi"),
    np.invert: Ufunc(node(torch.bitwise_not), takes="bi"),
    np.left_shift: Ufunc(_shifted(torch.bitwise_left_shift), takes="i"),
    np.right_shift: Ufunc(_shifted(torch.bitwise_right_shift), takes="i"),
}  # fmt: skip


def _handled(ufunc: np.ufunc) -> None:
    @on_arrays(ufunc)
    def handler(tx: Translator, *args: Value, out: Value | None = None) -> Value:
        if len(args) != ufunc.nin:
            raise Unsupported(Reason.NUMPY_UNSUPPORTED, ufunc, detail=f"with {len(args)} arguments")
        if out is not None and not isinstance(out, NdarrayValue):
            if plain(out) is not None:
                raise Unsupported(Reason.NUMPY_UNSUPPORTED, ufunc, detail=f"with out={out.describe()}")
            out = None
        return call_ufunc(tx, ufunc, args, out)


for _ufunc in UFUNCS:
    _handled(_ufunc)


def _operator(ufunc: np.ufunc) -> Callable[[Translator, Operands, NdarrayValue | None], Value]:
    return lambda tx, args, out: call_ufunc(tx, ufunc, args, out)


def _power_operator(tx: Translator, args: Operands, out: NdarrayValue | None) -> Value:
    """`**` of a bool is a square with another dtype."""
    if any(kind_of(arg) == np.dtype(bool) for arg in args):
        raise Unsupported(Reason.OPERATOR, detail="** to an array of bools")
    return call_ufunc(tx, np.power, args, out)


OPERATORS[operator.pow] = _power_operator
OPERATORS.update({
    function: _operator(ufunc)
    for function, ufunc in (
        (operator.add, np.add), (operator.sub, np.subtract), (operator.mul, np.multiply),
        (operator.truediv, np.divide), (operator.floordiv, np.floor_divide), (operator.mod, np.remainder),
        (operator.and_, np.bitwise_and), (operator.or_, np.bitwise_or),
        (operator.xor, np.bitwise_xor), (operator.lshift, np.left_shift), (operator.rshift, np.right_shift),
        (operator.eq, np.equal), (operator.ne, np.not_equal), (operator.lt, np.less), (operator.le, np.less_equal),
        (operator.gt, np.greater), (operator.ge, np.greater_equal), (operator.neg, np.negative),
        (operator.pos, np.positive), (operator.invert, np.invert), (operator.abs, np.absolute),
    )
})  # fmt: skip
