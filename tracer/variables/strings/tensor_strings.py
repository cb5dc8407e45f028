"""Strings with the values of tensors: the message of a check that holds, which nothing reads."""
from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NoReturn

import torch
from torch._C import _functorch

from ...breaks.reasons import Reason
from ...breaks.unsupported import Unsupported
from ..core.base import Value
from ..torch.tensor import TensorValue

if TYPE_CHECKING:
    from ..core.base import Codegen, Translator

_PLAIN = (torch.Tensor, torch.nn.Parameter)


class DataDependentString(Value):
    """A string known only at run time. Tracing continues as long as nothing reads it; where something does, the graph
    breaks where the string is made: later, the tensor may have been written."""

    __slots__ = ("refusal",)

    identified = False

    def __init__(self, refusal: Unsupported) -> None:
        super().__init__()
        self.refusal = refusal

    def _refuse(self) -> NoReturn:
        raise self.refusal.again(**self.refusal.context)

    def python_type(self) -> type:
        """str."""
        return str

    def as_constant(self) -> Any:
        """Not known."""
        self._refuse()

    def key(self) -> Any:
        """Not known."""
        self._refuse()

    def binary(self, tx: Translator, function: Callable[..., Any], left: Value, right: Value) -> Value | None:
        """Not known, `==` included."""
        self._refuse()

    def reconstruct(self, codegen: Codegen) -> None:
        """It cannot be made later."""
        self._refuse()

    def describe(self) -> str:
        """For messages."""
        return "a string with values of a tensor"


def string_of_tensor(tx: Translator, value: TensorValue, function: Callable[[Any], str]) -> Value:
    """str(value) or repr(value) of a tensor whose class does not define its own, and that is in no container."""
    watched = tx.trace.overrides.modes or _functorch.get_dynamic_layer_stack_depth()
    if value.python_type() not in _PLAIN or watched:
        raise Unsupported(Reason.TENSOR_STRING, function, given=(value,))
    where: dict[str, Any] = {"location": tx.own_location(), "stack": tx.stack_locations()}
    where["earlier"] = tx.trace.safe_step()
    return DataDependentString(Unsupported(Reason.TENSOR_STRING, function, given=(value,), **where))
