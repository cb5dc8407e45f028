"""Hooks of tensors. On an input of the graph, a hook is registered when the graph has run; on a tensor that the graph
computes, a hook that only computes a gradient becomes part of the graph.

All other hooks must be on the tensor itself, before anything is computed from it: gradients inside a compiled graph
never reach its tensors. The graph then breaks where the tensor was made, so that what follows has it as an input.
"""
from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
import torch.fx
from torch._C import _functorch
from torch.utils.hooks import RemovableHandle

from ....operators.autograd_plans import FunctionPlan
from ...breaks.reasons import Reason
from ...breaks.unsupported import Unsupported
from ..core.base import ObservedException, Value
from ..core.constant import BoundBuiltin, constant
from .higher_order.autograd_function import strides_of
from .tensor import NodeValue, TensorValue
from .tensor_methods import METHODS

if TYPE_CHECKING:
    from ..core.base import Codegen, Translator

Args = Sequence[Value]
Kwargs = Mapping[str, Value]


class HandleValue(Value):
    """The handle of a hook on an input: making it registers the hook."""

    __slots__ = ("hook", "method", "removed", "tensor", "version")

    def __init__(self, tensor: TensorValue, method: str, hook: Value | None) -> None:
        super().__init__()
        self.tensor = tensor
        self.method = method
        self.hook = hook
        self.version = tensor.fake._version
        self.removed = False

    def python_type(self) -> type:
        """torch's handle; retain_grad gives None."""
        return RemovableHandle if self.hook is not None else type(None)

    def truth(self, tx: Translator) -> bool:
        """Handles are true."""
        return self.hook is not None

    def getattr(self, tx: Translator, name: str) -> Value:
        """`remove`."""
        return BoundBuiltin(self, name) if name == "remove" else super().getattr(tx, name)

    def call_method(self, tx: Translator, name: str, args: Args, kwargs: Kwargs) -> Value:
        """`remove()`."""
        if name != "remove" or args or kwargs:
            return super().call_method(tx, name, args, kwargs)
        self.removed = True
        return constant(None)

    def create(self, codegen: Codegen, cls: type) -> None:
        """Register the hook. Raises Unsupported where the tensor has been overwritten since: the hook is on the old
        value."""
        if self.tensor.fake._version != self.version:
            raise Unsupported(
                Reason.RECONSTRUCT, detail=f"a hook on {self.tensor.describe()}, which is changed in place,"
            )
        codegen.push_function(register)
        codegen(self.tensor)
        codegen.const(self.method)
        codegen(self.hook if self.hook is not None else constant(None))
        codegen.const(self.removed)
        codegen.call(4)

    def describe(self) -> str:
        """For messages."""
        return f"the handle of a hook on {self.tensor.describe()}"


def register(tensor: torch.Tensor, method: str, hook: Callable[..., Any] | None, removed: bool) -> Any:
    """tensor.method(hook), and its removal where traced code has removed it."""
    handle = getattr(tensor, method)(*([] if hook is None else [hook]))
    if removed:
        handle.remove()
    return handle


def _hooks(method: str) -> Callable[..., Value]:
    def handler(tx: Translator, self: TensorValue, args: Args, kwargs: Kwargs) -> Value:
        tx.graph.refuse_of_two_runs(f"Tensor.{method}")
        given = [*args, *kwargs.values()]
        recorded = self.fake.requires_grad and not self.fake.is_inference()
        if not recorded or self.unrecorded or _functorch.get_dynamic_layer_stack_depth() or len(given) > 1:
            raise Unsupported(Reason.TENSOR_HOOK, torch.Tensor, method)
        hook = given[0] if given else None
        if self.node.op != "placeholder" or self.source is None or len(tx.graph.scopes.open) > 1:
            if method != "register_hook" or hook is None:
                raise _refusal(tx, self, method)
            return _captured(tx, self, hook)
        if tx.graph.versions.get(self.node) != self.fake._version:
            raise _refusal(tx, self, method)
        handle = HandleValue(self, method, hook)
        tx.effects.track_new(handle, RemovableHandle)
        tx.effects.made_first.append(handle)
        return handle if hook is not None else constant(None)

    return handler


METHODS.update({name: _hooks(name) for name in ("register_hook", "register_post_accumulate_grad_hook", "retain_grad")})


def _refusal(tx: Translator, tensor: TensorValue, method: str) -> Unsupported:
    """The break: here where nothing uses the tensor yet, else right after the operation that made it."""
    made = tensor.node.meta.get("step")
    if made is None or not tensor.node.users or made >= tx.trace.step:
        return Unsupported(Reason.TENSOR_HOOK, torch.Tensor, method)
    return Unsupported(Reason.TENSOR_HOOK, torch.Tensor, method, earlier=made + 1)


# ---- a hook as part of the graph -------------------------------------------------------------------------------------
def _captured(tx: Translator, self: TensorValue, hook: Value) -> Value:
    """For everything computed from it, the tensor is the result of an autograd.Function whose backward is the hook."""
    graph, made = tx.graph, self.node.meta.get("hooked", self.node)  # hooks are chained
    fake = made.meta["val"]
    if fake._version or fake._is_view() or type(self) is not TensorValue or made.graph is not graph.graph:
        raise _refusal(tx, self, "register_hook")
    users = list(made.users)
    with graph.nested() as forward:
        own = forward.lift(made)
        try:
            with graph.nested_without_writes("a hook") as backward, tx.effects.sealed("a hook"), torch.no_grad():
                assumed = tx.trace.layouts_assumed
                gradient = _gradient(tx, self, hook, backward)
        except (Unsupported, ObservedException) as error:
            raise _refusal(tx, self, "register_hook") from error
        saved = list(backward.lifted)
        result = graph.make(torch.ops.aten.alias.default, (own,), {})
        result.meta["val"] = own.meta["val"]
    forward.align(list(forward.lifted))
    if users and list(forward.lifted) != [made]:  # what the hook reads may be made after the hooked tensor
        raise _refusal(tx, self, "register_hook")
    plan = FunctionPlan(
        name="Hooked", forward=forward.close(((result,), tuple(saved))), backward=backward.close((gradient,)),
        gradients=1, strides=strides_of([self.fake]) if tx.trace.layouts_assumed > assumed else None,
        fixed=(), dirty=(), once=False,
    )  # fmt: skip
    nodes = [NodeValue(node) for node in forward.lifted]
    hooked = graph.call(plan.function(), nodes, {}, tx).iterate(tx)[0]
    assert isinstance(hooked, TensorValue)
    for user in users:
        user.replace_input_with(made, hooked.node)
    if users:
        call = hooked.node.args[0]
        assert isinstance(call, torch.fx.Node)
        made.append(call)
        call.append(hooked.node)
    if self.node is made:
        step = made.meta.get("step", 0)
        hooked.node.meta.update(hooked=made, without=min(step + 1, tx.trace.step))
        self.node, self.fake = hooked.node, hooked.fake
        tx.trace.values_by_id[id(self.fake)] = self
    return CapturedHandle(self)


def _gradient(tx: Translator, self: TensorValue, hook: Value, scope: Any) -> torch.fx.Node:
    """Interpret the hook: the node of its result for the gradient."""
    fake = self.fake
    with tx.graph.fake_mode:
        like = torch.empty_strided(fake.shape, fake.stride(), dtype=fake.dtype, device=fake.device)
    arriving = TensorValue(scope.add_input("gradient", like), like)
    tx.trace.values_by_id[id(like)] = arriving
    tx.trace.keep_alive.append(like)
    asked = tx.trace.layouts_asked
    changed = hook.call(tx, [arriving], {})
    if tx.trace.layouts_asked > asked:
        raise _refusal(tx, self, "register_hook")
    if changed.is_constant() and changed.as_constant() is None:
        return arriving.node
    if not isinstance(changed, TensorValue) or (changed.fake.shape, changed.fake.dtype) != (like.shape, like.dtype):
        raise _refusal(tx, self, "register_hook")
    return tx.graph.scopes.here(changed.node)


class CapturedHandle(Value):
    """The handle of a hook that is part of the graph: it has no methods."""

    __slots__ = ("tensor",)

    def __init__(self, tensor: TensorValue) -> None:
        super().__init__()
        self.tensor = tensor

    def python_type(self) -> type:
        """torch's handle."""
        return RemovableHandle

    def describe(self) -> str:
        """For messages."""
        return f"the handle of a hook on {self.tensor.describe()}"


# ---- gradients with respect to tensors that the graph computes -------------------------------------------------------
def gradients_break(tx: Translator, tensors: Sequence[Value]) -> Unsupported:
    """The break of torch.autograd.grad, as early as the tensors were made whose gradients are requested."""
    made = [tensor.node for tensor in tensors if isinstance(tensor, TensorValue) and tensor.node.users]
    steps = [node.meta["step"] + 1 for node in made if "step" in node.meta]
    earlier = {"earlier": min(steps)} if steps and min(steps) < tx.trace.step else {}
    return Unsupported(Reason.GRADIENT_INSIDE, torch.autograd.grad, **earlier)
