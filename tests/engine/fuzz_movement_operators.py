"""What the fuzz calls, continued: views, pads, joins, what is made, gathers, scatters, order."""

from __future__ import annotations

from typing import Any

import torch

from .fuzz_programs import Builder, Ref
from .fuzz_rules import DTYPES, rule


# ---- views
@rule(14)
def _view(b: Builder) -> Any:
    x = b.tensor("fibc", least=1)
    shape = tuple(b.values[x.name].shape)
    rank, d = len(shape), b.dim(x)
    n = shape[d]
    other = b.dim(x)
    order = list(range(rank))
    b.rng.shuffle(order)
    start, stop = sorted((b.rng.randint(0, n), b.rng.randint(0, n)))
    options: list[tuple[Any, ...]] = [
        ("torch.transpose", x, d, other),
        ("torch.permute", x, tuple(order)),
        ("torch.unsqueeze", x, b.rng.randint(0, rank)),
        ("torch.squeeze", x),
        ("torch.squeeze", x, d),
        ("torch.select", x, d, b.rng.randrange(-n, n) if n else 0),
        ("torch.narrow", x, d, start, stop - start),
        ("torch.flip", x, (d,)),
        ("torch.roll", x, b.rng.randint(-3, 3), d),
        ("torch.diagonal", x, b.rng.randint(-2, 2), d, other),
        ("torch.movedim", x, d, other),
        ("torch.Tensor.unfold", x, d, min(n, b.rng.choice((1, 2, 3))), b.rng.choice((1, 2))),
        ("operator.getitem", x, (slice(None),) * (d % rank) + (slice(start, stop, b.rng.choice((1, 1, 2, 3))),)),
        ("operator.getitem", x, (Ellipsis, None, slice(None, None, 2))),
        ("torch.chunk", x, b.rng.choice((2, 3)), d),
        ("torch.split", x, b.rng.choice((1, 2, 4)), d),
        ("torch.unbind", x, d),
        ("torch.flatten", x),
        ("torch.repeat_interleave", x, b.rng.choice((1, 2, 3)), d),
        ("torch.tile", x, (2, 1)),
        ("torch.rot90", x, 1, (0, -1)),
        ("torch.ravel", x),
        ("torch.Tensor.contiguous", x),
        ("torch.detach", x),
    ]
    return b.emit(*b.rng.choice(options))


@rule(6)
def _reshape(b: Builder) -> Any:
    x = b.tensor("fibc")
    count = b.values[x.name].numel()
    shape = []
    while count > 1 and b.chance(0.8):
        factors = [f for f in range(2, count + 1) if count % f == 0]
        shape.append(b.rng.choice(factors))
        count //= shape[-1]
    shape += [count] * (count != 1)
    b.rng.shuffle(shape)
    if b.chance(0.2):
        shape.insert(b.rng.randint(0, len(shape)), 1)
    return b.emit(b.rng.choice(("torch.reshape", "torch.Tensor.view")), x, tuple(shape))


@rule(4)
def _expand(b: Builder) -> Any:
    x = b.tensor()
    shape = tuple(b.rng.choice((2, 3)) if n == 1 else n for n in b.values[x.name].shape)
    lead = (b.rng.choice((1, 2, 4)),) if b.chance(0.4) else ()
    return b.emit(b.rng.choice(("torch.Tensor.expand", "torch.broadcast_to")), x, lead + shape)


@rule(1)
def _as_strided(b: Builder) -> Any:
    x = b.tensor(least=1)
    count = b.values[x.name].untyped_storage().nbytes() // b.values[x.name].element_size()
    width = b.rng.randint(1, 4)
    rows = max(1, min(5, (count - width) // 2))
    return b.emit("torch.as_strided", x, (rows, width), (2, 1), 0)


# ---- joining, padding
@rule(6)
def _join(b: Builder) -> Any:
    x = b.tensor(least=1)
    shape = tuple(b.values[x.name].shape)
    parts = [x] + [b.tensor(shape=shape) for _ in range(b.rng.choice((1, 1, 2, 5)))]
    b.rng.shuffle(parts)
    return b.emit(f"torch.{b.rng.choice(('cat', 'cat', 'stack'))}", parts, b.dim(x))


@rule(4)
def _pad(b: Builder) -> Any:
    x = b.tensor("f", least=1)
    rank = b.values[x.name].dim()
    if b.chance(0.6):
        pads = tuple(b.rng.choice((0, 1, 2, -1)) for _ in range(2 * b.rng.randint(1, rank)))
        return b.emit("F.pad", x, pads, value=b.scalar())
    pads = tuple(b.rng.choice((0, 1, 2)) for _ in range(2 * max(1, rank - 2)))
    return b.emit("F.pad", x, pads, mode=b.rng.choice(("reflect", "replicate", "circular")))


@rule(2)
def _triangle(b: Builder) -> Any:
    return b.emit(f"torch.{b.rng.choice(('tril', 'triu'))}", b.tensor(least=2), b.rng.randint(-2, 2))


@rule(2)
def _made(b: Builder) -> Any:
    x = b.tensor()
    dtype = b.rng.choice(DTYPES[:2] + DTYPES[4:])
    n = b.rng.randint(1, 9)
    options: list[tuple[Any, ...]] = [
        ("torch.zeros_like", x),
        ("torch.ones_like", x),
        ("torch.full_like", x, 3),
        ("torch.arange", n),
        ("torch.arange", 1, n, 2),
        ("torch.eye", n),
        ("torch.linspace", -1.0, 2.5, n),
        ("torch.full", (n, 2), b.scalar()),
    ]
    name, *args = b.rng.choice(options)
    return b.emit(name, *args, **({"dtype": dtype} if b.chance(0.4) else {}))


# ---- indices
@rule(6)
def _gather(b: Builder) -> Any:
    x = b.tensor(least=1)
    shape = list(b.values[x.name].shape)
    d = b.dim(x)
    n = shape[d]
    name = b.rng.choice(("index_select", "gather", "take_along_dim", "index", "index", "take", "embedding"))
    if name == "index_select":
        return b.emit("torch.index_select", x, d, b.input((b.rng.randint(0, 6),), torch.int64, "index", n))
    if name in ("gather", "take_along_dim"):
        shape[d] = b.rng.randint(1, 6)
        return b.emit(
            f"torch.{name}",
            x,
            *((d,) if name == "gather" else ()),
            b.input(tuple(shape), torch.int64, "index", n),
            *((d,) if name != "gather" else ()),
        )
    if name == "take":
        return b.emit("torch.take", x, b.input(b.shape(), torch.int64, "wrapped", b.values[x.name].numel()))
    if name == "embedding":
        return b.emit("F.embedding", b.input(b.shape(), torch.int64, "index", shape[0]), x)
    return b.emit("operator.getitem", x, _places(b, x))


def _places(b: Builder, x: Ref) -> tuple[Any, ...]:
    shape = b.values[x.name].shape
    block = b.shape(b.rng.choice((0, 1, 1, 2)))
    places: list[Any] = []
    for n in shape[: b.rng.randint(1, len(shape))]:
        if b.chance(0.4):
            places.append(slice(None) if b.chance(0.7) else b.rng.randrange(-n, n) if n else slice(0, 1))
        else:
            dtype = torch.int32 if b.chance(0.1) else torch.int64
            places.append(b.input(block if b.chance(0.7) else block[-1:], dtype, "wrapped", n))
    return tuple(places)


@rule(6)
def _scatter(b: Builder) -> Any:
    x = b.tensor("ffi", least=1)
    value = b.values[x.name]
    shape, d = list(value.shape), b.dim(x)
    n = shape[d]
    name = b.rng.choice(
        (
            "scatter",
            "scatter_add",
            "scatter_reduce",
            "index_add",
            "index_copy",
            "index_fill",
            "index_put",
            "index_put",
            "slice_scatter",
            "select_scatter",
            "diagonal_scatter",
            "masked_scatter",
        )
    )
    shape[d] = b.rng.randint(min(1, n), n)  # what has no elements is not written to: a GPU asserts
    if name in ("scatter", "scatter_add", "scatter_reduce"):
        unique = name == "scatter"
        if unique and b.chance(0.5):
            return b.emit("torch.scatter", x, d, b.input(tuple(shape), torch.int64, "index", n), b.scalar())
        if unique:
            shape[d] = min(1, n)
        source = b.input(tuple(shape), value.dtype)
        index = b.input(tuple(shape), torch.int64, "index", n)
        reduce = (b.rng.choice(("sum", "prod", "amax", "amin", "mean")),) if name == "scatter_reduce" else ()
        return b.emit(f"torch.{name}", x, d, index, source, *reduce)
    if name in ("index_add", "index_copy", "index_fill"):
        if name == "index_copy":
            shape[d] = min(1, n)
        index = b.input((shape[d],), torch.int64, "index", n)
        source = b.scalar() if name == "index_fill" else b.input(tuple(shape), value.dtype)
        return b.emit(f"torch.{name}", x, d, index, source)
    if name == "index_put":
        index = b.input((b.rng.randint(1, 5),), torch.int64, "wrapped", value.shape[0])
        source = b.input(tuple(b.rng.choice((value.shape[1:], (1,) * (value.dim() - 1)))), value.dtype)
        return b.emit("torch.index_put", x, (index,), source, True)
    if name == "slice_scatter":
        start = b.rng.randint(0, n)
        stop = b.rng.randint(start, n)
        shape[d] = stop - start
        return b.emit("torch.slice_scatter", x, b.input(tuple(shape), value.dtype), d, start, stop)
    if name == "select_scatter" and n:
        del shape[d]
        return b.emit("torch.select_scatter", x, b.input(tuple(shape), value.dtype), d, b.rng.randrange(-n, n))
    return b.emit("torch.diagonal_scatter", x, b.input((min(value.shape[0], value.shape[-1]),), value.dtype))


@rule(2)
def _order(b: Builder) -> Any:
    x = b.tensor(least=1)
    name = b.rng.choice(("sort", "argsort", "topk", "bucketize", "searchsorted", "one_hot"))
    if name == "one_hot":
        return b.emit("F.one_hot", b.input(b.shape(), torch.int64, "index", 4), 5)
    if name == "topk":
        return b.emit("torch.topk", x, 1, b.dim(x))
    if name in ("bucketize", "searchsorted"):
        edges = b.emit("torch.arange", -3, 6)
        if edges is None:
            return None
        return b.emit("torch.bucketize", x, edges) if name == "bucketize" else b.emit("torch.searchsorted", edges, x)
    return b.emit(f"torch.{name}", x, dim=b.dim(x), stable=True)
