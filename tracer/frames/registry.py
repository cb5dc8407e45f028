"""What this process has compiled, and what it was asked to compile."""
from __future__ import annotations

import types
import weakref
from typing import Any

from ...artifacts.records import Runtime
from ..bytecode.resume_function import is_resume_code
from ..guards import failures
from ..runtime import eval_frame
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
        self.backend: Any = None  # the one that the stance forces
        self.eager = False  # whether the stance is "force_eager"

    def runtime(self, compile_id: str) -> Runtime:
        """How often the graphs of a compilation were called, and how often its guards failed."""
        reference, counters = self.running[compile_id]
        guards = reference()
        root = guards.root if guards is not None else None
        failed = (root.fail_count(), failures(root)) if root is not None else (0, {})
        return Runtime(max((counter[0] for counter in counters), default=0), failed[0], failed=failed[1])

    def let_go(self, code: types.CodeType) -> None:
        """Drop what is compiled for code that nothing can call any more, but for its run times: the tracer's caches
        keep code."""
        for entry in eval_frame.entries(code):
            compile_id = getattr(entry.guard_manager, "compile_id", None)
            if compile_id in self.running:
                self.ended[compile_id] = self.runtime(compile_id)
        eval_frame.reset_code(code)


REGISTRY = Registry()


def is_wanted(code: types.CodeType) -> bool:
    """Whether the program asks for the function to be compiled, or it is the rest of one that is."""
    return code in REGISTRY.wanted or is_resume_code(code)
