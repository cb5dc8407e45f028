"""What this process has compiled, and what it was asked to compile."""
from __future__ import annotations

import types
import weakref
from typing import Any

from ...artifacts.records import Runtime
from ..bytecode.resume_function import is_resume_code
from ..runtime.eval_frame import EntryGuards
from ..runtime.per_code import PerCode


class Registry:
    """What this process has compiled: code objects that must be intercepted, those that have entries, running
    entries."""

    def __init__(self) -> None:
        self.wanted: PerCode[bool] = PerCode()
        self.touched: dict[int, weakref.ref[types.CodeType]] = {}
        self.running: dict[str, tuple[weakref.ref[EntryGuards], list[list[int]]]] = {}
        self.own_codes: weakref.WeakKeyDictionary[Any, types.CodeType] = weakref.WeakKeyDictionary()
        self.ended: dict[str, Runtime] = {}  # statistics of entries that died with the user's objects
        self.stance = "default"
        self.eager = False  # whether the stance is "force_eager"


REGISTRY = Registry()


def is_wanted(code: types.CodeType) -> bool:
    """Whether the program asks for the function to be compiled, or it is the rest of one that is."""
    return code in REGISTRY.wanted or is_resume_code(code)
