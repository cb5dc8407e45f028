"""Parameters that the traced function makes: `nn.Parameter(data)` is the data, detached, as an autograd leaf of another
class. It must not leave the graph, which would return a plain tensor."""
from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import torch

from ...breaks.reasons import Reason
from ...breaks.unsupported import Unsupported
from ..core.base import Value
from ..core.constant import constant
from ..core.handlers import handles
from .tensor import TensorValue
from .tensor_assignment import require

if TYPE_CHECKING:
    from ..core.base import Codegen, Translator


class MadeParameterValue(TensorValue):
    """The tensor inside of the trace; `refused` is the break where it leaves."""

    __slots__ = ("refused",)

    def __init__(self, made: TensorValue, refused: Callable[[], Unsupported]) -> None:
        super().__init__(made.node, made.fake)
        self.kind = torch.nn.Parameter
        self.refused = refused

    def reconstruct(self, codegen: Codegen) -> None:
        """Eager makes it."""
        raise self.refused()


@handles(torch.nn.Parameter)
def _parameter(tx: Translator, args: Sequence[Value], kwargs: Mapping[str, Value]) -> Value:
    given = dict(zip(("data", "requires_grad"), args)) | dict(kwargs)
    data = given.get("data")
    if not isinstance(data, TensorValue) or len(given) < len(args) + len(kwargs) or given.keys() - _NAMES:
        raise _refused()
    if data.kind not in (torch.Tensor, torch.nn.Parameter) or tx.trace.overrides.may_ask:
        raise _refused()
    where = {"location": tx.own_location(), "stack": tx.stack_locations(), "earlier": tx.trace.safe_step()}
    refused = partial(_refused, **where)
    made = tx.graph.call("detach", [data], {}, tx, op="call_method")
    assert isinstance(made, TensorValue)
    if given.get("requires_grad", constant(True)).truth(tx):
        if not (data.fake.is_floating_point() or data.fake.is_complex()):
            raise _refused()  # torch raises
        require(tx, made, constant(True))
        tx.graph.leaves[-1] = (made.fake, refused)
    parameter = MadeParameterValue(made, refused)
    tx.trace.values_by_id[id(made.fake)] = parameter
    return parameter


_NAMES = {"data", "requires_grad"}


def _refused(**where: Any) -> Unsupported:
    return Unsupported(Reason.UNKNOWN_TYPE, torch.nn.Parameter, **where)
