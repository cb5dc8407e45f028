"""Classes of tensors that are made of others, as libraries of quantized weights have them."""
# mypy: ignore-errors
from __future__ import annotations

import torch
import torch.nn.functional as F
from torch.testing._internal.two_tensor import TwoTensor
from torch.utils._python_dispatch import return_and_correct_aliasing
from torch.utils._pytree import tree_map_only


class Wrapped(torch.Tensor):
    """Another tensor, as are results of its operators: a class that cannot be taken apart."""

    @staticmethod
    def __new__(cls, inner):
        return torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype)

    def __init__(self, inner):
        self.inner = inner

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        result = func(*tree_map_only(Wrapped, lambda t: t.inner, args), **(kwargs or {}))
        return Wrapped(result) if isinstance(result, torch.Tensor) else result


class Int8(torch.Tensor):
    """Weights of eight bits with a scale for each row."""

    @staticmethod
    def __new__(cls, data, scale, dtype):
        made = torch.Tensor._make_wrapper_subclass
        return made(cls, data.shape, strides=data.stride(), dtype=dtype, device=data.device)

    def __init__(self, data, scale, dtype):
        self.data8, self.scale, self.axis = data, scale, 0

    def __tensor_flatten__(self):
        return ["data8", "scale"], {"dtype": self.dtype}

    @classmethod
    def __tensor_unflatten__(cls, tensors, context, size, stride):
        return cls(tensors["data8"], tensors["scale"], context["dtype"])

    @classmethod
    def of(cls, weight):
        scale = weight.abs().amax(1, keepdim=True) / 127
        return cls((weight / scale).round().to(torch.int8), scale, weight.dtype)

    def values(self):
        return self.data8.to(self.dtype) * self.scale

    __torch_function__ = torch._C._disabled_torch_function_impl

    @classmethod
    def __torch_dispatch__(cls, func, types, args, kwargs=None):
        kwargs = kwargs or {}
        if func in (torch.ops.aten.detach.default, torch.ops.aten.clone.default, torch.ops.aten.alias.default):
            made = cls(func(args[0].data8), func(args[0].scale), args[0].dtype)
            return return_and_correct_aliasing(func, args, kwargs, made)
        return func(*[arg.values() if isinstance(arg, cls) else arg for arg in args], **kwargs)


class Int8Linear(Int8):
    """The same, with a linear of its own."""

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        if func is F.linear:
            x, w, bias = args
            y = torch.mm(x.reshape(-1, x.shape[-1]), w.data8.to(x.dtype).t()) * w.scale.view(-1)
            return y.reshape(*x.shape[:-1], y.shape[-1]) + bias
        with torch._C.DisableTorchFunctionSubclass():
            return func(*args, **(kwargs or {}))


class Scaled(TwoTensor):
    """Two tensors, of which the second is multiplied by a number at each product."""

    @staticmethod
    def __new__(cls, a, b, k=1):
        return TwoTensor.__new__(cls, a, b)

    def __init__(self, a, b, k=1):
        self.a, self.b, self.k = a, b, k

    def __tensor_flatten__(self):
        return ["a", "b"], self.k

    @staticmethod
    def __tensor_unflatten__(tensors, context, size, stride):
        return Scaled(tensors["a"], tensors["b"], context)

    @classmethod
    def __torch_dispatch__(cls, func, types, args, kwargs=None):
        k = next(arg.k for arg in args if isinstance(arg, cls))
        a, b = (func(*tree_map_only(cls, lambda x, n=n: getattr(x, n), args), **(kwargs or {})) for n in "ab")
        made = cls(a, b * k if func is torch.ops.aten.mul.Tensor else b, k)
        return return_and_correct_aliasing(func, args, kwargs or {}, made)
