"""What the fuzz calls, continued: bits, random numbers, attention, gradients' kernels, views in another dtype."""

from __future__ import annotations

from typing import Any

import torch

from .fuzz_operators import rule
from .fuzz_programs import RANDOM, Builder

VIEWED = {4: (torch.int32, torch.float32), 8: (torch.int64, torch.float64), 2: (torch.int16, torch.float16)}


@rule(4)
def _bits(b: Builder) -> Any:
    x = b.tensor("i")
    name = b.rng.choice(("and_", "or_", "xor", "lshift", "rshift"))
    if b.chance(0.5):
        number = b.rng.randint(0, 7)
        return b.emit(f"operator.{name}", *((x, number) if b.chance(0.7) else (number, x)))
    y = b.input(tuple(b.values[x.name].shape), b.values[x.name].dtype, "index", 7)
    return b.emit(f"operator.{name}", x, y)


@rule(4)
def _one_sided(b: Builder) -> Any:
    x = b.tensor()
    options: list[tuple[Any, ...]] = [
        ("torch.clamp_min", x, b.partner(x)),
        ("torch.clamp_max", x, b.partner(x)),
        ("torch.clamp_min", x, b.scalar()),
        ("torch.clamp_max", x, b.scalar()),
        ("torch.max", x),
        ("torch.min", x),
        ("F.threshold", x, 0.5, 20),
        ("torch.fill", x, b.input((), b.values[x.name].dtype)),
        ("torch.masked_fill", x, b.partner(x, "b"), b.input((), b.values[x.name].dtype)),
        ("torch.Tensor.new_full", x, (2, 3), 2),
        ("torch.Tensor.new_ones", x, (4,)),
        ("torch.div", x, b.rng.choice((2, 3, -2, 0.5)), "floor"),
    ]
    name, *args = b.rng.choice(options)
    if args[-1] == "floor":
        return b.emit(name, *args[:-1], rounding_mode=b.rng.choice(("floor", "trunc")))
    return b.emit(name, *args)


@rule(2)
def _viewed_as(b: Builder) -> Any:
    x = b.tensor("fi", least=1)
    width = b.values[x.name].element_size()
    return b.emit("torch.Tensor.view", x, b.rng.choice(VIEWED.get(width, (torch.uint8, torch.int8))))


@rule(3)
def _random(b: Builder) -> Any:
    x = b.tensor("f")
    n = b.rng.randint(1, 9)
    options: list[tuple[Any, ...]] = [
        ("torch.rand_like", x),
        ("torch.randn_like", x),
        ("torch.rand", n, 3),
        ("torch.randint", -3, 9, (n, 2)),
        ("torch.randperm", n),
        ("F.dropout", x, b.rng.choice((0.0, 0.5, 1.0))),
        ("torch.bernoulli", b.input((n, 3), torch.float32, "index", 2)),
        ("torch.normal", 0.5, 2.0, (n,)),
    ]
    name, *args = b.rng.choice(options)
    assert name in RANDOM
    return b.emit(name, *args)


@rule(2)
def _attention(b: Builder) -> Any:
    heads, rows, keys, width = (b.rng.choice((1, 2, 3, 8)) for _ in range(4))
    dtype = b.dtype("f")
    query = b.input((2, heads, rows, width), dtype)
    key, value = (b.input((2, heads, keys, width), dtype) for _ in range(2))
    mask = b.input((rows, keys), torch.bool) if b.chance(0.4) else None
    return b.emit("F.scaled_dot_product_attention", query, key, value, mask)


@rule(2)
def _solid_windows(b: Builder) -> Any:
    x = b.input((1, 2, 3, 4, 5), b.dtype("f"))
    size = b.rng.choice((1, 2, 3))
    name = b.rng.choice(("F.max_pool3d", "F.avg_pool3d", "F.adaptive_avg_pool3d", "F.conv3d", "F.interpolate"))
    if name == "F.interpolate":
        return b.emit(name, x, None, 2.0, b.rng.choice(("nearest", "trilinear")))
    if name == "F.conv3d":
        channels = b.values[x.name].shape[1]
        return b.emit(name, x, b.input((2, channels, size, 1, size), b.values[x.name].dtype))
    return b.emit(name, x, size, *(() if "adaptive" in name else (b.rng.choice((1, 2)), size // 2)))


@rule(3)
def _gradients(b: Builder) -> Any:
    """Kernels that only a backward calls."""
    aten = "torch.ops.aten."
    x = b.input((2, 3, 6, 4), b.dtype("f"))
    value = b.values[x.name]
    name = b.rng.choice(("avg_pool2d", "embedding", "threshold", "gelu", "tanh"))
    if name == "avg_pool2d":
        gradient = b.input((2, 3, 3, 2), value.dtype)
        return b.emit(f"{aten}avg_pool2d_backward", gradient, x, [2], [2], [0], False, True, None)
    if name == "embedding":
        index = b.input((5,), torch.int64, "index", 7)
        return b.emit(f"{aten}embedding_dense_backward", b.input((5, 3), value.dtype), index, 7, -1, b.chance(0.3))
    y = b.input((2, 3, 6, 4), value.dtype)
    if name == "threshold":
        return b.emit(f"{aten}threshold_backward", x, y, 0)
    if name == "gelu":
        return b.emit(f"{aten}gelu_backward", x, y)
    return b.emit(f"{aten}tanh_backward", x, y)
