"""What changes `__torch_function__` dispatch (`torch_function_overrides.py`): function modes, and blocks that disable
it."""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
import torch.overrides

from ...breaks.reasons import Reason
from ...breaks.unsupported import Unsupported
from ..core.base import Value
from ..core.constant import constant
from ..core.handlers import handles
from ..core.registry import is_library
from ..python.builtin_functions import BuiltinValue
from .context_manager import CONSTRUCTORS, ModeValue
from .torch_function_overrides import asks, override

if TYPE_CHECKING:
    from ..core.base import Codegen, Translator

Args = Sequence[Value]
Kwargs = Mapping[str, Value]
_C = torch._C


# ---- queries ---------------------------------------------------------------------------------------------------------
@handles(torch.overrides.has_torch_function, _C._has_torch_function)
def _has_override(tx: Translator, args: Args, kwargs: Kwargs) -> Value:
    return constant(_anything_overrides(tx, args[0].iterate(tx)))


@handles(_C._has_torch_function_unary, _C._has_torch_function_variadic)
def _any_has_override(tx: Translator, args: Args, kwargs: Kwargs) -> Value:
    return constant(_anything_overrides(tx, args))


def _anything_overrides(tx: Translator, values: Args) -> bool:
    """torch's answer: yes where a mode is active, `with torch.device(...)` among them. What torch's own functions would
    then do (pass themselves to that mode, which calls them) is skipped."""
    if asks(tx, values):
        return True
    device = _C._is_torch_function_mode_enabled() and not tx.trace.overrides.off
    return device and bool(values) and not is_library(tx.f_globals.get("__name__"))


@handles(torch.overrides.handle_torch_function)
def _handle(tx: Translator, args: Args, kwargs: Kwargs) -> Value:
    """Called by Python functions of torch when one of their arguments has an override."""
    public = args[0]
    answer = override(tx, public.as_constant(), args[2:], kwargs) if isinstance(public, BuiltinValue) else None
    if answer is None:
        answer = override(tx, getattr(public, "function"), args[2:], kwargs)  # noqa: B009
    if answer is None:
        raise Unsupported(Reason.UNSUPPORTED_ARGUMENT, public, detail="with __torch_function__")
    return answer


@handles(_C._len_torch_function_stack)
def _stack_length(tx: Translator, args: Args, kwargs: Kwargs) -> Value:
    return constant(_C._len_torch_function_stack() + len(tx.trace.overrides.modes))


@handles(_C._is_torch_function_enabled)
def _is_enabled(tx: Translator, args: Args, kwargs: Kwargs) -> Value:
    return constant(tx.trace.overrides.on_types)


@handles(_C._is_torch_function_mode_enabled)
def _is_mode_enabled(tx: Translator, args: Args, kwargs: Kwargs) -> Value:
    state = tx.trace.overrides
    return constant(not state.off and (_C._is_torch_function_mode_enabled() or bool(state.modes)))


# ---- modes -----------------------------------------------------------------------------------------------------------
@handles(_C._push_on_torch_function_stack)
def _push(tx: Translator, args: Args, kwargs: Kwargs) -> Value:
    """`with mode:` begins."""
    if isinstance(args[0], ModeValue) or args[0].is_constant():
        raise Unsupported(Reason.CONTEXT_MANAGER, args[0])
    if tx.trace.overrides.off:
        raise Unsupported(Reason.CONTEXT_MANAGER, args[0], detail="where torch function modes are disabled")
    tx.trace.overrides.modes = [*tx.trace.overrides.modes, args[0]]
    return constant(None)


@handles(_C._pop_torch_function_stack)
def _pop(tx: Translator, args: Args, kwargs: Kwargs) -> Value:
    """It ends."""
    modes = tx.trace.overrides.modes
    if not modes:
        raise Unsupported(
            Reason.CONTEXT_MANAGER, detail="a torch function mode that was entered outside of the traced function"
        )
    tx.trace.overrides.modes = modes[:-1]
    return modes[-1]


class DisabledValue(ModeValue):
    """`torch._C.DisableTorchFunctionSubclass()`, and `DisableTorchFunction()`, which also disables modes."""

    __slots__ = ("before", "cls")

    def __init__(self, cls: type) -> None:
        super().__init__()
        self.cls = cls
        self.before: tuple[list[Value], bool, bool] | None = None

    def python_type(self) -> type:
        """The manager's class."""
        return self.cls

    def enter(self, tx: Translator) -> Value:
        """Disable the overrides."""
        state = tx.trace.overrides
        self.before = state.modes, state.on_types, state.off
        state.on_types = False
        if self.cls is _C.DisableTorchFunction:
            state.modes, state.off = [], True
        return constant(None)

    def leave(self, tx: Translator) -> None:
        """Restore them."""
        if self.before is None:
            raise Unsupported(Reason.CONTEXT_MANAGER, self, detail=", left before it was entered,")
        state = tx.trace.overrides
        state.modes, state.on_types, state.off = self.before

    def clone(self) -> ModeValue:
        """A fresh one."""
        return DisabledValue(self.cls)

    def reconstruct(self, codegen: Codegen) -> None:
        """`cls()`."""
        codegen.push_function(self.cls)
        codegen.call(0)

    def describe(self) -> str:
        """For messages."""
        return f"torch._C.{self.cls.__name__}()"


_DISABLED: tuple[Any, ...] = (_C.DisableTorchFunctionSubclass, _C.DisableTorchFunction)  # classes, in the stubs not
for _cls in _DISABLED:
    CONSTRUCTORS[_cls] = lambda *_, cls=_cls: DisabledValue(cls)
