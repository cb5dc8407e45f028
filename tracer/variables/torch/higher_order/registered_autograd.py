"""User-defined operators (`torch.library.custom_op`) with a gradient in Python (`register_autograd`): it is interpreted
like that of an autograd.Function, so that its reads are guarded, and its side effects are left to eager. The operator
itself is a node of the Function's forward."""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch._C import _functorch
from torch._library.custom_ops import OPDEFS

from .....operators.custom_ops import names_of
from ....breaks.reasons import Reason
from ....breaks.unsupported import Unsupported
from ...containers.sequences import TupleValue
from ...core.attributes import method_of
from ...core.base import Value
from ...core.constant import constant
from ..custom_op_state import names_state
from ..tensor import TensorValue
from .autograd_function import ContextValue, apply_function

if TYPE_CHECKING:
    from ...core.base import Translator

_FUNCTIONS: dict[str, tuple[tuple[Any, Any], type[torch.autograd.Function]]] = {}
"""The Function made of an operator's rules, by the operator's name."""


def with_registered_gradient(
    tx: Translator, target: Any, args: Sequence[Value], kwargs: Mapping[str, Value]
) -> Value | None:
    """The result of an operator whose gradient is interpreted; None where it has no such gradient, or none is needed,
    or the rule cannot be traced and depends on nothing but its arguments."""
    names = names_of(target)
    definition: Any = OPDEFS.get(names[0]) if len(names) == 1 else None
    if definition is None or definition._backward_fn is None or not torch.is_grad_enabled():
        return None
    if _functorch.peek_interpreter_stack() is not None or not any(map(_needs_gradient, (*args, *kwargs.values()))):
        return None
    given = _in_order(definition._opoverload._schema, args, kwargs)
    if given is None or not all(isinstance(value, TensorValue) or value.is_constant() for value in given):
        return None
    try:
        cls = _function(names[0], definition)
        return apply_function(tx, cls, given, partial(_run, tx, cls, definition._opoverload))
    except Unsupported as error:
        functions = [definition._backward_fn, definition._setup_context_fn]
        if error.reason is Reason.SIDE_EFFECT_IN_SUBGRAPH or names_state(functions):
            raise
        return None


def _needs_gradient(value: Value) -> bool:
    return isinstance(value, TensorValue) and value.fake.requires_grad


def _in_order(schema: Any, args: Sequence[Value], kwargs: Mapping[str, Value]) -> list[Value] | None:
    """All arguments by position, as `setup_context` gets them; None where one can only be passed by name."""
    if any(argument.kwarg_only for argument in schema.arguments):
        return None
    rest = list(schema.arguments[len(args) :])
    if not all(argument.name in kwargs or argument.has_default_value() for argument in rest):
        return None
    return [*args, *(kwargs.get(a.name) or constant(a.default_value) for a in rest)]


def _name_in_eager(operator: Any) -> str:
    """What a printed result calls its node by (torch/_library/autograd.py)."""
    return f"GeneratedBackwardFor_{operator._namespace}_{operator._opname}_{operator._overloadname}"


def _function(name: str, definition: Any) -> type[torch.autograd.Function]:
    """A Function whose backward is the operator's, and whose `setup_context` is kept as `keep`."""
    rules = definition._backward_fn, definition._setup_context_fn
    known = _FUNCTIONS.get(name)
    if known is None or known[0] != rules:
        gradient, keep = map(staticmethod, rules)
        made = type(_name_in_eager(definition._opoverload), (torch.autograd.Function,),
                    {"backward": gradient, "keep": keep})
        known = _FUNCTIONS[name] = rules, made
    return known[1]


def _run(tx: Translator, cls: Any, operator: Any, context: ContextValue, inputs: Sequence[Value]) -> Value:
    """The operator, and what its `setup_context` saves for the backward."""
    result = tx.graph.call(operator, inputs, {}, tx)
    if cls.keep is not None:
        given = {"ctx": context, "inputs": TupleValue(inputs, tuple), "output": result}
        method_of(tx, cls, "keep", cls.keep).call(tx, [], given)
    return result
