"""Stances: what calls of compiled functions do instead of compiling, as `torch.compiler.set_stance` has it."""
from __future__ import annotations

import sys
import types
from typing import Any

from ...artifacts.records import Recompile
from ..breaks.raised_errors import StanceError
from .registry import REGISTRY

DYNAMO = "torch._dynamo.eval_frame"


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


def set_stance(stance: str) -> str:
    """What calls of optimized callables do; returns the previous stance. "force_eager": run the original;
    "eager_on_recompile", "fail_on_recompile": do so, or raise, where a call needs a compilation; else compile."""
    before, REGISTRY.stance = REGISTRY.stance, stance
    REGISTRY.eager = stance == "force_eager"
    return before
