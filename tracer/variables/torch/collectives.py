"""torch.distributed's collectives as nodes: functional ones (`_c10d_functional`) with a wait right after each, as in
Dynamo's graphs. One that writes to a tensor becomes the functional one and a copy.

Left to eager: `async_op=True`, lists of ranks, and writing to tensors that require gradients, which autograd does not
see in eager. None of torch.distributed is imported here.
"""
from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch

from ...breaks.reasons import Reason
from ...breaks.unsupported import Unsupported
from ..core.base import Value
from ..core.constant import constant
from ..core.handlers import NAMED
from ..core.registry import BUILDERS, BUILDERS_BY_NAME, from_python
from .distributed_tensors import build_by_identity, build_by_value
from .tensor import TensorValue

if TYPE_CHECKING:
    from ..core.base import Translator

Args = Sequence[Value]
Kwargs = Mapping[str, Value]
Handler = Callable[["Translator", Args, Kwargs], Value]
_C10D, _FUNCTIONAL = "torch.distributed.distributed_c10d", "torch.distributed._functional_collectives"
NONE, ZERO = constant(None), constant(0)


def _handler(module: str, names: str, parameters: str) -> Callable[[Callable[..., Value]], Callable[..., Value]]:
    """Register a function of the trace and the parameters, given by name or None; `group` is the name of a group."""
    order = parameters.split()

    def register(function: Callable[..., Value]) -> Callable[..., Value]:
        def call(tx: Translator, args: Args, kwargs: Kwargs) -> Value:
            given = {**dict(zip(order, args)), **kwargs}
            if len(args) > len(order) or not given.keys() <= {*order, "async_op", "tag"}:
                raise Unsupported(Reason.UNSUPPORTED_ARGUMENT, detail=f"{function.__name__} with other arguments")
            if given.pop("async_op", NONE).as_constant():
                raise Unsupported(Reason.UNSUPPORTED_ARGUMENT, detail="a collective with async_op=True")
            found = dict.fromkeys(order, None) | given
            for ignored in ("async_op", "tag"):
                found.pop(ignored, None)
            if module == _C10D:
                _refuse_gradients([value for value in found.values() if isinstance(value, TensorValue)])
            return function(tx, **{**found, "group": _group(tx, found["group"])})

        for name in names.split():
            NAMED[module, name] = call
        return function

    return register


def _group(tx: Translator, value: Value | None) -> Any:
    """The process group that an argument names, which is guarded: None for the default one."""
    c10d = sys.modules[_C10D]
    given = None if value is None else value.as_constant()
    if given is None:
        found = c10d.GroupMember.WORLD
        if found is None:  # of which eager raises an error
            raise Unsupported(Reason.UNSUPPORTED_ARGUMENT, detail="a collective before init_process_group")
        words = "the default process group of torch.distributed is the same"
        tx.guards.add(None, "LAMBDA", (lambda _: c10d.GroupMember.WORLD is found, words))
        return found
    if isinstance(given, str):
        return c10d._resolve_process_group(given)
    if isinstance(given, c10d.ProcessGroup):
        return given
    mesh, dimension = given if isinstance(given, tuple) and len(given) == 2 else (given, 0)
    if not hasattr(mesh, "get_group") or (mesh is given and mesh.ndim != 1):
        raise Unsupported(Reason.UNSUPPORTED_ARGUMENT, detail="a collective over a list of ranks")
    return mesh.get_group(dimension)


def _refuse_gradients(tensors: Sequence[TensorValue]) -> None:
    if any(tensor.fake.requires_grad for tensor in tensors):
        raise Unsupported(Reason.UNSUPPORTED_ARGUMENT, detail="a collective that writes to tensors with gradients")


def _call(tx: Translator, name: str, *args: Value) -> Value:
    """The functional collective and its wait, two nodes."""
    import torch.distributed._functional_collectives  # registers how they are traced

    operators = torch.ops._c10d_functional
    started = tx.graph.call(getattr(operators, name).default, list(args), {}, tx)
    return tx.graph.call(operators.wait_tensor.default, [started], {}, tx)


def _name(group: Any) -> Value:
    return constant(str(group.group_name))


def _kind(value: Value | None) -> Value:
    """`sum`, `max`, ...: of a ReduceOp, or of its name."""
    given = "sum" if value is None else value.as_constant()
    if isinstance(given, str):
        return constant(given.lower())
    names = sys.modules[_FUNCTIONAL].REDUCE_OP_TO_STR
    found = next((name for kind, name in names.items() if kind == given), None)
    if found is None:
        raise Unsupported(Reason.UNSUPPORTED_ARGUMENT, detail=f"a collective with {given}")
    return constant(found)


def _cat(tx: Translator, value: Value, parts: int, of: Value, to: Value) -> Value:
    """The parts along one dimension, put together along another."""
    chunks = from_python(tx, torch.chunk).call(tx, [value, constant(parts), of], {})
    return from_python(tx, torch.cat).call(tx, [chunks, to], {})


# ---- functional ------------------------------------------------------------------------------------------------------
@_handler(_FUNCTIONAL, "all_reduce", "self reduceOp group tag")
def _all_reduce(tx: Translator, self: Value, reduceOp: Value, group: Any) -> Value:
    return _call(tx, "all_reduce", self, _kind(reduceOp), _name(group))


@_handler(_FUNCTIONAL, "broadcast", "self src group tag")
def _broadcast(tx: Translator, self: Value, src: Value, group: Any) -> Value:
    return _call(tx, "broadcast", self, src, _name(group))


@_handler(_FUNCTIONAL, "all_gather_tensor all_gather_single", "self gather_dim group tag")
def _all_gather(tx: Translator, self: Value, gather_dim: Value, group: Any) -> Value:
    found = _call(tx, "all_gather_into_tensor", self, constant(group.size()), _name(group))
    return found if gather_dim.as_constant() == 0 else _cat(tx, found, group.size(), ZERO, gather_dim)


@_handler(_FUNCTIONAL, "reduce_scatter_tensor reduce_scatter_single", "self reduceOp scatter_dim group tag")
def _reduce_scatter(tx: Translator, self: TensorValue, reduceOp: Value, scatter_dim: Value, group: Any) -> Value:
    dimension, size = scatter_dim.as_constant(), group.size()
    if self.fake.shape[dimension] % size != 0:
        raise Unsupported(Reason.UNSUPPORTED_ARGUMENT, detail="reduce_scatter of a size that the group does not divide")
    whole = self if dimension == 0 else _cat(tx, self, size, scatter_dim, ZERO)
    return _call(tx, "reduce_scatter_tensor", whole, _kind(reduceOp), constant(size), _name(group))


def _wait(tx: Translator, args: Args, kwargs: Kwargs) -> Value:
    return tx.graph.call(torch.ops._c10d_functional.wait_tensor.default, [*args, *kwargs.values()], {}, tx)


NAMED[_FUNCTIONAL, "wait_tensor"] = _wait


# ---- torch.distributed's own, which write ----------------------------------------------------------------------------
def _written(tx: Translator, output: TensorValue, result: Value) -> Value:
    if not isinstance(result, TensorValue) or tuple(result.fake.shape) != tuple(output.fake.shape):
        raise Unsupported(Reason.UNSUPPORTED_ARGUMENT, detail="a collective whose output has other sizes")
    if result.fake.dtype != output.fake.dtype or not output.fake.is_contiguous():
        raise Unsupported(Reason.UNSUPPORTED_ARGUMENT, detail="a collective with an output of another dtype or layout")
    output.call_method(tx, "copy_", [result], {})
    return NONE


@_handler(_C10D, "all_reduce", "tensor op group async_op")
def _all_reduce_into(tx: Translator, tensor: TensorValue, op: Value | None, group: Any) -> Value:
    return _written(tx, tensor, _all_reduce(tx, tensor, op, group))


@_handler(_C10D, "broadcast", "tensor src group async_op")
def _broadcast_into(tx: Translator, tensor: TensorValue, src: Value | None, group: Any) -> Value:
    if src is None or group is not sys.modules[_C10D].GroupMember.WORLD:  # `src` is a rank of all, not of the group
        raise Unsupported(Reason.UNSUPPORTED_ARGUMENT, detail="a broadcast in a group")
    return _written(tx, tensor, _broadcast(tx, tensor, src, group))


@_handler(_C10D, "all_gather_into_tensor all_gather_single", "output_tensor input_tensor group async_op")
def _all_gather_into(tx: Translator, output_tensor: TensorValue, input_tensor: TensorValue, group: Any) -> Value:
    return _written(tx, output_tensor, _all_gather(tx, input_tensor, ZERO, group))


@_handler(_C10D, "reduce_scatter_tensor reduce_scatter_single", "output input op group async_op")
def _reduce_scatter_into(
    tx: Translator, output: TensorValue, input: TensorValue, op: Value | None, group: Any
) -> Value:
    return _written(tx, output, _reduce_scatter(tx, input, op, ZERO, group))


# ---- who is in a group -----------------------------------------------------------------------------------------------
@_handler(_C10D, "get_rank", "group")
def _get_rank(tx: Translator, group: Any) -> Value:
    return constant(sys.modules[_C10D].get_rank(group))


@_handler(_C10D, "get_world_size", "group")
def _get_world_size(tx: Translator, group: Any) -> Value:
    return constant(group.size())


for _module in (_C10D, "torch._C._distributed_c10d"):
    BUILDERS_BY_NAME[_module, "ProcessGroup"] = build_by_identity
if torch.distributed.is_available():
    for _type in (torch.distributed.ReduceOp, type(torch.distributed.ReduceOp.SUM)):
        BUILDERS[_type] = build_by_value
