"""When one constant is as good as another."""
from __future__ import annotations

from typing import Any

import numpy as np

INEXACT = (float, complex, np.inexact)


def is_same_constant(a: Any, b: Any) -> bool:
    """Whether two constants are indistinguishable: equal in type, value and sign of zero, recursively."""
    if a is b:
        return True
    if type(a) is not type(b):
        return False
    if type(a) in (tuple, list):
        return len(a) == len(b) and all(is_same_constant(x, y) for x, y in zip(a, b))
    if type(a) is range:
        return (a.start, a.stop, a.step) == (b.start, b.stop, b.step)
    if type(a) is dict:
        return is_same_constant(list(a.items()), list(b.items()))
    if type(a) in (set, frozenset):
        return a == b and is_same_constant(sorted(map(repr, a)), sorted(map(repr, b)))
    if isinstance(a, INEXACT):
        return repr(a) == repr(b)
    return bool(a == b)
