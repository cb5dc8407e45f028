"""torch.func (grad, vjp, jvp, vmap, ...): torch's own Python of the transforms is interpreted, down to the few
functions that enter and leave a level, and wrap tensors for it. Those are nodes of the graph: the graph enters the same
levels when it runs, and the transformed function's operations are between them.

A level's number is known only at run time: a `LevelValue` is a node.
"""
from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
import torch.fx
from torch._C import _functorch
from torch._functorch import eager_transforms, predispatch
from torch.autograd import forward_ad

from .....operators.graph_calls import differentiate
from ....breaks.reasons import Reason
from ....breaks.unsupported import Unsupported
from ...containers.sequences import TupleValue
from ...core.base import Value
from ...core.constant import constant
from ...core.handlers import handles
from ..context_manager import mode_node
from ..graph_functions import ALLOWED
from ..tensor import TensorValue
from ..tensor_hooks import gradients_break
from .checkpoint import refuse_reentrant

if TYPE_CHECKING:
    from ...core.base import Translator

Args = Sequence[Value]
Kwargs = Mapping[str, Value]


class LevelValue(Value):
    """The number of a torch.func level: its value in the trace, and the node that enters it."""

    __slots__ = ("node", "number")

    def __init__(self, node: torch.fx.Node, number: int) -> None:
        super().__init__()
        self.node = node
        self.number = number

    def python_type(self) -> type:
        """int."""
        return int

    def as_proxy(self) -> torch.fx.Node:
        """Its node."""
        return self.node

    def binary(self, tx: Translator, function: Callable[..., Any], left: Value, right: Value) -> Value | None:
        """Arithmetic and comparisons use the trace's number: the frame runs outside of any level, now and later."""
        sides = [side.number if isinstance(side, LevelValue) else side.as_constant() for side in (left, right)]
        return constant(function(*sides))

    def truth(self, tx: Translator) -> bool:
        """Whether it is not 0."""
        return bool(self.number)

    def describe(self) -> str:
        """For messages."""
        return f"level {self.number} of torch.func"


def _wrapper(name: str) -> list[Any]:
    """torch's Python function around a C++ one, where this version of torch has it."""
    return [vars(predispatch)[name]] if name in vars(predispatch) else []


def _enters(function: Callable[..., Any], *names: Any) -> None:
    """`function` enters a level and returns its number."""

    @handles(function, *names)
    def handler(tx: Translator, args: Args, kwargs: Kwargs) -> Value:
        plain = tuple([value.as_proxy() for value in (*args, *kwargs.values())])
        number = function(*[value.meta["val"] if isinstance(value, torch.fx.Node) else value for value in plain])
        node = mode_node(tx, function, plain)
        node.meta["val"] = number
        tx.graph.operations += 1
        return LevelValue(node, number)


def _leaves(function: Callable[..., Any], *names: Any) -> None:
    """`function` leaves the innermost level."""

    @handles(function, *names)
    def handler(tx: Translator, args: Args, kwargs: Kwargs) -> Value:
        function()
        mode_node(tx, function, ())
        return constant(None)


_enters(_functorch._vmap_increment_nesting, *_wrapper("_vmap_increment_nesting"))
_enters(_functorch._grad_increment_nesting)
_enters(_functorch._jvp_increment_nesting, *_wrapper("_jvp_increment_nesting"))
_leaves(_functorch._vmap_decrement_nesting, *_wrapper("_vmap_decrement_nesting"))
_leaves(_functorch._grad_decrement_nesting)
_leaves(_functorch._jvp_decrement_nesting, *_wrapper("_jvp_decrement_nesting"))


@handles(torch._C._enter_dual_level, *_wrapper("_enter_dual_level"))
def _enter_dual_level(tx: Translator, args: Args, kwargs: Kwargs) -> Value:
    """There is one forward AD level per process: a second raises, as an error of the user's code."""
    try:
        number = torch._C._enter_dual_level()
    except RuntimeError as error:
        raise Unsupported(Reason.UNSUPPORTED_HIGHER_ORDER, detail="a level of forward AD inside another") from error
    node = mode_node(tx, torch._C._enter_dual_level, ())
    node.meta["val"] = number
    tx.graph.operations += 1
    return LevelValue(node, number)


@handles(torch._C._exit_dual_level, *_wrapper("_exit_dual_level"))
def _exit_dual_level(tx: Translator, args: Args, kwargs: Kwargs) -> Value:
    """Leaving a level drops the tangents of all its tensors: one that the user entered before is left to eager."""
    level = [*args, *kwargs.values()][0]
    if not isinstance(level, LevelValue):
        raise Unsupported(
            Reason.UNSUPPORTED_HIGHER_ORDER, detail="leaving a level of forward AD that was entered before this graph"
        )
    torch._C._exit_dual_level(level=level.number)
    node = mode_node(tx, torch._C._exit_dual_level, ())
    node.kwargs = {"level": level.as_proxy()}
    return constant(None)


# ---- operations on tensors: nodes ------------------------------------------------------------------------------------
def _tensor(function: Callable[..., Any], args: Args) -> TensorValue:
    """The first argument of `function`; Unsupported where it is not a tensor, or is passed by name."""
    if not args:
        raise Unsupported(Reason.UNSUPPORTED_ARGUMENT, function, detail="with keyword arguments")
    if not isinstance(args[0], TensorValue):
        raise Unsupported(Reason.UNSUPPORTED_BUILTIN, function, given=(args[0],))
    return args[0]


def _is_node(function: Callable[..., Any], *names: Any) -> None:
    """A call of one of `names` is a node that calls `function`."""

    @handles(function, *names)
    def handler(tx: Translator, args: Args, kwargs: Kwargs) -> Value:
        _tensor(function, args)
        return tx.graph.call(function, args, kwargs, tx)


_is_node(_functorch._remove_batch_dim, *_wrapper("_remove_batch_dim"))
_is_node(_functorch._wrap_for_grad)
_is_node(_functorch._unwrap_for_grad, *_wrapper("_unwrap_for_grad"))
_is_node(torch._VF._unpack_dual, *_wrapper("_unpack_dual"))


@handles(torch._VF._make_dual, *_wrapper("_make_dual"))
def _make_dual(tx: Translator, args: Args, kwargs: Kwargs) -> Value:
    """A tangent gets its tensor's layout (`set_fw_grad` in PyTorch's autograd_meta.cpp), which eager refuses where the
    tensor's elements alias each other and the tangent's do not; a backend has no such copy to refuse."""
    fake = _tensor(torch._VF._make_dual, args).fake
    if any(type(stride) is int and stride == 0 and size != 1 for size, stride in zip(fake.shape, fake.stride())):
        raise Unsupported(Reason.UNSUPPORTED_HIGHER_ORDER, detail="_make_dual of an expanded tensor")
    return tx.graph.call(torch._VF._make_dual, args, kwargs, tx)


@handles(eager_transforms._set_tensor_requires_grad)
def _set_tensor_requires_grad(tx: Translator, args: Args, kwargs: Kwargs) -> Value:
    """On a wrapper of a level, which is invisible outside of it."""
    _tensor(eager_transforms._set_tensor_requires_grad, args)
    return tx.graph.call(torch.Tensor.requires_grad_, args, kwargs, tx)


@handles(_functorch._add_batch_dim, *_wrapper("_add_batch_dim"))
def _add_batch_dim(tx: Translator, args: Args, kwargs: Kwargs) -> Value:
    tensor = _tensor(_functorch._add_batch_dim, args)
    if len(args) != 3:
        raise Unsupported(Reason.UNSUPPORTED_HIGHER_ORDER, detail="_add_batch_dim with keyword arguments")
    _, dim, level = args
    number = dim.as_constant()
    dim = constant(number + tensor.fake.dim() if number < 0 else number)
    return tx.graph.call(_functorch._add_batch_dim, [tensor, dim, level], {}, tx)


@handles(predispatch.lazy_load_decompositions)
def _load_decompositions(tx: Translator, args: Args, kwargs: Kwargs) -> Value:
    """Registers vmap rules, once per process: done while tracing."""
    predispatch.lazy_load_decompositions()
    return constant(None)


@handles(*(f for f in [getattr(forward_ad, "_maybe_load_decompositions", None)] if f))
def _load_forward_decompositions(tx: Translator, args: Args, kwargs: Kwargs) -> Value:
    """Registers forward AD rules, once per process: done while tracing."""
    forward_ad._maybe_load_decompositions()
    return constant(None)


def _is_wrapped(value: Value) -> bool:
    return isinstance(value, TensorValue) and _functorch.is_functorch_wrapped_tensor(value.fake)


@handles(torch.autograd.grad)
def _autograd_grad(tx: Translator, args: Args, kwargs: Kwargs) -> Value:
    """For tensors of a torch.func level: what autograd recorded of them began in this trace."""
    names = ("outputs", "inputs", "grad_outputs", "retain_graph", "create_graph")
    given = dict(zip(names, args)) | dict(kwargs)
    tensors = [given[name] for name in names[:2]]
    tensors = [one if issubclass(one.python_type(), (tuple, list)) else TupleValue([one], tuple) for one in tensors]
    if not all(_is_wrapped(one) for one in tensors[1].iterate(tx)) or not set(given) <= {*names, "allow_unused"}:
        refuse_reentrant(tx)
        raise gradients_break(tx, tensors[1].iterate(tx))
    create = given.get("create_graph", constant(False))
    retain = given.get("retain_graph", constant(None))
    retain = create if retain.is_constant() and retain.as_constant() is None else retain
    rest = [given.get("grad_outputs", constant(None)), retain, create, given.get("allow_unused", constant(False))]
    return tx.graph.call(differentiate, [*tensors, *rest], {}, tx)


for _question in (
    _functorch.is_batchedtensor, _functorch.is_gradtrackingtensor, _functorch.is_functorch_wrapped_tensor,
    _functorch.is_functionaltensor, getattr(_functorch, "is_dead_tensor_wrapper"),  # noqa: B009
):  # fmt: skip

    @handles(_question)
    def _asks(tx: Translator, args: Args, kwargs: Kwargs, question: Any = _question) -> Value:
        return constant(isinstance(args[0], TensorValue) and question(args[0].fake))


ALLOWED[id(differentiate)] = differentiate
