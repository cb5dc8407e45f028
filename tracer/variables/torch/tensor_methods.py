"""Methods of tensors whose result is no tensor, or that the graph cannot call: handlers in `METHODS`.

Who adds to them, or replaces one, imports `METHODS` from here, so that these come first.
"""
from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import torch

from ...breaks.reasons import Reason
from ...breaks.unsupported import Unsupported
from ...runtime.global_modes import without_overrides
from ...sources.source import SizeSource
from ..containers.lists import make_list
from ..containers.sequences import TupleValue
from ..core.base import Value, with_arguments
from ..core.constant import constant
from ..core.registry import from_python
from ..python.symbolic_numbers import size_value
from .tensor import METHODS, TensorValue, numel

if TYPE_CHECKING:
    from ..core.base import Translator

_ATEN = torch.ops.aten


def _named_dim(args: Sequence[Value], kwargs: Mapping[str, Value]) -> Value | None:
    dim = args[0] if args else kwargs.get("dim")
    return None if dim is not None and dim.is_constant() and dim.as_constant() is None else dim


def _size(tx: Translator, self: TensorValue, args: Sequence[Value], kwargs: Mapping[str, Value]) -> Value | None:
    dim = _named_dim(args, kwargs)
    if dim is None:
        return self.sizes(tx)
    rank = self.fake.dim()
    if dim.is_constant() and type(dim.as_constant()) is not int:
        return None
    if dim.is_constant() and not -rank <= dim.as_constant() < rank:
        allowed = f"[{-rank}, {rank - 1}]"
        message = f"Dimension out of range (expected to be in range of {allowed}, but got {dim.as_constant()})"
        tx.raise_observed(IndexError, message)
    return self.sizes(tx).getitem(tx, dim)


def _stride(tx: Translator, self: TensorValue, args: Sequence[Value], kwargs: Mapping[str, Value]) -> Value:
    tx.trace.layouts_asked += 1
    strides = [size_value(tx, s, self, _ATEN.sym_stride.int, i) for i, s in enumerate(self.fake.stride())]
    value = TupleValue(strides, tuple)
    dim = _named_dim(args, kwargs)
    if dim is not None and dim.is_constant() and dim.as_constant() not in range(-len(strides), len(strides)):
        raise Unsupported(
            Reason.RAISES, detail=f"IndexError: Tensor.stride({dim.as_constant()}) of {len(strides)} dimensions"
        )
    return value if dim is None else value.getitem(tx, dim)


def _storage_offset(
    tx: Translator, self: TensorValue, args: Sequence[Value], kwargs: Mapping[str, Value]
) -> Value | None:
    """Known for tensors that the graph makes; for an input, a guard checks where it begins in its storage."""
    if self.fake.layout is not torch.strided:
        return None
    tx.graph.refuse_of_rows(self.fake, "storage_offset")
    for source, offset, faked in tx.graph.shapes.beginnings(self.fake):
        if not isinstance(faked, int) or faked != offset:
            raise Unsupported(Reason.UNSUPPORTED_METHOD, torch.Tensor, "storage_offset", detail="where sizes vary")
        tx.guards.add(SizeSource(source, "storage_offset", -1), "EQUALS_MATCH", offset)
    tx.trace.layouts_asked += 1
    return size_value(tx, self.fake.storage_offset(), self, _ATEN.sym_storage_offset.default)


def _folded(name: str) -> Callable[..., Value | None]:
    def method(tx: Translator, self: TensorValue, args: Sequence[Value], kwargs: Mapping[str, Value]) -> Value | None:
        if any(not value.is_constant() for value in (*args, *kwargs.values())):
            return None
        real = [arg.as_constant() for arg in args], {k: v.as_constant() for k, v in kwargs.items()}
        tx.trace.layouts_asked += name == "is_contiguous"
        try:
            with tx.graph.fake_mode:
                return from_python(tx, getattr(self.fake, name)(*real[0], **real[1]))
        except (RuntimeError, TypeError):  # as a node it is refused with the user's expression
            return None

    return method


def _of_memory(name: str) -> Callable[..., Value]:
    """The kind of memory of a tensor: fake tensors do not know."""

    def method(tx: Translator, self: TensorValue, args: Sequence[Value], kwargs: Mapping[str, Value]) -> Value:
        if self.source is None or self.real is None or args or kwargs:
            raise Unsupported(Reason.UNSUPPORTED_METHOD, torch.Tensor, name)
        with torch._C.DisableTorchFunctionSubclass():
            now = getattr(self.real, name)()
        unchanged = (without_overrides(lambda tensor: getattr(tensor, name)() is now), f"{{}}.{name}() is {now}")
        tx.guards.add(self.source, "LAMBDA", unchanged)
        return constant(now)

    return method


def _is_view(tx: Translator, self: TensorValue, args: Sequence[Value], kwargs: Mapping[str, Value]) -> Value:
    """Known for tensors that the graph makes; no guard checks it for an input."""
    if self.source is not None:
        raise Unsupported(Reason.UNSUPPORTED_METHOD, torch.Tensor, "_is_view", detail="of an input")
    tx.graph.refuse_of_rows(self.fake, "_is_view")
    tx.trace.layouts_asked += 1
    return constant(self.fake._is_view() if self.was_view is None else self.was_view)


def _detach_in_place(tx: Translator, self: TensorValue, args: Sequence[Value], kwargs: Mapping[str, Value]) -> Value:
    """No change for a tensor that requires no gradients; an error for a view (VariableTypeManual.cpp). Whether a result
    of the graph is a view may differ from the user's tensor, so Python is not called."""
    transformed = torch._C._functorch.peek_interpreter_stack() is not None  # where it drops tangents, or is refused
    if args or kwargs or self.source is not None or self.fake.requires_grad or transformed:
        raise Unsupported(Reason.UNSUPPORTED_METHOD, torch.Tensor, "detach_")
    if _is_view(tx, self, (), {}).as_constant():
        try:
            torch.empty(1).view(1).detach_()
        except RuntimeError as error:
            tx.raise_observed(RuntimeError, *error.args)
    return self


def _data(name: str) -> Callable[..., Value]:
    def method(tx: Translator, self: TensorValue, args: Sequence[Value], kwargs: Mapping[str, Value]) -> Value:
        raise Unsupported(Reason.DATA_DEPENDENT_VALUE, torch.Tensor, name)

    return method


def _item(tx: Translator, self: TensorValue, args: Sequence[Value], kwargs: Mapping[str, Value]) -> Value:
    """A number: an unbacked symbol."""
    if self.fake.numel() != 1 or self.fake.dtype.is_complex or args or kwargs:
        raise Unsupported(Reason.DATA_DEPENDENT_VALUE, torch.Tensor, "item")
    return tx.graph.call("item", [self], {}, tx, op="call_method")


def _tolist(tx: Translator, self: TensorValue, args: Sequence[Value], kwargs: Mapping[str, Value]) -> Value:
    """A list of a few numbers, each read by itself."""
    if self.fake.dim() == 0:
        return _item(tx, self, args, kwargs)
    size = self.fake.shape[0]
    if self.fake.dim() > 1 or not isinstance(size, int) or size > _LONGEST_LIST:
        raise Unsupported(Reason.DATA_DEPENDENT_VALUE, torch.Tensor, "tolist")
    if _is_new_range(self):
        return make_list(tx, [constant(number) for number in range(*self.node.args)])  # type: ignore[arg-type]
    return make_list(tx, [_item(tx, row, [], {}) for row in self.iterate(tx)])  # type: ignore[arg-type]


_LONGEST_LIST = 16


def _is_new_range(tensor: TensorValue) -> bool:
    """Whether it is a torch.arange of known integers that nothing has used yet: losses list dimensions so."""
    node, fake = tensor.node, tensor.fake
    whole = fake.dtype is torch.int64 and fake.device.type != "meta" and all(type(arg) is int for arg in node.args)
    return node.target is torch.arange and whole and not node.users


def _refused(name: str) -> Callable[..., Value]:
    def method(tx: Translator, self: TensorValue, args: Sequence[Value], kwargs: Mapping[str, Value]) -> Value:
        raise Unsupported(Reason.UNSUPPORTED_METHOD, torch.Tensor, name)

    return method


def _type(tx: Translator, self: TensorValue, args: Sequence[Value], kwargs: Mapping[str, Value]) -> Value | None:
    return None if args or kwargs else constant(self.fake.type())


def _get_device(tx: Translator, self: TensorValue, args: Sequence[Value], kwargs: Mapping[str, Value]) -> Value:
    device = self.fake.device
    return constant(-1 if device.type == "cpu" else device.index)


def _view_in_place(name: str) -> Callable[..., Value | None]:
    """`y.unsqueeze_(0)` of a tensor that the graph computes: from here on, the variable is the view. Autograd counts it
    as a change, so a tensor that requires gradients is left to eager, and an inference tensor outside of inference
    mode, which refuses."""

    def handler(tx: Translator, self: TensorValue, args: Sequence[Value], kwargs: Mapping[str, Value]) -> Value | None:
        known = self.source is not None or self.real is not None or type(self) is not TensorValue
        refused = self.fake.is_inference() and not torch.is_inference_mode_enabled()
        if known or refused or self.fake.requires_grad or tx.effects.is_sealed():
            return None
        view = tx.graph.call(name, [self, *args], kwargs, tx, op="call_method")
        assert isinstance(view, TensorValue)
        self.was_view = self.fake._is_view() if self.was_view is None else self.was_view
        self.node, self.fake, self.shape = view.node, view.fake, None
        tx.trace.values_by_id[id(view.fake)] = self
        return self

    return handler


_OF_ALL_OBJECTS = sorted(set(dir(object)) - {f"__{name}__" for name in ("eq", "ne", "lt", "le", "gt", "ge")})
"""Methods that are about the tensor itself: its string, its identity, its attributes."""

METHODS.update({
    **{
        f"{name}_": _view_in_place(name)
        for name in ("unsqueeze", "squeeze", "t", "transpose", "swapaxes", "swapdims")
    },
    "size": _size,
    "stride": _stride,
    "numel": numel,
    "storage_offset": _storage_offset,
    "nelement": numel,
    "type": _type,
    "get_device": _get_device,
    "item": _item,
    "_is_view": _is_view,
    "detach_": _detach_in_place,
    "tolist": _tolist,
    "__len__": lambda tx, self, args, kwargs: self.length(tx),
    "__iter__": lambda tx, self, args, kwargs: self.iter(tx),
    "__bool__": lambda tx, self, args, kwargs: constant(self.truth(tx)),
    "__getitem__": lambda tx, self, args, kwargs: with_arguments(self.getitem, tx, *args, **kwargs),
    "__contains__": _data("__contains__"),
    **{
        name: _folded(name)
        for name in (
            "dim", "ndimension", "is_contiguous", "is_floating_point", "is_complex", "is_signed", "element_size",
            "is_inference", "is_conj", "is_neg", "is_same_size", "is_coalesced", "dense_dim", "sparse_dim",
        )
    },
    **{name: _of_memory(name) for name in ("is_pinned", "is_shared")},
    **{
        name: _data(name)
        for name in ("numpy", "__int__", "__float__", "__index__", "__complex__", "equal", "allclose",
                     "is_nonzero", "__array__", "data_ptr", "__dlpack__")
    },
    **{
        name: _refused(name)
        for name in (
            "backward", "set_", "resize_", "resize_as_",
            "untyped_storage", "storage", "is_set_to", "share_memory_", "__deepcopy__",
            "pin_memory", "apply_", "map_", "map2_", "__setstate__", "__torch_function__", "storage_type",
            *_OF_ALL_OBJECTS,
        )
    },
})  # fmt: skip

__all__ = ("METHODS",)
