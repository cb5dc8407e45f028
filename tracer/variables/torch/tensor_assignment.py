"""Assignments to tensor attributes: `p.data = value`, `p.grad = value`, `y.requires_grad = True`.

The first two are side effects, made after the graph has run. From `p.data = value` on, the variable is represented in
the graph by an alias of `value`; where autograd would record it after that, or give it a gradient, or where user code
takes a view of it, the graph breaks. A tensor that the graph computes may begin to require gradients; where it leaves
the graph, or a view of it does, the graph breaks before that. For an input the third is a side effect, too: from
`p.requires_grad = False` on it is `p.detach()` in the graph, of which no view may leave the graph. Gradients for what
was recorded before are left to autograd, which drops them in the backward where the parameter still requires none. An
input that begins to require gradients may be used as before; where autograd would record it, the graph breaks at the
beginning of that statement.
"""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
import torch.fx
from torch._C import _functorch

from ...breaks.reasons import Reason
from ...breaks.unsupported import Unsupported
from ..core.base import Value
from ..core.constant import constant
from .tensor import PLAIN_TYPES, SETTERS, TensorValue
from .tensor_methods import METHODS

if TYPE_CHECKING:
    from ..core.base import Trace, Translator


def _set_data(tx: Translator, self: TensorValue, value: Value) -> None:
    """`self.data = value`. Tensors that autograd saved before would see the new values: left to eager."""
    unknown = partial(Unsupported, Reason.SET_ATTRIBUTE, torch.Tensor, "data")
    if not isinstance(value, TensorValue) or not _may_share(tx, self.fake, value.fake) or self.kind not in PLAIN_TYPES:
        raise unknown()
    if tx.effects.has_pending(self, "requires_grad") or any(is_recorded(user) for user in self.node.users):
        raise unknown()
    shared = tx.graph.call("detach", [value], {}, tx, op="call_method")
    assert isinstance(shared, TensorValue)
    if self.source is not None:
        tx.effects.store_attr(self, "data", shared)
    recorded = self.fake.requires_grad
    _becomes(tx, self, shared.node, shared.fake)
    tx.graph.assigned.append((shared.fake, "data"))
    if recorded:
        with tx.graph.fake_mode:
            self.fake = shared.fake.detach().requires_grad_()
        self.unrecorded = unknown


def _may_share(tx: Translator, ours: torch.Tensor, theirs: torch.Tensor) -> bool:
    """Whether a tensor may take over another's memory, as far as the graph can observe."""
    alike = all(getattr(ours, name) == getattr(theirs, name) for name in _KIND) and ours.layout is torch.strided
    odd = ours._is_view() or any(t.is_inference() or t.is_conj() or t.is_neg() for t in (ours, theirs))
    busy = tx.effects.is_sealed() or len(tx.graph.scopes.open) > 1 or _functorch.get_dynamic_layer_stack_depth() > 0
    return alike and ours.is_leaf and not odd and not busy


_KIND = ("dtype", "device", "layout")


def is_recorded(node: torch.fx.Node) -> bool:
    """Whether autograd records this operation."""
    found = node.meta.get("val")
    parts = found if isinstance(found, (tuple, list)) else (found,)
    return any(isinstance(part, torch.Tensor) and part.requires_grad for part in parts)


def _set_grad(tx: Translator, self: TensorValue, value: Value) -> None:
    """`self.grad = value`: None, or a tensor that torch accepts."""
    if self.source is None or self.real is None or tx.effects.is_sealed() or _functorch.get_dynamic_layer_stack_depth():
        raise Unsupported(Reason.SET_ATTRIBUTE, torch.Tensor, "grad")
    if not (value.is_constant() and value.as_constant() is None) and not _fits(self, value):
        raise Unsupported(Reason.SET_ATTRIBUTE, torch.Tensor, "grad")
    tx.effects.store_attr(self, "grad", value)


def _fits(tensor: TensorValue, value: Value) -> bool:
    """Whether torch accepts `value` as a gradient of the tensor: a refusal is left to eager."""
    if not isinstance(value, TensorValue) or value is tensor or value.kind not in PLAIN_TYPES:
        return False
    ours, theirs = tensor.fake, value.fake
    sizes = [*ours.shape, *theirs.shape]
    known = all(type(size) is int for size in sizes) and ours.shape == theirs.shape
    return known and all(getattr(ours, name) == getattr(theirs, name) for name in _KIND)


def _set_requires_grad(tx: Translator, self: TensorValue, value: Value) -> None:
    """`self.requires_grad = value`: torch refuses it for non-leaf tensors, even where nothing changes."""
    if self.fake.requires_grad and not (self.fake.is_leaf and self.getattr(tx, "is_leaf").as_constant()):
        raise _requires_grad_changes()
    require(tx, self, value)


def require(tx: Translator, self: TensorValue, value: Value) -> None:
    """Nothing, where the flag is already set so. An inference tensor may refuse even that, and so does any tensor
    inside a torch.func transform."""
    flag, fake = value.as_constant() if value.is_constant() else None, self.fake
    if type(flag) is not bool or fake.is_inference() or _functorch.get_dynamic_layer_stack_depth():
        raise _requires_grad_changes()
    if fake.requires_grad == flag:
        return
    busy = tx.effects.is_sealed() or len(tx.graph.scopes.open) > 1 or tx.graph.checkpoint
    if busy or type(self) is not TensorValue or self.kind not in PLAIN_TYPES:
        raise _requires_grad_changes()
    if self.source is not None and self.real is not None:
        _require_of_input(tx, self, flag)
    else:
        _require_of_computed(tx, self, flag)


def _require_of_computed(tx: Translator, self: TensorValue, flag: bool) -> None:
    """A tensor that the graph computes, and that nothing uses yet, is from then on an autograd leaf, which must not
    leave the graph."""
    if not flag or self.source is not None or self.real is not None or self.node.users:
        raise _requires_grad_changes()
    leaf = tx.graph.call("detach", [self], {}, tx, op="call_method")
    leaf = tx.graph.call("requires_grad_", [leaf], {}, tx, op="call_method")
    assert isinstance(leaf, TensorValue)
    _becomes(tx, self, leaf.node, leaf.fake)
    where = {"location": tx.own_location(), "stack": tx.stack_locations(), "earlier": tx.trace.safe_step()}
    tx.graph.leaves.append((self.fake, partial(_requires_grad_changes, **where)))


def _require_of_input(tx: Translator, self: TensorValue, flag: bool) -> None:
    """A side effect. In the graph it is represented: with its original flag by itself, without gradients by an alias,
    and with gradients by something that the graph must not record."""
    given, fake = tx.graph.inputs.get(self.source), self.fake  # type: ignore[arg-type]
    number = fake.is_floating_point() or fake.is_complex()
    if given is None or not number or fake._is_view() or not self.getattr(tx, "is_leaf").as_constant():
        raise _requires_grad_changes()
    before = given.meta["val"]
    has_other_data = self.node is not given and not tx.effects.has_pending(self, "requires_grad")
    made = [node.meta.get("val") for node in tx.graph.graph.nodes]
    frozen = tx.graph.frozen and self.node is not given
    if has_other_data or any(_follows(value, before) or (frozen and is_view_of(value, fake)) for value in made):
        raise _requires_grad_changes()
    tx.effects.store_attr(self, "requires_grad", constant(flag))
    self.unrecorded = None
    if before.requires_grad == flag:
        _becomes(tx, self, given, before)
        tx.graph.assigned = [pair for pair in tx.graph.assigned if pair[0] is not before]
    elif flag:
        with tx.graph.fake_mode:  # no operation gets this one: the value is still represented by the node's own
            self.fake = before.detach().requires_grad_()
        tx.graph.assigned.append((before, "requires_grad"))
        where = {"location": tx.own_location(), "stack": tx.stack_locations()}
        self.unrecorded = partial(_begins_to_be_recorded, tx.trace, tx.trace.step, where)
    else:
        shared = tx.graph.call("detach", [self], {}, tx, op="call_method")
        assert isinstance(shared, TensorValue)
        _becomes(tx, self, shared.node, shared.fake)
        tx.graph.assigned.append((before, "requires_grad"))
        where = {"location": tx.own_location(), "stack": tx.stack_locations(), "earlier": tx.trace.safe_step()}
        tx.graph.frozen.append((shared.fake, partial(_requires_grad_changes, **where)))


def is_view_of(value: Any, base: torch.Tensor) -> bool:
    """Whether a result is a view of exactly this tensor."""
    return isinstance(value, torch.Tensor) and value._is_view() and value._base is base


def _follows(fake: Any, base: torch.Tensor) -> bool:
    """Whether `fake` is a view that autograd did not record: it requires gradients while its base does."""
    return is_view_of(fake, base) and fake.grad_fn is None


def _becomes(tx: Translator, self: TensorValue, node: torch.fx.Node, fake: torch.Tensor) -> None:
    """From here on, the variable is represented by `node`."""
    self.node, self.fake, self.shape = node, fake, None
    tx.trace.values_by_id[id(fake)] = self


_requires_grad_changes = partial(Unsupported, Reason.REQUIRES_GRAD_CHANGE, torch.Tensor, "requires_grad_")


def _begins_to_be_recorded(trace: Trace, step: int, where: dict[str, Any]) -> Unsupported:
    """The break where autograd is to record an input that requires gradients since `step`: at the beginning of the
    statement, so that the rest is in one graph."""
    earlier: dict[str, Any] = {"earlier": trace.statement} if step < trace.statement < trace.step else {}
    return _requires_grad_changes(**where, **earlier)


def _requires_grad_(tx: Translator, self: TensorValue, args: Sequence[Value], kwargs: Mapping[str, Value]) -> Value:
    """`self.requires_grad_(flag)`."""
    wanted = [*args, *kwargs.values()] or [constant(True)]
    if len(wanted) > 1 or not kwargs.keys() <= {"requires_grad"}:
        raise _requires_grad_changes()
    require(tx, self, wanted[0])
    return self


def _delete(tx: Translator, self: TensorValue, args: Sequence[Value], kwargs: Mapping[str, Value]) -> Value:
    """`del self.grad`: there is none from then on."""
    if len(args) != 1 or args[0].as_constant() != "grad":
        raise Unsupported(Reason.DELETE, detail=f"an attribute of {self.describe()}")
    self.setattr(tx, "grad", constant(None))
    return constant(None)


def _set(tx: Translator, self: TensorValue, args: Sequence[Value], kwargs: Mapping[str, Value]) -> Value:
    """`self.__setattr__(name, value)`."""
    self.setattr(tx, args[0].as_constant(), args[1])
    return constant(None)


METHODS.update(__delattr__=_delete, __setattr__=_set, requires_grad_=_requires_grad_)
SETTERS.update(data=_set_data, grad=_set_grad, requires_grad=_set_requires_grad)
