"""Context managers that set a mode of torch: gradients, autocast. Entering one sets the mode for the rest of the trace
and adds the node that sets it when the graph runs; leaving it does the same with the previous mode.

Managers written in Python (contextlib.nullcontext, user-defined ones) are ordinary objects and are traced through.
`CONSTRUCTORS` has the result of calling each of torch's manager classes.
"""
from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import FunctionType
from typing import TYPE_CHECKING, Any

import torch
from torch._C import _functorch
from torch.amp.autocast_mode import _enter_autocast, _exit_autocast, autocast_decorator
from torch.utils._contextlib import context_decorator

from ....operators.graph_calls import exchange_grad_mode
from ...breaks.reasons import Reason
from ...breaks.unsupported import Unsupported
from ...sources.source import AttrSource, Source
from ..core.base import Value
from ..core.constant import constant
from ..core.handlers import handles
from ..core.identity_guards import guard_library_member
from ..core.registry import builds, from_python

if TYPE_CHECKING:
    from ..core.base import Codegen, Translator


class ModeValue(Value):
    """A context manager that is modeled instead of interpreted. Subclasses say how the mode is set; `source` is that of
    a real one."""

    __slots__ = ()

    resumable = True
    handles_exceptions = False

    def truth(self, tx: Translator) -> bool:
        """Managers are true."""
        return True

    def enter(self, tx: Translator) -> Value:
        """`__enter__`: set the mode."""
        raise NotImplementedError

    def leave(self, tx: Translator) -> None:
        """`__exit__`: set the previous mode."""
        raise NotImplementedError

    def clone(self) -> ModeValue:
        """A fresh manager of the same mode."""
        raise NotImplementedError

    def check_method(self, tx: Translator, name: str) -> None:
        """Guard that the class's method is torch's."""
        check_written(tx, self.python_type(), name)

    def getattr(self, tx: Translator, name: str) -> Value:
        """`__enter__`, `__exit__` and `clone` as bound methods."""
        if name in ("__enter__", "__exit__", "clone"):
            return ModeMethod(self, name)
        if name == "__class__":
            return from_python(tx, self.python_type())
        return super().getattr(tx, name)

    def call(self, tx: Translator, args: Sequence[Value], kwargs: Mapping[str, Value]) -> Value:
        """As a decorator: the function, with a fresh manager around each call."""
        return from_python(tx, context_decorator).call(tx, [ModeMethod(self, "clone"), *args], kwargs)

    def call_method(self, tx: Translator, name: str, args: Sequence[Value], kwargs: Mapping[str, Value]) -> Value:
        """The calls of those methods; `__exit__` never swallows an exception."""
        if name in ("__enter__", "__exit__"):
            self.check_method(tx, name)
        if name == "__enter__":
            return self.enter(tx)
        if name == "__exit__":
            self.leave(tx)
            return constant(None)
        if name == "clone":
            return self.clone()
        return super().call_method(tx, name, args, kwargs)


class ModeMethod(Value):
    """A bound method of a mode's manager."""

    __slots__ = ("manager", "name")

    def __init__(self, manager: ModeValue, name: str) -> None:
        super().__init__()
        self.manager = manager
        self.name = name

    def python_type(self) -> type:
        """Bound methods."""
        return type(self.reconstruct)

    def truth(self, tx: Translator) -> bool:
        """Methods are true."""
        return True

    def call(self, tx: Translator, args: Sequence[Value], kwargs: Mapping[str, Value]) -> Value:
        """Call it."""
        return self.manager.call_method(tx, self.name, args, kwargs)

    def getattr(self, tx: Translator, name: str) -> Value:
        """What bound methods have: no attributes of a context manager."""
        if name == "__self__":
            return self.manager
        if name in ("__enter__", "__exit__"):
            tx.raise_observed(AttributeError, f"'method' object has no attribute '{name}'")
        return super().getattr(tx, name)

    def reconstruct(self, codegen: Codegen) -> None:
        """The method, read from the manager."""
        codegen(self.manager)
        codegen.load_attr(self.name)

    def describe(self) -> str:
        """For messages."""
        return f"the method {self.name} of {self.manager.describe()}"


def check_written(tx: Translator, cls: type, name: str) -> None:
    """Guards that a method of a manager's class is torch's. Raises Unsupported where the program has put another
    there."""
    found = next((vars(base)[name] for base in cls.__mro__ if name in vars(base)), None)
    if isinstance(found, FunctionType) and found.__module__ != cls.__module__:
        raise Unsupported(Reason.CONTEXT_MANAGER, cls, detail=f", whose {name} was replaced")
    guard_library_member(tx, cls, name, found)


class GradModeValue(ModeValue):
    """`torch.no_grad()`, `enable_grad()` and `set_grad_enabled(mode)`. `previous` is known once it is entered."""

    __slots__ = ("cls", "enabled", "node", "previous")

    def __init__(self, cls: type, enabled: bool, previous: bool | None = None, source: Source | None = None) -> None:
        super().__init__(source)
        self.cls = cls
        self.enabled = enabled
        self.previous = previous
        self.node: torch.fx.Node | None = None

    def python_type(self) -> type:
        """The manager's class."""
        return self.cls

    def enter(self, tx: Translator) -> Value:
        """Set the mode; `set_grad_enabled` did so when it was made, and remembers the mode before that."""
        if self.previous is None or self.cls is not torch.set_grad_enabled:
            self.previous = torch.is_grad_enabled()
        if _functorch.get_dynamic_layer_stack_depth():  # the graph may be called with gradients off
            self.node = mode_node(tx, exchange_grad_mode, (self.enabled,))
            torch._C._set_grad_enabled(self.enabled)
        else:
            set_grad_mode(tx, self.enabled)
        return constant(None)

    def leave(self, tx: Translator) -> None:
        """Restore the previous mode."""
        if self.previous is None:
            raise Unsupported(Reason.CONTEXT_MANAGER, self, detail=", left before it was entered,")
        if self.node is not None:
            mode_node(tx, torch._C._set_grad_enabled, (self.node,))
            torch._C._set_grad_enabled(self.previous)
            self.node = None
        else:
            set_grad_mode(tx, self.previous)

    def clone(self) -> ModeValue:
        """The same mode, not entered."""
        return GradModeValue(self.cls, self.enabled)

    def call(self, tx: Translator, args: Sequence[Value], kwargs: Mapping[str, Value]) -> Value:
        """As a decorator; `set_grad_enabled` then undoes what it set when it was made."""
        if self.cls is torch.set_grad_enabled and self.previous is not None:
            set_grad_mode(tx, self.previous)
        return super().call(tx, args, kwargs)

    def reconstruct(self, codegen: Codegen) -> None:
        """`cls()`; where it was entered, it remembers the previous mode. A fresh set_grad_enabled would set the mode:
        one that was never entered is a manager of the same mode that does not."""
        made = (self.cls, self.enabled, self.previous) if self.previous is not None else ()
        codegen.push_function(entered if made else torch.enable_grad if self.enabled else torch.no_grad)
        for part in made:
            codegen.const(part)
        codegen.call(len(made))

    def describe(self) -> str:
        """For messages."""
        return f"torch.{self.cls.__name__}()"


def entered(cls: Any, mode: bool, previous: bool) -> Any:
    """A manager of the grad mode that was made, or entered, when the mode was `previous`; the current mode is not
    changed."""
    manager = cls.__new__(cls)
    manager.prev = previous
    if cls is torch.set_grad_enabled:
        manager.mode = mode
    return manager


def boolean(value: Value, what: str) -> bool:
    """The bool value: C++ raises TypeError for anything else, even an int, so such calls are left to eager."""
    plain = value.as_constant()
    if type(plain) is not bool:
        raise Unsupported(Reason.UNSUPPORTED_ARGUMENT, detail=f"{what} of what is not a bool")
    return plain


def set_grad_mode(tx: Translator, enabled: bool) -> None:
    """Set the grad mode for the rest of the trace, and in the graph at this place."""
    if torch.is_grad_enabled() != enabled:
        torch._C._set_grad_enabled(enabled)
        mode_node(tx, torch._C._set_grad_enabled, (enabled,))


class AutocastValue(ModeValue):
    """`torch.autocast(device_type, dtype, enabled, cache_enabled)`: a pair of nodes around the block. `found`: the
    state that an existing one keeps of its last block, which may still be open; it is restored when it is left."""

    __slots__ = ("found", "node", "real", "settings")

    def __init__(
        self, settings: tuple[Any, ...], source: Source | None = None, found: tuple[Any, ...] | None = None
    ) -> None:
        super().__init__(source)
        self.settings = settings
        self.found = found
        self.real: Any = None
        self.node: torch.fx.Node | None = None

    def python_type(self) -> type:
        """The manager's class."""
        return torch.autocast

    def enter(self, tx: Translator) -> Value:
        """Enter for real, so that fake results have the dtypes that autocast gives, and in the graph."""
        if self.real is not None:
            raise Unsupported(Reason.CONTEXT_MANAGER, self, detail="is entered again before it is left")
        if self.found is not None:
            guard_autocast_dtype(tx, self.settings[0])
            if self.found != _autocast_state(self.settings[0]):  # entering would change the state that it restores
                raise Unsupported(
                    Reason.CONTEXT_MANAGER, detail="an autocast block that was entered outside the traced function"
                )
        try:
            self.real = _enter_autocast(*self.settings)
        except TypeError as error:
            raise Unsupported(Reason.CONTEXT_MANAGER, torch.autocast, detail=f": {error}") from error
        self.node = mode_node(tx, _enter_autocast, self.settings)
        return self

    def leave(self, tx: Translator) -> None:
        """Leave both."""
        if self.real is None or self.node is None:
            raise Unsupported(Reason.CONTEXT_MANAGER, torch.autocast, detail=", left before it was entered,")
        _exit_autocast(self.real)
        mode_node(tx, _exit_autocast, (self.node,))
        self.real = None

    def call(self, tx: Translator, args: Sequence[Value], kwargs: Mapping[str, Value]) -> Value:
        """As a decorator: the function, with this manager around each call."""
        return from_python(tx, autocast_decorator).call(tx, [self, *args], kwargs)

    def reconstruct(self, codegen: Codegen) -> None:
        """`torch.autocast(...)`."""
        codegen.call_const(torch.autocast, [constant(setting) for setting in self.settings])

    def describe(self) -> str:
        """For messages."""
        return f"torch.autocast({self.settings[0]!r})"


def mode_node(tx: Translator, function: Callable[..., Any], args: tuple[Any, ...]) -> torch.fx.Node:
    """The node that sets a mode when the graph runs."""
    tx.graph.sets_modes = True
    node = tx.graph.make(function, args, {})
    node.meta["stack"] = tx.stack_locations()
    node.meta["module"] = tx.trace.module_path
    return node


# ---- making them ---------------------------------------------------------------------------------------------------
def _no_grad(tx: Translator, args: Sequence[Value], kwargs: Mapping[str, Value]) -> Value:
    manager = GradModeValue(torch.no_grad, False)
    return manager.call(tx, args, kwargs) if args or kwargs else manager


def _enable_grad(tx: Translator, args: Sequence[Value], kwargs: Mapping[str, Value]) -> Value:
    manager = GradModeValue(torch.enable_grad, True)
    return manager.call(tx, args, kwargs) if args or kwargs else manager


def _set_grad_enabled(tx: Translator, args: Sequence[Value], kwargs: Mapping[str, Value]) -> Value:
    if len(args) + len(kwargs) != 1 or not kwargs.keys() <= {"mode"}:
        raise Unsupported(Reason.UNSUPPORTED_ARGUMENT, torch.set_grad_enabled, detail=", which takes one argument")
    mode = boolean([*args, *kwargs.values()][0], "torch.set_grad_enabled")
    previous = torch.is_grad_enabled()
    set_grad_mode(tx, mode)
    return GradModeValue(torch.set_grad_enabled, mode, previous)


def guard_autocast_dtype(tx: Translator, device: str) -> None:
    """Autocast's default dtype: C++ compares it only where autocast is enabled."""
    now = tx.trace.modes.autocast_dtype(device)
    words = f"torch.get_autocast_dtype({device!r}) is {now}"
    tx.guards.add(None, "LAMBDA", (lambda _: torch.get_autocast_dtype(device) is now, words))


def _autocast(tx: Translator, args: Sequence[Value], kwargs: Mapping[str, Value]) -> Value:
    given = dict(zip(("device_type", "dtype", "enabled", "cache_enabled"), args)) | dict(kwargs)
    plain = {name: value.as_constant() for name, value in given.items()}
    device = plain["device_type"]
    dtype = plain.get("dtype")
    if dtype is None:
        guard_autocast_dtype(tx, device)
        dtype = torch.get_autocast_dtype(device)
    cache = plain.get("cache_enabled")
    cache = torch.is_autocast_cache_enabled() if cache is None else cache
    return AutocastValue((device, dtype, plain.get("enabled", True), cache))


CONSTRUCTORS: dict[Any, Callable[[Any, Sequence[Value], Mapping[str, Value]], Value]] = {
    torch.no_grad: _no_grad,
    torch.enable_grad: _enable_grad,
    torch.set_grad_enabled: _set_grad_enabled,
    torch.autocast: _autocast,
}
"""The result of calling a class of torch's context managers."""


def _by_its_class(cls: type, name: str) -> None:
    """`cls.__enter__(manager)`, as contextlib.ExitStack calls it."""

    @handles(getattr(cls, name))
    def handler(tx: Translator, args: Sequence[Value], kwargs: Mapping[str, Value]) -> Value:
        if not isinstance(args[0], ModeValue):
            raise Unsupported(Reason.UNSUPPORTED_ARGUMENT, detail=f"{cls.__module__}.{cls.__qualname__}.{name}")
        return args[0].call_method(tx, name, args[1:], kwargs)


for _manager in CONSTRUCTORS:
    for _name in ("__enter__", "__exit__"):
        _by_its_class(_manager, _name)


def refuse_subclass(cls: type, base: type) -> None:
    """Raises Unsupported for a manager of a user-defined class: its methods may do more than torch's."""
    if cls is not base and not cls.__module__.startswith("torch."):
        raise Unsupported(Reason.CONTEXT_MANAGER, cls, detail=f", a subclass of torch.{base.__name__}")


@builds(torch.no_grad, torch.enable_grad, torch.set_grad_enabled)
def build_grad_mode(tx: Translator, obj: Any, source: Source | None) -> Value:
    """An existing manager: one kept in a decorator's closure, or one whose block a break left open."""
    cls = type(obj)
    refuse_subclass(cls, next(base for base in cls.__mro__ if base in CONSTRUCTORS))
    enabled = obj.mode if cls is torch.set_grad_enabled else cls is torch.enable_grad
    previous = getattr(obj, "prev", None)
    if source is not None:
        tx.guards.add(source, "TYPE_MATCH", cls)
        if cls is torch.set_grad_enabled:
            tx.guards.add(AttrSource(source, "mode"), "EQUALS_MATCH", enabled)
        if isinstance(previous, bool):
            tx.guards.add(AttrSource(source, "prev"), "EQUALS_MATCH", previous)
    return GradModeValue(cls, enabled, previous if isinstance(previous, bool) else None, source)


@builds(torch.autocast)
def build_autocast(tx: Translator, obj: Any, source: Source | None) -> Value:
    """An existing autocast object: the one of a decorator, or one whose block a break left open."""
    refuse_subclass(type(obj), torch.autocast)
    settings = (obj.device, obj.fast_dtype, obj._enabled, obj._cache_enabled)
    if source is not None:
        tx.guards.add(source, "ID_MATCH", obj)
    if getattr(obj, "prev", None) is None:
        return AutocastValue(settings, source)
    if source is not None:
        for name in _KEPT:
            tx.guards.add(AttrSource(source, name), "EQUALS_MATCH", getattr(obj, name))
    return AutocastValue(settings, source, tuple(getattr(obj, name) for name in _KEPT))


_KEPT = ("prev", "prev_fastdtype", "prev_cache_enabled")


def _autocast_state(device: str) -> tuple[Any, ...]:
    """The state that `autocast.__enter__` saves, by the names in `_KEPT`."""
    return torch.is_autocast_enabled(device), torch.get_autocast_dtype(device), torch.is_autocast_cache_enabled()

