"""What the fuzz calls, continued: bits, integers, order, odd sizes, random numbers, attention, views in a dtype."""

from __future__ import annotations

from typing import Any

import torch

from .fuzz_programs import RANDOM, Builder, Ref
from .fuzz_rules import rule

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


@rule(6)
def _overloads(b: Builder) -> Any:
    """Overloads that torch's own functions seldom call, and those that only rules of the compiler do."""
    x, y, truth = b.tensor("f", least=1), b.tensor("i"), b.tensor("b")
    bits = b.input(tuple(b.values[y.name].shape), b.values[y.name].dtype, "index", 7)
    number = b.rng.choice((1, 2, 3, 5))
    places = [b.input((3,), torch.int64, "index", len(b.values[x.name]))] if b.values[x.name].numel() else []
    options: list[tuple[Any, ...]] = [
        *[(f"bitwise_{name}.Scalar_Tensor", number, y) for name in ("and", "or", "xor", "left_shift", "right_shift")],
        *[(f"bitwise_{name}_shift.{overload}", y, by) for name in ("left", "right")
          for overload, by in (("Tensor", bits), ("Tensor_Scalar", number))],
        ("bitwise_not.default", y),
        ("sub.Scalar", x, number, 2),
        ("fmod.Scalar", x, number),
        ("square.default", x),
        ("copysign.Scalar", x, -0.0),
        ("pow.Scalar", 2, x),
        ("std_mean.correction", x, [b.dim(x)]),
        ("where.ScalarOther", truth, b.partner(truth), b.scalar()),
        ("where.Scalar", truth, b.scalar(), b.scalar()),
        ("floor_divide.Scalar", x, number),
        ("_reshape_alias.default", x, list(b.values[x.name].shape), list(b.values[x.name].stride())),
        *[("_unsafe_index_put.default", x, [place], b.input((), b.values[x.name].dtype), True) for place in places],
        ("ones.default", [2, number]),
        ("numpy_T.default", x),
    ]
    name, *args = b.rng.choice(options)
    return b.emit(f"torch.ops.aten.{name}", *args)


@rule(3)
def _formats(b: Builder) -> Any:
    """Images and volumes with their channels innermost, and copies that make them so or not."""
    rank = b.rng.choice((4, 4, 5))
    x = b.tensor("fi", least=rank, most=rank)
    formats = (torch.channels_last if rank == 4 else torch.channels_last_3d, torch.contiguous_format)
    name = b.rng.choice(("torch.clone", "torch.Tensor.contiguous", "torch.zeros_like", "torch.Tensor.to"))
    dtype = (b.dtype(),) if name.endswith("to") else ()
    return b.emit(name, x, *dtype, memory_format=b.rng.choice((*formats, torch.preserve_format)))


@rule(1)
def _solid_windows_backward(b: Builder) -> Any:
    x = b.input((1, 2, 3, 4, 5), b.dtype("f"))
    y = b.emit("F.avg_pool3d", x, 2, 1, 0)
    if y is None:
        return None
    gradient = b.input(tuple(b.values[y.name].shape), b.values[x.name].dtype)
    return b.emit("torch.ops.aten.avg_pool3d_backward", gradient, x, [2], [1], [0], False, True, None)


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


@rule(4)
def _integers(b: Builder) -> Any:
    """Integer arithmetic where Python's rules, C's and overflow differ."""
    x = b.tensor("i")
    value = b.values[x.name]
    name = b.rng.choice(("floor_divide", "remainder", "fmod", "div", "pow", "mul", "add", "sub", "abs", "neg", "square",
                         "bitwise_left_shift", "bitwise_right_shift", "cumsum", "cumprod", "sum", "prod"))
    if name in ("abs", "neg", "square"):
        return b.emit(f"torch.{name}", x)
    if name in ("cumsum", "cumprod", "sum", "prod"):
        dtype = {"dtype": value.dtype} if b.chance(0.5) else {}
        return b.emit(f"torch.{name}", x, b.dim(x), **dtype)
    if name.startswith("bitwise"):
        return b.emit(f"torch.{name}", x, b.rng.choice((0, 1, 7, value.element_size() * 8, 70, -1)))
    y = b.rng.choice((1, 2, 3, -2, 7, -1)) if b.chance(0.5) else b.partner(x, "i")
    options = {"rounding_mode": b.rng.choice(("floor", "trunc"))} if name == "div" else {}
    return b.emit(f"torch.{name}", *((x, y) if b.chance(0.7) or not isinstance(y, Ref) else (y, x)), **options)


@rule(3)
def _odd_sizes(b: Builder) -> Any:
    """Reductions and joins of nothing and of one."""
    shape = [b.rng.choice((0, 1, 1, 3)) for _ in range(b.rng.choice((1, 2, 3)))]
    x = b.input(tuple(shape), b.dtype())
    name = b.rng.choice(("sum", "mean", "prod", "any", "all", "logsumexp", "cumsum", "softmax", "var", "amax", "argmax",
                         "cat", "sort", "median", "norm", "diff", "std"))
    if name == "cat":
        return b.emit("torch.cat", [x, b.input((0,), b.dtype()), x], b.dim(x))
    if name in ("var", "std"):
        return b.emit(f"torch.{name}", x, (b.dim(x),), correction=b.rng.choice((0, 1, 2, 0.5)))
    if name == "norm":
        return b.emit("torch.linalg.vector_norm", x, b.rng.choice((0, 1, 2)), b.dim(x))
    if name == "softmax":
        return b.emit("F.softmax", x, b.dim(x))
    return b.emit(f"torch.{name}", x, dim=b.dim(x))


@rule(3)
def _ordered(b: Builder) -> Any:
    x = b.tensor(least=1)
    n = b.values[x.name].shape[b.dim(x)] if b.values[x.name].dim() == 1 else 0
    edges = b.emit("torch.sort", b.input((b.rng.randint(1, 9),), b.values[x.name].dtype, "small"))
    options: list[tuple[Any, ...]] = [
        ("torch.topk", x, min(2, n or 1), b.dim(x)),
        ("torch.kthvalue", x, 1, b.dim(x)),
        ("torch.sort", x, b.dim(x), b.chance(0.5)),
        ("torch.argsort", x, b.dim(x)),
        ("torch.diff", x),
        ("torch.cummax", x, b.dim(x)),
        ("torch.cummin", x, b.dim(x)),
        ("torch.flip", x, (b.dim(x),)),
        ("torch.histc", x, 4, -2, 2),
        ("torch.searchsorted", edges, x),
        ("torch.bucketize", x, edges),
    ]
    name, *args = b.rng.choice(options)
    if name in ("torch.searchsorted", "torch.bucketize"):
        found = None if edges is None else b.values[edges.name]  # or where they lay
        if found is None or found.dtype != b.values[x.name].dtype or bool((found[1:] < found[:-1]).any()):
            return None
        return b.emit(name, *args, right=b.chance(0.5), out_int32=b.chance(0.2))
    return b.emit(name, *args)


@rule(2)
def _index_arithmetic(b: Builder) -> Any:
    """Indices that a program computes."""
    x = b.tensor("fi", least=1)
    n = b.values[x.name].shape[0]
    places = b.emit("torch.arange", b.rng.randint(1, 9))
    if places is None or n == 0:
        return None
    for function, number in (("torch.mul", b.rng.choice((1, 2, -1, -3))), ("torch.add", b.rng.randint(-3, 5))):
        places = places and b.emit(function, places, number)
    places = places and b.emit(b.rng.choice(("torch.remainder", "torch.remainder", "torch.fmod")), places, n)
    if places is None:
        return None
    if b.chance(0.3):
        value = b.values[x.name]
        source = b.input((b.values[places.name].shape[0], *value.shape[1:]), value.dtype)
        return b.emit("torch.index_put", x, (places,), source, True)
    return b.emit("operator.getitem", x, (places,))
