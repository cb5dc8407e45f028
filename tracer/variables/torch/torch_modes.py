"""Modes of torch other than gradients and autocast (`context_manager.py`): calls that set one are made for real while
tracing and are nodes of the graph; the previous mode is a constant that is guarded where the global state guard does
not cover it."""
from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch._C import _SDPBackend
from torch.autograd.grad_mode import inference_mode
from torch.autograd.profiler import record_function

from ....operators.graph_calls import enter_inference_mode, exit_inference_mode, set_deterministic
from ...breaks.reasons import Reason
from ...breaks.unsupported import Unsupported
from ...runtime.global_modes import (
    ATTENTION,
    Modes,
    set_saved_tensors_error,
)
from ...sources.roots import GLOBAL_STATE
from ...sources.source import Source
from ..core.base import Value
from ..core.constant import constant
from ..core.handlers import NAMED, handles
from ..core.registry import BUILDERS_BY_NAME, CONSTANT_TYPES, builds, from_python
from .context_manager import CONSTRUCTORS, ModeValue, boolean, mode_node, refuse_subclass

if TYPE_CHECKING:
    from ..core.base import Codegen, Translator

Args = Sequence[Value]
Kwargs = Mapping[str, Value]


CONSTANT_TYPES.add(_SDPBackend)


def set_mode(tx: Translator, function: Callable[..., Any], args: tuple[Any, ...]) -> None:
    """Call `function(*args)` for the rest of the trace, and in the graph at this place."""
    function(*args)
    mode_node(tx, function, args)


def _sets(*functions: Callable[..., Any]) -> None:
    """Functions of constants that set a mode and return nothing."""
    for function in functions:

        @handles(function)
        def handler(tx: Translator, args: Args, kwargs: Kwargs, function: Any = function) -> Value:
            plain = [*args, *kwargs.values()]
            constants = tuple([value.as_constant() for value in plain])
            try:
                function(*constants)
            except TypeError as error:
                raise Unsupported(Reason.UNSUPPORTED_ARGUMENT, function, detail=f": {error}") from error
            mode_node(tx, function, constants)
            return constant(None)


_C = torch._C
_sets(
    torch.set_default_dtype, _C._set_fwd_grad_enabled, _C._functorch.set_inplace_requires_grad_allowed,
    *(getattr(_C, f"_set_sdp_use_{name}") for name in ATTENTION), _C._set_sdp_priority_order,
)  # fmt: skip


_NEVER_SET = (
    torch.is_anomaly_enabled, torch.is_anomaly_check_nan_enabled, torch.is_warn_always_enabled,
    torch._C._get_mkldnn_enabled, torch._C._get_cudnn_enabled, torch.backends.mha.get_fastpath_enabled,
)
"""Modes that no trace sets."""


def _settable(modes: Modes) -> tuple[Any, ...]:
    return modes.attention, modes.forward_grad, modes.in_place_requires_grad


def _reads(*functions: Callable[..., Any]) -> None:
    """Functions without arguments that read a mode; the value at the frame's start is guarded."""
    for function in functions:
        at_start = f"{function.__name__}() is unchanged"

        @handles(function)
        def handler(
            tx: Translator, args: Args, kwargs: Kwargs, function: Any = function, words: str = at_start
        ) -> Value:
            now = function()
            if not tx.graph.sets_modes or function in _NEVER_SET:
                tx.guards.add(GLOBAL_STATE, "LAMBDA", (lambda _, now=now: function() == now, words))
            else:  # the trace may have set it itself
                before = _settable(tx.trace.modes)
                same = (lambda _: _settable(Modes.now()) == before, "the modes that a graph sets are unchanged")
                tx.guards.add(GLOBAL_STATE, "LAMBDA", same)
            return from_python(tx, now)


_reads(
    *(getattr(_C, f"_get_{name}_sdp_enabled") for name in ATTENTION), _C._get_sdp_priority_order,
    _C._is_fwd_grad_enabled, _C._functorch.get_inplace_requires_grad_allowed, *_NEVER_SET,
)  # fmt: skip


@handles(torch.use_deterministic_algorithms)
def _use_deterministic(tx: Translator, args: Args, kwargs: Kwargs) -> Value:
    given = dict(zip(("mode",), args)) | dict(kwargs)
    plain = {name: boolean(value, "torch.use_deterministic_algorithms") for name, value in given.items()}
    set_mode(tx, set_deterministic, ((plain["mode"], plain.get("warn_only", False)),))
    return constant(None)


# ---- the inference mode ----------------------------------------------------------------------------------------------
class InferenceModeValue(ModeValue):
    """`torch.inference_mode(mode)`: a pair of nodes around the block."""

    __slots__ = ("enabled", "node")

    def __init__(self, enabled: bool, source: Source | None = None) -> None:
        super().__init__(source)
        self.enabled = enabled
        self.node: torch.fx.Node | None = None

    def python_type(self) -> type:
        """The manager's class."""
        return inference_mode

    def enter(self, tx: Translator) -> Value:
        """Enter for real, so that fake results are inference tensors where eager's are, and in the graph."""
        tx.trace.inference_modes.append(enter_inference_mode(self.enabled))
        self.node = mode_node(tx, enter_inference_mode, (self.enabled,))
        return constant(None)

    def leave(self, tx: Translator) -> None:
        """Leave both."""
        if self.node is None:
            raise Unsupported(Reason.CONTEXT_MANAGER, torch.inference_mode, detail=", left before it was entered,")
        exit_inference_mode(tx.trace.inference_modes.pop())
        mode_node(tx, exit_inference_mode, (self.node,))
        self.node = None

    def clone(self) -> ModeValue:
        """The same mode, not entered."""
        return InferenceModeValue(self.enabled)

    def reconstruct(self, codegen: Codegen) -> None:
        """`torch.inference_mode(mode)`; no call makes one that is already entered."""
        if self.node is not None:
            raise Unsupported(Reason.CONTEXT_MANAGER, self, detail=", which is left by hand,")
        codegen.call_const(inference_mode, [constant(self.enabled)])

    def describe(self) -> str:
        """For messages."""
        return f"torch.inference_mode({self.enabled})"


def _inference_mode(tx: Translator, args: Args, kwargs: Kwargs) -> Value:
    given = [*args, *kwargs.values()]
    if given and not given[0].is_constant():
        return InferenceModeValue(True).call(tx, given, {})
    return InferenceModeValue(boolean(given[0], "torch.inference_mode") if given else True)


CONSTRUCTORS[inference_mode] = _inference_mode


@builds(inference_mode)
def build_inference_mode(tx: Translator, obj: Any, source: Source | None) -> Value:
    """An existing manager, as in a decorator's closure; one that was entered elsewhere is left to eager."""
    refuse_subclass(type(obj), inference_mode)
    if "_inference_mode_context" in obj.__dict__:
        raise Unsupported(
            Reason.CONTEXT_MANAGER, detail="an inference mode that was entered outside the traced function"
        )
    if source is not None:
        tx.guards.add(source, "ID_MATCH", obj)
    return InferenceModeValue(obj.mode, source)


# ---- blocks that only observe ----------------------------------------------------------------------------------------
class RecordFunctionContext(ModeValue):
    """A block that changes no value (`record_function`): entering and leaving it does nothing in the graph. `state`
    says whether traced code made, entered or left it."""

    __slots__ = ("settings", "state")

    def __init__(self, *settings: Any) -> None:
        super().__init__()
        self.settings = settings
        self.state = "made"

    def python_type(self) -> type:
        """The manager's class."""
        return record_function

    def enter(self, tx: Translator) -> Value:
        """The manager itself."""
        self.state = "entered"
        return self

    def leave(self, tx: Translator) -> None:
        """Nothing to restore."""
        if self.state == "made":
            raise Unsupported(Reason.CONTEXT_MANAGER, self, detail=", left before it was entered,")
        self.state = "left"

    def clone(self) -> ModeValue:
        """Another of the same name."""
        return RecordFunctionContext(*self.settings)

    def reconstruct(self, codegen: Codegen) -> None:
        """`record_function(...)`, in the state in which user code expects it."""
        codegen.call_const(record_function_in_state, [constant(part) for part in (self.state, *self.settings)])

    def describe(self) -> str:
        """For messages."""
        return f"record_function({self.settings[0]!r})"


def record_function_in_state(state: str, *settings: Any) -> record_function:
    """A `record_function(*settings)` that was only made, entered, or left too."""
    block = record_function(*settings)
    if state != "made":
        block.__enter__()
    if state == "left":
        block.__exit__(None, None, None)
    return block


def _watcher(name: Value, args: Value | None = None) -> Value:
    return RecordFunctionContext(name.as_constant(), *([] if args is None else [args.as_constant()]))


CONSTRUCTORS[record_function] = lambda tx, args, kwargs: _watcher(*args, **kwargs)


class NoOpContext(ModeValue):
    """A block without effect on what is traced."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name

    def check_method(self, tx: Translator, name: str) -> None:
        """A function makes it: its class is contextlib's."""

    def enter(self, tx: Translator) -> Value:
        """None."""
        return constant(None)

    def leave(self, tx: Translator) -> None:
        """Nothing to restore."""

    def describe(self) -> str:
        """For messages."""
        return self.name


class WithoutHooksValue(NoOpContext):
    """A block in which saved tensors hooks are an error. No node of the graph adds such hooks, so the mode is set while
    tracing only, for code that reads it."""

    __slots__ = ("message", "previous")

    def __init__(self, message: str) -> None:
        super().__init__("torch.autograd.graph.disable_saved_tensors_hooks")
        self.message = message
        self.previous: str | None = None

    def enter(self, tx: Translator) -> Value:
        """None."""
        self.previous = _C._autograd._saved_tensors_hooks_get_disabled_error_message()
        set_saved_tensors_error(self.message)
        return constant(None)

    def leave(self, tx: Translator) -> None:
        """As it was before."""
        set_saved_tensors_error(self.previous)


@handles(torch.autograd.graph.disable_saved_tensors_hooks)
def _disable_hooks(tx: Translator, args: Args, kwargs: Kwargs) -> Value:
    """The block in which torch.func's transforms run: active hooks are an error there."""
    if _C._autograd._top_saved_tensors_default_hooks(False) is not None or tx.graph.checkpoint:
        raise Unsupported(Reason.CONTEXT_MANAGER, detail="saved tensors hooks around a transform of torch.func")
    return WithoutHooksValue([*args, *kwargs.values()][0].as_constant())


NAMED["torch._dynamo.compiled_autograd", "_disable"] = lambda tx, args, kwargs: NoOpContext("compiled autograd is off")


# ---- settings of TorchDynamo that do not apply to ptdebug ------------------------------------------------------------
class DynamoSettingsValue(NoOpContext):
    """`torch._dynamo.dont_skip_tracing()` and its like: a block, or a decorator."""

    __slots__ = ()

    def call(self, tx: Translator, args: Args, kwargs: Kwargs) -> Value:
        """The decorated function, unchanged."""
        return [*args, *kwargs.values()][0]


def _build_settings(tx: Translator, obj: Any, source: Any) -> Value:
    return DynamoSettingsValue("settings of TorchDynamo")


def _settings(tx: Translator, args: Args, kwargs: Kwargs) -> Value:
    function = next((value for value in (*args, *kwargs.values()) if not value.is_constant()), None)
    return DynamoSettingsValue("settings of TorchDynamo") if function is None else function


_DECORATORS = "torch._dynamo.decorators"
BUILDERS_BY_NAME[_DECORATORS, "DynamoConfigPatchProxy"] = _build_settings
for _name in ("dont_skip_tracing", "disable_nested_graph_breaks", "patch_dynamo_config"):
    NAMED[_DECORATORS, _name] = _settings
