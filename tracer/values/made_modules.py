"""Modules that the traced function makes: `nn.ReLU()` in a forward, a slice of a ModuleList.

One is made for real while tracing, to read it. The program has one of its own for each call: where it escapes, the
expression that made it runs again, so what the program would change of it is left to eager.
"""
from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch

from .base import Unsupported, Value
from .mappings import DictValue
from .modules import ModuleValue
from .number import NumberValue
from .registry import FRESH, REGISTRY, from_python
from .sequences import TupleValue
from .slices import SliceValue, position

if TYPE_CHECKING:
    from ..codegen import Codegen
    from ..interpreter import Interpreter
    from ..side_effects import SideEffects

Args = Sequence[Value]
Kwargs = Mapping[str, Value]

_STATELESS = (
    "torch.nn.modules.activation.", "torch.nn.modules.channelshuffle.", "torch.nn.modules.distance.",
    "torch.nn.modules.dropout.", "torch.nn.modules.flatten.", "torch.nn.modules.fold.",
    "torch.nn.modules.instancenorm.InstanceNorm", "torch.nn.modules.linear.Identity", "torch.nn.modules.loss.",
    "torch.nn.modules.padding.", "torch.nn.modules.pixelshuffle.", "torch.nn.modules.pooling.",
    "torch.nn.modules.upsampling.", "transformers.activations.",
)  # fmt: skip


class MadeModule(ModuleValue):
    """A module that `function(*args, **kwargs)` makes; `real` is what it made while tracing."""

    __slots__ = ("args", "function", "kwargs", "tables")

    def __init__(self, real: torch.nn.Module, function: Callable[..., Any], args: Args, kwargs: Kwargs) -> None:
        super().__init__(type(real), real, None)
        self.function, self.args, self.kwargs = function, args, kwargs
        self.tables: dict[str, Value] = {}

    def read(self, tx: Interpreter, value: Any, name: str) -> Value:
        """An attribute; of a dict there is one copy, to read from."""
        if type(value) not in FRESH or type(value).__hash__ is not None:
            return from_python(tx, value)
        if not isinstance(value, dict):
            raise Unsupported("attribute", f"{self.describe()}.{name}")
        if name not in self.tables:
            self.tables[name] = _Table(tx, value, self, name)
        return self.tables[name]

    def reconstruct(self, codegen: Codegen) -> None:
        """The call again."""
        codegen.push_function(self.function)
        for value in (*self.args, *self.kwargs.values()):
            codegen(value)
        codegen.call(len(self.args) + len(self.kwargs), tuple(self.kwargs))


class _Slice(MadeModule):
    """A slice of a container of modules."""

    __slots__ = ()

    def reconstruct(self, codegen: Codegen) -> None:
        """Sliced again, where the container is as it was."""
        owner = self.args[0]
        assert isinstance(owner, ModuleValue)
        _refuse_changed(codegen.effects, owner)
        super().reconstruct(codegen)


def _refuse_changed(effects: SideEffects, owner: ModuleValue) -> None:
    """Raises Unsupported where the trace changes what the container holds."""
    table = owner.real.__dict__["_modules"]
    if any(isinstance(value, DictValue) and value.real is table for value in effects.changed_outside()):
        raise Unsupported("subscript", f"a slice of {owner.describe()}, which changes")


class _Table(DictValue):
    """A dict of a module that was made, such as `_modules`: it is read, and no more."""

    __slots__ = ("name", "owner")

    def __init__(self, tx: Interpreter, real: dict[Any, Any], owner: MadeModule, name: str) -> None:
        super().__init__(type(real))
        copied = from_python(tx, real)
        assert isinstance(copied, DictValue)
        self.items, self.key_values = copied.items, copied.key_values
        self.owner, self.name = owner, name

    def changed(self, tx: Interpreter) -> None:
        """Left to eager."""
        raise Unsupported("set-item", f"{self.owner.describe()}.{self.name}")

    def reconstruct(self, codegen: Codegen) -> None:
        """It is the module's."""
        codegen(self.owner)
        codegen.load_attr(self.name)


def _make_module(tx: Interpreter, cls: type, args: Args, kwargs: Kwargs) -> Value:
    """`nn.ReLU()`: a module without parameters. Those of others may be drawn, which tracing must not do."""
    name = f"{cls.__module__}.{cls.__qualname__}"
    if not name.startswith(_STATELESS):
        raise Unsupported("call", f"a module of the class {name}")
    plain = [_known(tx, arg) for arg in args]
    with torch.random.fork_rng(devices=[]):
        real = cls(*plain, **{key: _known(tx, value) for key, value in kwargs.items()})
    if any(True for _ in real.parameters()) or any(True for _ in real.buffers()):
        raise Unsupported("call", f"a module of the class {name}")
    return MadeModule(real, cls, args, kwargs)


def _known(tx: Interpreter, value: Value) -> Any:
    """An argument; a number that varies is fixed: a module keeps what it is made with."""
    if isinstance(value, NumberValue):
        return value.specialize(tx)
    if isinstance(value, TupleValue) and value.python_type() is tuple:
        return tuple([_known(tx, item) for item in value.items])
    return value.as_constant()


def _slice(tx: Interpreter, owner: ModuleValue, key: SliceValue) -> Value:
    """`layers[1:3]` of a ModuleList or Sequential: a container made now, of the same modules."""
    _refuse_changed(tx.effects, owner)
    return _Slice(owner.real[position(tx, key)], operator.getitem, [owner, key], {})


REGISTRY["make_module"] = _make_module
REGISTRY["slice_of_module"] = _slice
