"""The side effects at the end of a captured frame, and how one ends that returns."""
from __future__ import annotations

from collections.abc import Callable

import torch

from ..breaks.reasons import Reason
from ..breaks.unsupported import Unsupported
from ..effects.aliasing import guard_distinct
from ..effects.reconstruct import Codegen
from ..interpreter.destructors import dies_visibly
from ..interpreter.interpreter import Interpreter
from ..interpreter.owned_objects import holds_observably
from ..runtime.global_modes import LASTING, Modes
from ..variables.core.base import Value


def finish_effects(root: Interpreter, codegen: Codegen) -> None:
    """Emit the side effects of the frame, and what lasts of its modes."""
    guard_distinct(root)
    changes = root.effects.push_operands(codegen)
    root.effects.apply(changes, codegen)
    if root.trace.open_variables:
        raise Unsupported(Reason.GLOBAL_STATE, root.trace.open_variables[-1], detail=", set and not reset,")
    for mode in root.trace.overrides.modes:  # entered and not left, so they are active after the frame
        codegen.push_function(torch._C._push_on_torch_function_stack)
        codegen(mode)
        codegen.call(1)
        codegen.emit("POP_TOP")
    now = Modes.now()
    for name in root.trace.modes.differences(now, root.graph.sets_modes):
        if name not in LASTING:
            raise Unsupported(Reason.GLOBAL_STATE, detail=f"a mode that is still on ({name.replace('_', ' ')})")
        codegen.push_function(LASTING[name])
        codegen.const(getattr(now, name))
        codegen.call(1)
        codegen.emit("POP_TOP")


def _dies_with_frame(root: Interpreter, value: Value) -> bool:
    """Whether the death of the object in a variable is observable, or brings such a one."""
    return dies_visibly(root, value) or holds_observably(root, value)


def return_body(root: Interpreter) -> Callable[[Codegen], None]:
    """The end of a frame that returned."""

    def body(codegen: Codegen) -> None:
        assert root.returned is not None
        held = {name: value for name, value in root.locals.items() if _dies_with_frame(root, value)}
        others = [value for value in root.trace.owned if value not in held.values()]
        held |= {f".ours_kept_{i}": value for i, value in enumerate(others)}
        codegen(root.returned)
        for value in held.values():
            codegen(value)
        finish_effects(root, codegen)
        codegen.store_all(held)  # they die with the frame, as in eager
        codegen.emit("RETURN_VALUE")

    return body
