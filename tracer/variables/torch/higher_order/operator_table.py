"""torch.ops.higher_order: how the call of each operator is handled, in one table.

An operator that torch runs in eager by calling its function once is that call, inlined in the graph. One that calls it
a data-dependent number of times is a node whose functions are graphs (`higher_order_ops.py`). The rest breaks the
graph, and the table has the reason.
"""
from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch._higher_order_ops.out_dtype import ALLOWABLE_OPS, is_int_mm
from torch._ops import HigherOrderOperator
from torch._prims_common import ELEMENTWISE_TYPE_PROMOTION_KIND, elementwise_dtypes
from torch.utils import _pytree as pytree

from ....breaks.reasons import Reason
from ....breaks.unsupported import Unsupported
from ....sources.source import Source
from ...core.base import Value
from ...core.constant import constant
from ...core.handlers import NAMED
from ...core.registry import builds, from_python
from ...python.builtin_functions import BuiltinValue
from ...python.symbolic_numbers import NumberValue
from ..pytree import flatten, unflatten
from ..tensor import TensorValue
from . import higher_order_ops, inlined_operators
from .flex_attention import flex_attention

if TYPE_CHECKING:
    from ...core.base import Translator

Operator = Any
_TRUE = constant(True)
Handler = Callable[..., Value]
"""`handler(tx, operator, *args, **kwargs)`: the parameters after the first two are those of the operator."""


# ---- kinds of entries ------------------------------------------------------------------------------------------------
def written(function: Callable[..., Any]) -> Handler:
    """The operator is this Python function, which is interpreted."""

    def handler(tx: Translator, operator: Operator, *args: Value, **kwargs: Value) -> Value:
        return tx.inline(from_python(tx, function), args, kwargs)

    return handler


def left(why: str) -> Handler:
    """The call breaks the graph."""

    def handler(tx: Translator, operator: Operator, *args: Value, **kwargs: Value) -> Value:
        raise Unsupported(Reason.UNSUPPORTED_HIGHER_ORDER, operator, detail=f", {why}")

    return handler


def _without_gradients(tx: Translator, operator: Operator, function: Value, operands: list[Value]) -> Value:
    """A call without gradients: where there are any, eager raises, in the backward."""
    result = function.call(tx, operands, {})
    known = [leaf for value in (*operands, result) for leaf in flatten(tx, value)[0]]
    if torch.is_grad_enabled() and any(isinstance(leaf, TensorValue) and leaf.fake.requires_grad for leaf in known):
        raise Unsupported(Reason.UNSUPPORTED_HIGHER_ORDER, operator, detail=", which has no gradients,")
    return result


# ---- the operators ---------------------------------------------------------------------------------------------------
def _wrap(tx: Translator, operator: Operator, func: Value, *args: Value, **kwargs: Value) -> Value:
    return func.call(tx, args, kwargs)


def _configured(tx: Translator, operator: Operator, subgraph: Value, *operands: Value, **kwargs: Value) -> Value:
    """Keyword arguments are for the compiler."""
    return subgraph.call(tx, operands, {})


def _invoke_subgraph(
    tx: Translator, operator: Operator, subgraph: Value, identifier: Value, *operands: Value
) -> Value:
    return subgraph.call(tx, operands, {})


def _hints_wrapper(
    tx: Translator, operator: Operator, body_fn: Value, args: Value, kwargs: Value, hints: Value
) -> Value:
    operands = list(args.iterate(tx))
    plain = all(isinstance(value, (TensorValue, NumberValue)) or value.is_constant() for value in operands)
    if kwargs.iterate(tx) or not plain:
        raise Unsupported(
            Reason.UNSUPPORTED_HIGHER_ORDER, torch.ops.higher_order.hints_wrapper, detail="with such arguments"
        )
    return _without_gradients(tx, operator, body_fn, operands)


def _strict_mode(tx: Translator, operator: Operator, callable: Value, operands: Value) -> Value:
    return _without_gradients(tx, operator, callable, list(operands.iterate(tx)))


def _run_const_graph(tx: Translator, operator: Operator, graph: Value, args: Value) -> Value:
    return _without_gradients(tx, operator, graph, list(args.iterate(tx)))


def _out_dtype(tx: Translator, operator: Operator, op: Value, output_dtype: Value, *args: Value) -> Value:
    """The operator on arguments of the dtype that they and the result have in common
    (torch/_higher_order_ops/out_dtype.py)."""
    function, dtype = op.as_constant(), output_dtype.as_constant()
    fakes = [value.fake if isinstance(value, TensorValue) else value.as_constant() for value in args]
    if function not in ALLOWABLE_OPS or is_int_mm(function, dtype, fakes):
        raise Unsupported(Reason.UNSUPPORTED_HIGHER_ORDER, torch.ops.higher_order.out_dtype, detail=f"of {function}")
    numbers = [fake for fake in pytree.tree_leaves(fakes) if isinstance(fake, (torch.Tensor, int, float, complex))]
    kind = ELEMENTWISE_TYPE_PROMOTION_KIND.DEFAULT
    common = elementwise_dtypes(*numbers, torch.ones(1, dtype=dtype), type_promotion_kind=kind)[0]

    def converted(value: Value, to: torch.dtype) -> Value:
        return value.call_method(tx, "to", [], {"dtype": constant(to)}) if isinstance(value, TensorValue) else value

    def run(inner: Translator) -> Value:
        return converted(op.call(inner, [converted(value, common) for value in args], {}), dtype)

    result = run(tx)
    if isinstance(result, TensorValue) and result.fake.requires_grad:
        raise Unsupported(
            Reason.UNSUPPORTED_HIGHER_ORDER, torch.ops.higher_order.out_dtype, detail=", which has no gradients,"
        )
    return result


def _flat_apply(
    tx: Translator, operator: Operator, func: Value, in_spec: Value, *flat_args: Value,
    checked_output: Value = _TRUE,
) -> Value:
    function, spec = func.as_constant(), in_spec.as_constant()
    if isinstance(function, pytree.TreeSpec):
        called = from_python(tx, pytree._retrieve_constant(function).func)
    else:
        called = func
    args, kwargs = unflatten(tx, flat_args, spec).iterate(tx)
    named = {key.as_constant(): value for key, value in kwargs.pairs(tx)}  # type: ignore[attr-defined]
    result = called.call(tx, args.iterate(tx), named)
    if checked_output.truth(tx) and not all(map(_graphable, flatten(tx, result)[0])):
        raise Unsupported(
            Reason.UNSUPPORTED_HIGHER_ORDER, torch.ops.higher_order.flat_apply,
            detail=f"of a function that returns {result.describe()}",
        )
    return result


def _graphable(value: Value) -> bool:
    return isinstance(value, (TensorValue, NumberValue)) or value.is_constant()


def _print(tx: Translator, operator: Operator, format_str: Value, *args: Value, **kwargs: Value) -> Value:
    """A node, which prints when the graph runs."""
    leaves = [leaf for value in (*args, *kwargs.values()) for leaf in flatten(tx, value)[0]]
    if type(format_str.as_constant()) is not str or not all(map(_graphable, leaves)) or tx.effects.is_sealed():
        raise Unsupported(Reason.UNSUPPORTED_HIGHER_ORDER, torch.ops.higher_order.print, detail="of such values")
    higher_order_ops.refuse_classes(tx, operator, leaves)
    higher_order_ops.register_fake_rules(type(tx.graph.fake_mode))
    return tx.graph.call(operator, [format_str, *args], kwargs, tx)


def _flex_attention(tx: Translator, operator: Operator, *args: Value) -> Value:
    higher_order_ops.refuse_classes(tx, operator, args)
    return flex_attention(tx, operator, args)


def _foreach_map(tx: Translator, args: Any, kwargs: Mapping[str, Value]) -> Value:
    """torch._higher_order_ops.foreach_map: keyword arguments are for the compiler."""
    return tx.inline(from_python(tx, inlined_operators.foreach_map), args, {})


NAMED["torch._higher_order_ops.foreach_map", "foreach_map"] = _foreach_map

_COMPILERS = left("which only torch's own compiler puts into graphs,")
_CALLS_OUT = left("which calls what another compiler has made,")

OPERATORS: dict[str, Handler] = {
    # called once: inlined in the graph
    "wrap": _wrap,
    "dynamo_bypassing_wrapper": written(inlined_operators.dynamo_bypassing_wrapper),
    "wrap_with_set_grad_enabled": written(inlined_operators.wrap_with_set_grad_enabled),
    "wrap_with_autocast": written(inlined_operators.wrap_with_autocast),
    "wrap_activation_checkpoint": written(inlined_operators.wrap_activation_checkpoint),
    "tag_activation_checkpoint": written(inlined_operators.tag_activation_checkpoint),
    "invoke_subgraph": _invoke_subgraph,
    "invoke_quant": _configured,
    "invoke_quant_packed": _configured,
    "foreach_map": _configured,
    "hints_wrapper": _hints_wrapper,
    "strict_mode": _strict_mode,
    "run_const_graph": _run_const_graph,
    "out_dtype": _out_dtype,
    "flat_apply": _flat_apply,
    "register_hook": written(inlined_operators.register_hook),
    "flex_attention": _flex_attention,
    # nodes
    "cond": higher_order_ops.cond,
    "while_loop": higher_order_ops.while_loop,
    "while_loop_stack_output": higher_order_ops.while_loop,
    "scan": higher_order_ops.scan,
    "associative_scan": higher_order_ops.associative_scan,
    "map_impl": higher_order_ops.map_over_slices,
    "print": _print,
    # left to eager
    "call_torchbind": left("which calls a method of a TorchScript object,"),
    "inline_asm_elementwise": left("which is code for a GPU,"),
    "invoke_leaf_function": left("whose function is not to be traced,"),
    "aoti_call_delegate": _CALLS_OUT,
    "executorch_call_delegate": _CALLS_OUT,
    "inductor_compiled_code": _CALLS_OUT,
    "_export_tracepoint": _COMPILERS,
    "auto_functionalized": _COMPILERS,
    "auto_functionalized_v2": _COMPILERS,
    "autograd_function_apply": _COMPILERS,
    "control_deps": _COMPILERS,
    "custom_function_call": _COMPILERS,
    "flex_attention_backward": _COMPILERS,
    "graphsafe_run_with_rng_state": _COMPILERS,
    "local_map_hop": _COMPILERS,
    "run_and_save_rng_state": _COMPILERS,
    "run_dtensor_rng_op": _COMPILERS,
    "run_with_rng_state": _COMPILERS,
    "triton_kernel_wrapper_functional": _COMPILERS,
    "triton_kernel_wrapper_mutation": _COMPILERS,
    "with_effects": _COMPILERS,
}
"""By the operator's name."""

_UNKNOWN = left("of which nothing is known here,")


class HigherOrderValue(BuiltinValue):
    """An operator that takes functions."""

    __slots__ = ()

    def call(self, tx: Translator, args: Any, kwargs: Mapping[str, Value]) -> Value:
        """Its entry of the table. Arguments that do not fit are left to eager, which raises."""
        handler = OPERATORS.get(self.function.name(), _UNKNOWN)
        try:
            inspect.signature(handler).bind(tx, self.function, *args, **kwargs)
        except TypeError as error:
            raise Unsupported(Reason.UNSUPPORTED_ARGUMENT, self, detail=f"with such arguments ({error})") from error
        return handler(tx, self.function, *args, **kwargs)

    def describe(self) -> str:
        """Its public name."""
        return f"torch.ops.higher_order.{self.function.name()}"


def _marked_region(tx: Translator, args: Any, kwargs: Mapping[str, Value]) -> Value:
    """A function marked with torch.compiler.nested_compile_region: inlined in the graph."""
    return args[0].call(tx, args[1:], kwargs)


NAMED["torch._higher_order_ops.invoke_subgraph", "invoke_subgraph_placeholder"] = _marked_region


@builds(HigherOrderOperator)
def build_higher_order(tx: Translator, obj: Any, source: Source | None) -> Value:
    """One of torch.ops.higher_order."""
    if source is not None:
        tx.guards.add(source, "ID_MATCH", obj)
    return HigherOrderValue(obj, source)
