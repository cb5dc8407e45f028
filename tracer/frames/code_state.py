"""What is remembered of a code object from one compilation to the next."""
from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any


@dataclass
class CodeState:
    """The state of one code object over all its compilations."""

    frame: int = -1  # F of the compile id F/C; given at the first compilation
    compiles: int = 0
    fruitless: int = 0  # calls that had nothing to compile
    history: dict[str, Any] = field(default_factory=dict)  # sizes and ints seen, for DynamicPolicy
    limit_said: bool = False
    limit: int | None = None  # of compilations, where an override sets one
    was_called: bool = False  # under a stance that leaves the first call to eager
    watchers: set[str] = field(default_factory=set)  # reasons for which calls ran in eager for a while
    raised: int = 0  # entries that went because the call that they were made for raised
    failures: Counter[str] = field(default_factory=Counter)  # of guards, by the variable that they are about
