"""ptdebug's errors that reach the program.

What Dynamo raises in their place can be caught: once `torch._dynamo.exc` is loaded (which is when a program can name
its classes) `become_dynamos` makes each of ours a subclass of Dynamo's, those that are on their way included.
"""
from __future__ import annotations

import sys
from contextlib import suppress
from types import ModuleType
from typing import Any


class _ErrorOfOurs(RuntimeError):
    """A class that is made here stands between: the bases of one right below a built-in class cannot change."""

    def __init__(self, message: str) -> None:
        RuntimeError.__init__(self, message)
        self.msg = message


class FullGraphError(_ErrorOfOurs):
    """The frame does not fit into one graph although `fullgraph=True` asked for it; Dynamo's `Unsupported`."""

    real_stack: tuple[Any, ...] = ()
    gb_type = ""
    skip_frame = False


class BackendCompilerFailed(_ErrorOfOurs):
    """A backend of the program's own raised `inner_exception`."""

    first_useful_frame = None

    def __init__(self, backend: Any, error: Exception) -> None:
        self.backend_name = str(getattr(backend, "__name__", backend))
        self.inner_exception = error
        _ErrorOfOurs.__init__(self, f"backend={self.backend_name!r} raised:\n{type(error).__name__}: {error}")


class _OtherErrorOfOurs(Exception):
    """The same for what is no RuntimeError in Dynamo."""


class RecompileLimitError(_OtherErrorOfOurs):
    """A function was compiled as often as it may, and `fullgraph=True` allows no eager; `FailOnRecompileLimitHit`."""


class StanceError(RuntimeError):
    """`set_stance("fail_on_recompile")` is in force, and a call needs a compilation."""


class RecompileError(_ErrorOfOurs):
    """A call needs another compilation, and `torch._dynamo.config.error_on_recompile` is set; Dynamo's of that name."""


TO_THE_PROGRAM = (FullGraphError, BackendCompilerFailed, RecompileLimitError, StanceError, RecompileError)


def become_dynamos(exc: ModuleType) -> None:
    """Make ours subclasses of those of `torch._dynamo.exc`, as far as this torch's allow it."""
    pairs: dict[type, str] = {
        FullGraphError: "Unsupported", BackendCompilerFailed: "BackendCompilerFailed",
        RecompileLimitError: "FailOnRecompileLimitHit", RecompileError: "RecompileError",
    }
    for ours, name in pairs.items():
        with suppress(AttributeError, TypeError):
            ours.__bases__ = (getattr(exc, name),)


def kept_in_eager(error: BackendCompilerFailed) -> str:
    """Why the frame runs in eager although its backend failed; "" where the program is to get the error."""
    skip = getattr(sys.modules.get("torch._dynamo.exc"), "SkipFrame", ())
    if isinstance(error.inner_exception, skip):
        return f"the backend {error.backend_name!r} leaves the frame to eager (SkipFrame)"
    suppressed = getattr(sys.modules.get("torch._dynamo.config"), "suppress_errors", False)
    return f"{error} (torch._dynamo.config.suppress_errors is set)" if suppressed else ""
