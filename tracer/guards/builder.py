"""Collects the guards of one frame while it is traced."""
from __future__ import annotations

import types
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch._C._dynamo.guards import GlobalStateGuard

from ...artifacts.records import Location
from ..shapes.frame_shapes import FrameShapes
from ..sources.source import GLOBAL_STATE, Source
from .kinds import KINDS
from .read import Scope
from .settings import settings_now


@dataclass(frozen=True, slots=True)
class GuardSpec:
    """One guard: the object at `source` satisfies `kind` (an entry of `kinds.KINDS`) with `value`."""

    index: int
    source: Source
    kind: str
    value: Any
    location: Location | None


class GuardBuilder:
    """The guards of one attempt to trace a frame, with access to the frame's real variables.

    Global state (grad mode, autocast, default dtype, function modes, ...) is captured at construction, before tracing
    can change it, and always guarded.
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
        self.locate: Callable[[], Location] | None = None  # the current location; set while guards are recorded
        self.function_modes = [
            torch._C._get_function_stack_at(i) for i in range(torch._C._len_torch_function_stack())
        ]
        self._specs: dict[tuple[Source, str, Any], GuardSpec] = {}
        self._members: dict[tuple[type, str], Any] = {}  # see `class_members.py`
        self.add(GLOBAL_STATE, "GLOBAL_STATE")

    @property
    def specs(self) -> list[GuardSpec]:
        """All guards, in the order in which they were added."""
        return list(self._specs.values())

    def add(self, source: Source | None, kind: str, value: Any = None, location: Location | None = None) -> None:
        """Guard the object at `source`; adding the same guard again changes nothing.

        `value` is what the kind compares with; None where the kind needs nothing, or can read it from the object.
        Raises KeyError for an unknown kind.
        """
        entry = KINDS[kind]
        source = GLOBAL_STATE if source is None else source
        key = (source, kind, entry.key(value))
        if key not in self._specs:
            if location is None and self.locate is not None:
                location = self.locate()
            self._specs[key] = GuardSpec(len(self._specs), source, kind, value, location)

    def member(self, cls: type, name: str, found: Any) -> None:
        """Guard that the class of a library has `found` under `name`: one guard for all of them."""
        self._members.setdefault((cls, name), found)
        self.add(None, "CLASS_MEMBERS", self._members)

    def forget(self) -> None:
        """The guards are written, or not needed: release the user's objects, which may die earlier."""
        self.scope = Scope({}, {}, {})
        self.closure = None
        self._specs.clear()
        self._members = {}
        self.shapes.forget()

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
