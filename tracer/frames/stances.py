"""Stances: what calls of compiled functions do instead of compiling, as `torch.compiler.set_stance` has it."""
from __future__ import annotations

import sys
import types
from collections.abc import Mapping
from typing import Any

import torch

from ...artifacts.records import Recompile
from ..breaks.raised_errors import RecompileError, StanceError
from ..runtime.global_modes import without_overrides
from .registry import REGISTRY

DYNAMO = "torch._dynamo.eval_frame"

FIRST_IN_EAGER = ("eager_then_compile", "aot_eager_then_compile")
"""The stances under which the first call of a function is not compiled for others."""


def stance_there(dynamo: types.ModuleType) -> str:
    """The stance that PyTorch's own torch.compiler.set_stance has stored."""
    return getattr(getattr(dynamo, "_stance", None), "stance", "default")


def stance_in_effect() -> str:
    """The stance in effect, whichever function set it."""
    dynamo = sys.modules.get(DYNAMO)
    return REGISTRY.stance if dynamo is None or REGISTRY.stance != "default" else stance_there(dynamo)


def needs_compilation(frame: Any, reason: Recompile | None) -> StanceError:
    """The error of "fail_on_recompile", with the guard that the call failed."""
    code = frame.f_code
    failed = f"\n    triggered by the following guard failure(s):\n    - {reason.compared_with}: {reason.guard}" if (
        reason) else ""
    return StanceError(
        f"Detected recompile when torch.compile stance is 'fail_on_recompile'. filename: '{code.co_filename}', "
        f"function name: '{code.co_name}', line number: {frame.f_lineno}{failed}"
    )


def recompiled(frame: Any, reason: Recompile) -> RecompileError:
    """The error of `torch._dynamo.config.error_on_recompile`."""
    code = frame.f_code
    return RecompileError(
        f"Recompiling function {code.co_name} in {code.co_filename}:{code.co_firstlineno}\n    triggered by the "
        f"following guard failure(s):\n    - {reason.compared_with}: {reason.guard}"
    )


def backend_in_effect() -> Any:
    """The backend that `set_stance("default", force_backend=...)` asks for, whichever function was called."""
    there = getattr(getattr(sys.modules.get(DYNAMO), "_stance", None), "backend", None)
    return REGISTRY.backend if there is None else there


@without_overrides
def remember_sizes(history: dict[str, Any], variables: Mapping[str, Any]) -> None:
    """Note what a call that runs in eager was given, so that what differs at the next one is dynamic."""
    for name, value in variables.items():
        key = f"L[{name!r}]"
        if isinstance(value, torch.Tensor) and value.layout is torch.strided and not value.is_nested:
            history.setdefault(key, (tuple(value.size()), tuple(value.stride())))
        elif type(value) in (int, float):
            history.setdefault(key, value)


def set_stance(stance: str) -> str:
    """What calls of optimized callables do; returns the previous stance. "force_eager": run the original;
    "eager_on_recompile", "fail_on_recompile": do so, or raise, where a call needs a compilation; "eager_then_compile",
    "aot_eager_then_compile": the first call of each function; else compile."""
    before, REGISTRY.stance = REGISTRY.stance, stance
    REGISTRY.eager = stance == "force_eager"
    return before


def force_backend(backend: Any) -> Any:
    """The backend that is used in the place of each; None: no other. Returns the previous one."""
    before, REGISTRY.backend = REGISTRY.backend, backend
    return before
