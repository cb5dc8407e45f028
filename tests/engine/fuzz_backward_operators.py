"""What the fuzz calls, continued: kernels that only a backward calls, on what the forward would give them."""

from __future__ import annotations

from typing import Any

import torch

from .fuzz_programs import Builder, Ref
from .fuzz_rules import rule

ATEN = "torch.ops.aten."


def _like(b: Builder, x: Ref) -> Ref:
    """A gradient of a value: old or new."""
    value = b.values[x.name]
    fits = [n for n, v in b.values.items() if v.shape == value.shape and v.dtype == value.dtype and n != x.name]
    return Ref(b.rng.choice(fits)) if fits and b.chance(0.5) else b.input(tuple(value.shape), value.dtype)


@rule(3)
def _softmax_backward(b: Builder) -> Any:
    x = b.tensor("f", least=1)
    d = b.dim(x)
    name = b.rng.choice(("softmax", "log_softmax"))
    y = b.emit(f"F.{name}", x, d)
    if y is None:
        return None
    kernel = "_softmax_backward_data" if name == "softmax" else "_log_softmax_backward_data"
    return b.emit(f"{ATEN}{kernel}", _like(b, y), y, d, b.values[x.name].dtype)


@rule(3)
def _pool_backward(b: Builder) -> Any:
    x = b.tensor("f", least=4, most=4) if b.chance(0.4) else b.input((2, 3, 6, 4), b.dtype("f"))
    size, step = b.rng.choice((1, 2, 3)), b.rng.choice((1, 2))
    name = b.rng.choice(("max", "avg", "adaptive_avg", "adaptive_max"))
    if name == "avg":
        y = b.emit("F.avg_pool2d", x, size, step, size // 2, False, b.chance(0.5))
        if y is None:
            return None
        args = b.calls[-1].args
        pads = [size // 2]
        return b.emit(f"{ATEN}avg_pool2d_backward", _like(b, y), x, [size], [step], pads, False, args[5], None)
    if name == "adaptive_avg":
        y = b.emit("F.adaptive_avg_pool2d", x, b.rng.choice((1, 2, 3)))
        return None if y is None else b.emit(f"{ATEN}_adaptive_avg_pool2d_backward", _like(b, y), x)
    if name == "adaptive_max":
        places = _index_of(b, "F.adaptive_max_pool2d", x, b.rng.choice((1, 2)), True)
        return None if places is None else b.emit(f"{ATEN}adaptive_max_pool2d_backward", *_grads(b, x, places))
    places = _index_of(b, "F.max_pool2d", x, size, step, size // 2, 1, False, True)
    if places is None:
        return None
    gradient, x, index = _grads(b, x, places)
    kernel = "max_pool2d_with_indices_backward"
    return b.emit(f"{ATEN}{kernel}", gradient, x, [size], [step], [size // 2], [1], False, index)


def _index_of(b: Builder, function: str, *args: Any) -> Ref | None:
    """Where the largest values lie: the second result of a pooling."""
    part = b.emit(function, *args)  # one of both, at random
    return None if part is None or b.values[part.name].is_floating_point() else part


def _grads(b: Builder, x: Ref, places: Ref) -> tuple[Ref, Ref, Ref]:
    gradient = b.input(tuple(b.values[places.name].shape), b.values[x.name].dtype)
    return gradient, x, places


@rule(3)
def _elementwise_backward(b: Builder) -> Any:
    x = b.tensor("f")
    gradient = _like(b, x)
    options: list[tuple[Any, ...]] = [
        ("threshold_backward", gradient, x, 0),
        ("gelu_backward", gradient, x),
        ("tanh_backward", gradient, x),
        ("sigmoid_backward", gradient, x),
        ("silu_backward", gradient, x),
        ("hardtanh_backward", gradient, x, -1, 1),
        ("hardswish_backward", gradient, x),
        ("hardsigmoid_backward", gradient, x),
        ("leaky_relu_backward", gradient, x, 0.1, False),
        ("elu_backward", gradient, 1.0, 1.0, 1.0, False, x),
        ("softplus_backward", gradient, x, 1, 20),
        ("mish_backward", gradient, x),
        ("softshrink_backward", gradient, x, 0.5),
        ("hardshrink_backward", gradient, x, 0.5),
        ("logit_backward", gradient, x, 1e-3),
        ("glu_backward", b.input(_halved(b, x), b.values[x.name].dtype), x, 0),
    ]
    name, *args = b.rng.choice(options)
    return b.emit(f"{ATEN}{name}", *args)


def _halved(b: Builder, x: Ref) -> tuple[int, ...]:
    shape = tuple(b.values[x.name].shape)
    return (shape[0] // 2, *shape[1:]) if shape else ()


@rule(3)
def _windows_backward(b: Builder) -> Any:
    """Gradients of what moves elements: they add up where elements were read more than once."""
    x = b.input((2, 3, 6, 4), b.dtype("f"))
    dtype = b.values[x.name].dtype
    name = b.rng.choice(("nearest", "bilinear", "bicubic", "reflect", "replicate", "select", "slice", "index", "norm"))
    if name == "nearest":
        return b.emit(f"{ATEN}upsample_nearest2d_backward", b.input((2, 3, 9, 8), dtype), [9, 8], [2, 3, 6, 4])
    if name in ("bilinear", "bicubic"):
        kernel, corners = f"{ATEN}upsample_{name}2d_backward", b.chance(0.5)
        return b.emit(kernel, b.input((2, 3, 9, 8), dtype), [9, 8], [2, 3, 6, 4], corners)
    if name in ("reflect", "replicate"):
        kernel = f"{ATEN}{'reflection' if name == 'reflect' else 'replication'}_pad2d_backward"
        return b.emit(kernel, b.input((2, 3, 9, 7), dtype), x, [1, 2, 2, 1])
    if name == "select":
        return b.emit(f"{ATEN}select_backward", b.input((2, 6, 4), dtype), [2, 3, 6, 4], 1, b.rng.randrange(-3, 3))
    if name == "slice":
        return b.emit(f"{ATEN}slice_backward", x, [2, 3, 13, 4], 2, 0, 12, 2)
    if name == "norm":
        y = b.input((5, 7), dtype)
        mean, rstd = b.input((5, 1), torch.float32 if dtype is torch.float32 else dtype), b.input((5, 1), dtype)
        weight = b.input((7,), dtype)
        kernel = f"{ATEN}native_layer_norm_backward"
        return b.emit(kernel, y, b.input((5, 7), dtype), [7], mean, rstd, weight, weight, [True, True, True])
    index = b.input((5,), torch.int64, "index", 7)
    kernel = f"{ATEN}embedding_dense_backward"
    return b.emit(kernel, b.input((5, 3), dtype), index, 7, b.rng.choice((-1, 2)), b.chance(0.3))
