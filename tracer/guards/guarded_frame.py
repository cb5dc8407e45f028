"""The real frame that guards are about."""
from __future__ import annotations

import types
from typing import Any

import torch
from torch._C._dynamo.guards import GlobalStateGuard

from ..runtime.tensor_members import as_now
from ..shapes.frame_shapes import FrameShapes
from ..sources.source import Source
from .read import Scope
from .settings import settings_now


class GuardedFrame:
    """A frame's real variables, and torch's global state when its tracing began.

    Global state (grad mode, autocast, default dtype, function modes, ...) is captured at construction, before tracing
    can change it.
    """

    def __init__(
        self,
        code: types.CodeType,
        f_locals: dict[str, Any],
        f_globals: dict[str, Any],
        f_builtins: dict[str, Any],
        closure: tuple[types.CellType, ...] | None,
        shapes: FrameShapes,
    ) -> None:
        self.code = code
        self.closure = closure
        self.shapes = shapes
        self.scope = Scope(f_locals, f_globals, f_builtins)
        self.global_state = GlobalStateGuard()
        self.settings = settings_now(self.global_state)
        self.same_tensor_members = as_now()
        self.function_modes = [
            torch._C._get_function_stack_at(i) for i in range(torch._C._len_torch_function_stack())
        ]

    def value(self, source: Source) -> Any:
        """The real object behind `source` in this frame."""
        return self.scope.value(source)

    def stays_different(self, source: Source, tensor: torch.Tensor) -> bool:
        """Whether one guard checks that this tensor differs from all others. Tensors of modules are left out: they
        rarely change, and the check is costly."""
        return not isinstance(tensor, torch.nn.Parameter) and not self._is_owned_by_module(source)

    def _is_owned_by_module(self, source: Source) -> bool:
        owner = source.base
        while owner is not None:
            if issubclass(type(self.value(owner)), torch.nn.Module):
                return True
            owner = owner.base
        return False
