"""The value of a recorded size: `2*s0 + 1`, `Max(1, s0)`, `(s1//4)`; of a recorded condition: `u0 + 1 >= 0`.

A grammar of our own, of arithmetic alone, in which nothing takes long: text, depth and numbers are bounded.

    whole: condition (("&" | "|") condition)*    condition: sum (("<" | "<=" | ">" | ">=") sum)?
    sum: product (("+" | "-") product)*          power: value ("**" signed)?
    product: signed (("*" | "/" | "//" | "%") signed)*     value: NUMBER | NAME | NAME "(" sums ")" | "(" whole ")"
    signed: "-" signed | "~" signed | power
"""
from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Mapping
from typing import Any

MAX_TEXT = 20_000
MAX_DEPTH = 60
MAX_BITS = 256  # of a number on the way; a size has at most 64

_TOKEN = re.compile(r"\s*(?:(?P<number>\d{1,40}(?:\.\d{0,40})?(?:[eE][-+]?\d{1,3})?)|(?P<name>[A-Za-z_]\w*)"
                    r"|(?P<sign>\*\*|//|<=|>=|[-+*/%(),<>&|~]))")


class SizeError(ValueError):
    """The text is no size that can be evaluated."""


def bounded_pow(base: Any, exponent: Any, *modulus: Any) -> Any:
    """`base ** exponent`, refused where integers would become too large to end."""
    if type(base) in (int, bool) and type(exponent) in (int, bool) and exponent > 1 and abs(base) > 1 and not modulus:
        if base.bit_length() * exponent > 1 << 16:
            raise SizeError("a power of integers has too many digits")
    return pow(base, exponent, *modulus)


def bounded_ipow(base: Any, exponent: Any) -> Any:
    """`base **= exponent`, which writes a tensor."""
    return bounded_pow(base, exponent) if isinstance(base, int) else operator.ipow(base, exponent)


def bounded_ilshift(number: Any, places: Any) -> Any:
    """`number <<= places`, which writes a tensor."""
    return bounded_lshift(number, places) if isinstance(number, int) else operator.ilshift(number, places)


def bounded_lshift(number: Any, places: Any) -> Any:
    """`number << places`, refused where an integer would become too large."""
    if type(number) in (int, bool) and type(places) in (int, bool) and places + number.bit_length() > 1 << 16:
        raise SizeError("a number has too many digits")
    return operator.lshift(number, places)


_SUMS = {"+": operator.add, "-": operator.sub}
_JOINED = {"&": lambda one, other: bool(one) and bool(other), "|": lambda one, other: bool(one) or bool(other)}
_CONDITIONS = {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}
_PRODUCTS = {"*": operator.mul, "/": operator.truediv, "//": operator.floordiv, "%": operator.mod}
_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "Max": max, "Min": min, "FloorDiv": operator.floordiv, "CleanDiv": operator.floordiv, "Mod": operator.mod,
    "PythonMod": operator.mod, "IntTrueDiv": operator.truediv, "Abs": abs, "floor": math.floor, "ceiling": math.ceil,
    "FloatTrueDiv": operator.truediv, "ToFloat": float, "FloorToInt": math.floor, "CeilToInt": math.ceil,
    "TruncToInt": math.trunc, "FloatPow": bounded_pow, "PowByNatural": bounded_pow, "Eq": operator.eq,
    "Ne": operator.ne,
}


def evaluate(text: str, symbols: Mapping[str, float]) -> Any:
    """The number that a size is where its symbols have these values. Raises SizeError."""
    try:
        return _Evaluator(_tokens(text), symbols).whole()
    except (ArithmeticError, TypeError, ValueError) as error:
        if isinstance(error, SizeError):
            raise
        raise SizeError(f"{error}") from error


def _tokens(text: str) -> list[tuple[str, str]]:
    if len(text) > MAX_TEXT:
        raise SizeError("it is too long")
    found, position = [], 0
    while position < len(text.rstrip()):
        match = _TOKEN.match(text, position)
        if match is None or match.lastgroup is None:
            raise SizeError(f"{text[position: position + 20]!r} is no arithmetic")
        found.append((match.lastgroup, match[match.lastgroup]))
        position = match.end()
    return found


class _Evaluator:
    """Recursive descent, one method for each line of the grammar."""

    def __init__(self, tokens: list[tuple[str, str]], symbols: Mapping[str, float]) -> None:
        self._tokens = tokens
        self._symbols = symbols
        self._next = 0
        self._depth = 0

    def whole(self) -> Any:
        value = self._joined()
        if self._next < len(self._tokens):
            raise SizeError(f"{self._tokens[self._next][1]!r} is not expected there")
        return value

    def _joined(self) -> Any:
        return self._chain(_JOINED, self._condition)

    def _condition(self) -> Any:
        value = self._sum()
        if (sign := self._peek()) in _CONDITIONS:
            self._next += 1
            value = _CONDITIONS[sign](value, self._sum())
        return value

    def _sum(self) -> Any:
        return self._chain(_SUMS, self._product)

    def _product(self) -> Any:
        return self._chain(_PRODUCTS, self._signed)

    def _chain(self, operators: Mapping[str, Callable[[Any, Any], Any]], part: Callable[[], Any]) -> Any:
        value = part()
        while (sign := self._peek()) in operators:
            self._next += 1
            value = _checked(operators[sign](value, part()))
        return value

    def _signed(self) -> Any:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise SizeError("it is nested too deeply")
        if self._peek() == "-":
            self._next += 1
            value = -self._signed()
        elif self._peek() == "~":
            self._next += 1
            value = not self._signed()
        else:
            value = self._power()
        self._depth -= 1
        return value

    def _power(self) -> Any:
        base = self._value()
        if self._peek() != "**":
            return base
        self._next += 1
        return _checked(bounded_pow(base, self._signed()))

    def _value(self) -> Any:
        kind, text = self._take()
        if kind == "number":
            return _checked(int(text) if text.isdigit() else float(text))
        if kind == "name" and self._peek() == "(":
            self._next += 1
            return _checked(self._function(text)(*self._arguments()))
        if kind == "name" and text in self._symbols:
            return self._symbols[text]
        if text == "(":
            value = self._joined()
            self._expect(")")
            return value
        raise SizeError(f"{text!r} is not known")

    def _arguments(self) -> list[Any]:
        found = [self._sum()]
        while self._peek() == ",":
            self._next += 1
            found.append(self._sum())
        self._expect(")")
        return found

    def _function(self, name: str) -> Callable[..., Any]:
        if name not in _FUNCTIONS:
            raise SizeError(f"the function {name!r} is not known")
        return _FUNCTIONS[name]

    def _peek(self) -> str:
        kind, text = self._tokens[self._next] if self._next < len(self._tokens) else ("", "")
        return text if kind == "sign" else ""

    def _take(self) -> tuple[str, str]:
        if self._next >= len(self._tokens):
            raise SizeError("it ends too early")
        self._next += 1
        return self._tokens[self._next - 1]

    def _expect(self, sign: str) -> None:
        if self._take()[1] != sign:
            raise SizeError(f"{sign!r} is missing")


def _checked(value: Any) -> Any:
    if isinstance(value, int) and value.bit_length() > MAX_BITS:
        raise SizeError("a number has too many digits")
    if isinstance(value, float) and not math.isfinite(value):
        raise SizeError("a number is not finite")
    return value
