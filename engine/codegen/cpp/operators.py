"""Operations of the loop IR as C++ expressions: one entry for each operation.

A rule gets the texts of the arguments and the C type of the operands ("float", "double", "int64", "bool", ...), and
gives an expression of that type (of bool, for comparisons). Integers wrap (`-fwrapv`); narrow ones are converted back
after C's promotion to int by the declaration that receives the value.
"""
from __future__ import annotations

from collections.abc import Callable

Rule = Callable[[list[str], str], str]

_OWN_FLOAT = frozenset((  # float_math.py says why
    "exp", "exp2", "expm1", "log", "log1p", "log2", "log10", "erf", "tanh", "asin", "acos", "atan", "sin", "cos", "tan",
    "sinh", "cosh", "hypot", "fmod",
))
_OWN_DOUBLE = frozenset(("exp", "log", "fmod"))  # double_math.py
# libmvec's float versions have over twice eager's error: computed in double, and rounded once.
_IN_DOUBLE = frozenset((
    "erfc", "atan2",
))


def is_float(kind: str) -> bool:
    """True for the C types that hold floating-point numbers."""
    return kind in ("float", "double")


def _infix(symbol: str) -> Rule:
    return lambda a, kind: f"{a[0]} {symbol} {a[1]}"


def _compare(symbol: str) -> Rule:
    return lambda a, kind: f"{a[0]} {symbol} {a[1]}"


def _math(name: str) -> Rule:
    """A function of libm, or the own version of it."""
    def rule(a: list[str], kind: str) -> str:
        if kind == "float" and name in _OWN_FLOAT:
            return f"{name}_float({', '.join(a)})"
        if kind == "float" and name in _IN_DOUBLE:
            return f"(float){name}({', '.join([f'(double){x}' for x in a])})"
        suffix = "f" if kind == "float" else "_double" if name in _OWN_DOUBLE else ""
        return f"{name}{suffix}({', '.join(a)})"
    return rule


def _builtin(name: str) -> Rule:
    return lambda a, kind: f"__builtin_{name}{'f' if kind == 'float' else ''}({', '.join(a)})"


def _by_kind(floats: Rule, integers: Rule) -> Rule:
    return lambda a, kind: floats(a, kind) if is_float(kind) else integers(a, kind)


def _call(name: str) -> Rule:
    return lambda a, kind: f"{name}<{kind}>({', '.join(a)})"


def _same(a: list[str], kind: str) -> str:
    return a[0]



def _one(kind: str) -> str:
    return "1.0f" if kind == "float" else "1.0" if kind == "double" else "1"


def _add(a: list[str], kind: str) -> str:
    return f"{a[0]} | {a[1]}" if kind == "bool" else f"{a[0]} + {a[1]}"


def _mul(a: list[str], kind: str) -> str:
    return f"{a[0]} & {a[1]}" if kind == "bool" else f"{a[0]} * {a[1]}"


def _neg(a: list[str], kind: str) -> str:
    return f"-{a[0]}" if not a[0].startswith("-") else f"-({a[0]})"


def _abs_integer(a: list[str], kind: str) -> str:
    return a[0] if kind.startswith("u") or kind == "bool" else f"({a[0]} < 0 ? -{a[0]} : {a[0]})"


def _sigmoid(a: list[str], kind: str) -> str:
    return f"sigmoid_float({a[0]})" if kind == "float" else f"sigmoid_double({a[0]})"


def _rsqrt(a: list[str], kind: str) -> str:
    return f"{_one(kind)} / {_builtin('sqrt')(a, kind)}"


def _extremum(name: str, symbol: str) -> Rule:
    return _by_kind(
        lambda a, kind: f"{name}({a[0]}, {a[1]})", lambda a, kind: f"({a[0]} {symbol} {a[1]} ? {a[0]} : {a[1]})"
    )


def _ignoring_nan(symbol: str) -> Rule:
    """fmin and fmax: a NaN operand loses."""
    def rule(a: list[str], kind: str) -> str:
        if not is_float(kind):
            return f"({a[0]} {symbol} {a[1]} ? {a[0]} : {a[1]})"
        return f"({a[0]} != {a[0]} ? {a[1]} : {a[1]} != {a[1]} ? {a[0]} : {a[0]} {symbol} {a[1]} ? {a[0]} : {a[1]})"
    return rule


def _where(a: list[str], kind: str) -> str:
    """g++ vectorizes a select of bytes, but not one of two `bool`s."""
    first, second = [f"({value} ? (uint8)1 : (uint8)0)" for value in a[1:]] if kind == "bool" else a[1:]
    return f"{a[0]} ? {first} : {second}"


def _isnan(a: list[str], kind: str) -> str:
    return f"{a[0]} != {a[0]}" if is_float(kind) else "false"


def _isinf(a: list[str], kind: str) -> str:
    return f"{_builtin('fabs')(a, kind)} == __builtin_inf()" if is_float(kind) else "false"


def _fma(a: list[str], kind: str) -> str:
    return f"{'fused' if kind == 'float' else 'fused_double'}({', '.join(a)})"


OPERATORS: dict[str, Rule] = {
    "neg": _neg,
    "abs": _by_kind(_builtin("fabs"), _abs_integer),
    "sign": _call("sign"),
    "reciprocal": lambda a, kind: f"{_one(kind)} / {a[0]}",
    "sqrt": _builtin("sqrt"),
    "rsqrt": _rsqrt,
    **{name: _math(name) for name in (
        "exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sin", "cos", "tan", "asin", "acos", "atan", "sinh",
        "cosh", "tanh", "asinh",
    "acosh", "atanh", "erf", "erfc", "lgamma", "atan2", "hypot", "nextafter",
    )},
    "sigmoid": _sigmoid,
    "floor": _by_kind(_builtin("floor"), _same),
    "ceil": _by_kind(_builtin("ceil"), _same),
    "trunc": _by_kind(_builtin("trunc"), _same),
    "round": _by_kind(_builtin("rint"), _same),
    "isnan": _isnan,
    "isinf": _isinf,
    "logical_not": lambda a, kind: f"!{a[0]}",
    "bitwise_not": lambda a, kind: f"!{a[0]}" if kind == "bool" else f"~{a[0]}",
    "add": _add,
    "sub": lambda a, kind: f"{a[0]} ^ {a[1]}" if kind == "bool" else f"{a[0]} - {a[1]}",
    "mul": _mul,
    "truediv": _infix("/"),
    "floordiv": _by_kind(_call("floor_divide_float"), _call("floor_divide")),
    "truncdiv": _by_kind(lambda a, kind: _builtin("trunc")([f"{a[0]} / {a[1]}"], kind), _call("truncated_divide")),
    "mod": _by_kind(_call("floor_remainder_float"), _call("floor_remainder")),
    "fmod": _by_kind(_math("fmod"), _call("truncated_remainder")),
    "pow": _by_kind(_math("pow"), _call("integer_power")),
    "copysign": _builtin("copysign"),
    "minimum": _extremum("minimum", "<"),
    "maximum": _extremum("maximum", ">"),
    "fmin": _ignoring_nan("<"),
    "fmax": _ignoring_nan(">"),
    "bitwise_and": _infix("&"),
    "bitwise_or": _infix("|"),
    "bitwise_xor": _infix("^"),
    "shl": _call("shift_left"),
    "shr": _call("shift_right"),
    "logical_and": _infix("&"),
    "logical_or": _infix("|"),
    "logical_xor": _infix("^"),
    "eq": _compare("=="),
    "ne": _compare("!="),
    "lt": _compare("<"),
    "le": _compare("<="),
    "gt": _compare(">"),
    "ge": _compare(">="),
    "where": _where,
    "fma": _fma,
}
