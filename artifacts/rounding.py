"""Readable floats: `0.3` for 0.30000000000000004, unless a different number beside it would look the same."""
from __future__ import annotations

import re

_FLOAT = re.compile(r"(?<![\w.])\d+\.\d+(?:e[+-]?\d+)?(?![\w.])")
_INT = re.compile(r"(?<![\w.])\d+(?![\w.])")
_DIGITS = 6  # at least
_MOST = 17
"""Digits that distinguish any two floats."""


def rounded(text: str) -> str:
    """`text` with its floats rounded to six digits, or as many as distinguish them."""
    numbers = {found: float(found) for found in _FLOAT.findall(text)}
    whole = set(map(float, _INT.findall(text)))
    different = len(whole | set(numbers.values()))
    for digits in range(_DIGITS, _MOST + 1):
        short = {found: min(found, _short(number, digits), key=len) for found, number in numbers.items()}
        if len(whole | set(map(float, short.values()))) == different:
            break
    return _FLOAT.sub(lambda found: short[found[0]], text)


def _short(number: float, digits: int) -> str:
    """Without an exponent for the integer part."""
    before = len(str(int(number)))
    text = f"{number:.{max(digits, before)}g}" if before <= _MOST else repr(number)
    return text if re.search(r"[.en]", text) else f"{text}.0"
