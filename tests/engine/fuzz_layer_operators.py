"""What the fuzz calls, continued: layers with the options that models give them, losses, norms written out by hand."""

from __future__ import annotations

from typing import Any

import torch

from .fuzz_programs import Builder, Ref
from .fuzz_rules import rule


def _shape(b: Builder, x: Ref) -> tuple[int, ...]:
    return tuple(b.values[x.name].shape)


@rule(4)
def _convolution(b: Builder) -> Any:
    """With strides, pads, holes, groups and a bias; pixels of few sizes, so that windows are cut at the edges."""
    n = b.rng.choice((1, 2, 2))
    dtype = b.dtype("f")
    groups, inner, outer = b.rng.choice(((1, 3, 2), (1, 1, 4), (2, 4, 6), (4, 4, 4), (3, 3, 6), (1, 16, 17)))
    size = tuple(b.rng.choice((1, 1, 2, 3)) for _ in range(n))
    x = b.input((b.rng.choice((1, 2)), inner, *[b.rng.choice((3, 4, 7, 9)) for _ in range(n)]), dtype)
    transposed = b.chance(0.3)
    weight = b.input((inner, outer // groups, *size) if transposed else (outer, inner // groups, *size), dtype)
    bias = b.input((outer,), dtype) if b.chance(0.5) else None
    stride, pad = b.rng.choice((1, 1, 2)), b.rng.choice((0, 1, 2))
    if transposed:
        more = b.rng.choice((0, 0, stride - 1))
        return b.emit(f"F.conv_transpose{n}d", x, weight, bias, stride, pad, more, groups, b.rng.choice((1, 2)))
    padding = "same" if stride == 1 and b.chance(0.2) else pad
    return b.emit(f"F.conv{n}d", x, weight, bias, stride, padding, b.rng.choice((1, 1, 2)), groups)


@rule(3)
def _pool(b: Builder) -> Any:
    n = b.rng.choice((1, 2, 2))
    x = b.input((2, 3, *[b.rng.choice((4, 5, 7, 8)) for _ in range(n)]), b.dtype("f"))
    size, step = b.rng.choice((2, 3)), b.rng.choice((1, 2, 3))
    pad, ceil = b.rng.choice((0, 1)), b.chance(0.4)
    if b.chance(0.5):
        return b.emit(f"F.max_pool{n}d", x, size, step, pad, b.rng.choice((1, 1, 2)), ceil)
    divisor = (b.rng.choice((None, 3)),) if n == 2 else ()
    return b.emit(f"F.avg_pool{n}d", x, size, step, pad, ceil, b.chance(0.5), *divisor)


@rule(3)
def _normalized(b: Builder) -> Any:
    """Over several dimensions, with weights and biases."""
    x = b.tensor("f", least=2)
    value, shape = b.values[x.name], _shape(b, x)
    channels = shape[1]
    groups = [g for g in range(1, channels + 1) if channels % g == 0] or [1]
    per_channel = [b.input((channels,), value.dtype) if b.chance(0.6) else None for _ in range(2)]
    last = shape[-b.rng.randint(1, len(shape)):]
    whole = [b.input(last, value.dtype) if b.chance(0.5) else None for _ in range(2)]
    options: list[tuple[Any, ...]] = [
        ("F.layer_norm", x, last, *whole, 1e-3),
        ("F.rms_norm", x, last, whole[0]),
        ("F.group_norm", x, b.rng.choice(groups), *per_channel),
        ("F.instance_norm", x, None, None, *per_channel),
        ("F.batch_norm", x, b.input((channels,), value.dtype, "small"), b.input((channels,), value.dtype, "index", 5),
         *per_channel, b.chance(0.5), 0.3),
    ]
    return b.emit(*b.rng.choice(options))


@rule(3)
def _activation_with_options(b: Builder) -> Any:
    x = b.tensor("f")
    channels = _shape(b, x)[1] if len(_shape(b, x)) > 1 else 1
    options: list[tuple[Any, ...]] = [
        ("F.leaky_relu", x, b.rng.choice((0.2, 0.0))),
        ("F.elu", x, 0.7),
        ("F.celu", x, 1.5),
        ("F.softplus", x, 2.0, 5.0),
        ("F.hardtanh", x, -0.5, 2.0),
        ("F.softshrink", x, 0.25),
        ("F.hardshrink", x, 0.25),
        ("F.threshold", x, 0.1, -3.0),
        ("F.prelu", x, b.input((b.rng.choice((1, channels)),), b.values[x.name].dtype)),
        ("F.tanhshrink", x),
        ("F.normalize", x, b.rng.choice((1.0, 2.0, 3.0)), b.dim(x), 1e-3),
        ("F.cosine_similarity", x, b.partner(x, "f"), b.dim(x)),
        ("F.pairwise_distance", x, b.partner(x, "f")),
        ("torch.nan_to_num", x, 0.5, 3.0, -3.0),
        ("torch.logit", x, 0.1),
        ("torch.polygamma", 1, x),
        ("torch.special.zeta", x, b.partner(x, "f")),
    ]
    if b.chance(0.2):
        return b.emit("F.gelu", x, approximate="tanh")
    return b.emit(*b.rng.choice(options))


@rule(3)
def _classified(b: Builder) -> Any:
    """Losses of classes, some of which are ignored."""
    rows, classes = b.rng.choice((1, 3, 8)), b.rng.choice((2, 5, 17))
    more = (b.rng.choice((2, 4)),) if b.chance(0.3) else ()
    dtype = b.dtype("f")
    x = b.input((rows, classes, *more), dtype)
    told = b.input((rows, *more), torch.int64, "index", classes)
    reduction = b.rng.choice(("mean", "sum", "none"))
    if b.chance(0.3):
        x = b.emit("F.log_softmax", x, 1)
        if x is None:
            return None
        weight = b.input((classes,), dtype, "index", 3) if b.chance(0.3) else None
        return b.emit("F.nll_loss", x, told, weight, ignore_index=b.rng.choice((-100, 1)), reduction=reduction)
    if b.chance(0.3):
        even = b.emit("torch.sigmoid", b.input(_shape(b, x), dtype))
        if even is None:
            return None
        name = b.rng.choice(("F.binary_cross_entropy_with_logits", "F.multilabel_soft_margin_loss", "F.kl_div"))
        return b.emit(name, x, even, reduction=reduction)
    smoothing = b.rng.choice((0.0, 0.0, 0.1))
    return b.emit("F.cross_entropy", x, told, ignore_index=b.rng.choice((-100, 1)), reduction=reduction,
                  label_smoothing=smoothing)


@rule(2)
def _looked_up(b: Builder) -> Any:
    rows, width = b.rng.choice((3, 9)), b.rng.choice((1, 4, 16))
    table = b.input((rows, width), b.dtype("f"))
    index = b.input(b.shape(b.rng.choice((1, 2))), torch.int64, "index", rows)
    found = b.emit("F.embedding", index, table, b.rng.choice((None, 0, 2)))
    if found is None or b.chance(0.3):
        return found
    length = _shape(b, index)[-1]
    places = b.emit("torch.arange", length)
    if places is None:
        return None
    positions = b.emit("F.embedding", places, b.input((max(length, 1), width), b.values[table.name].dtype))
    return positions and b.emit("torch.add", found, positions)


@rule(3)
def _attention_with_options(b: Builder) -> Any:
    heads, rows, width = b.rng.choice((1, 2, 4)), b.rng.choice((1, 5, 17)), b.rng.choice((4, 8, 16))
    keys = rows if b.chance(0.5) else b.rng.choice((3, 20))
    dtype = b.dtype("f")
    query = b.input((2, heads, rows, width), dtype)
    key, value = (b.input((2, heads, keys, width), dtype) for _ in range(2))
    options: dict[str, Any] = {}
    if b.chance(0.3):
        options["is_causal"] = True
    elif b.chance(0.5):
        mask = b.input((rows, keys), dtype)
        hidden = b.emit("torch.gt", mask, 0.5)
        mask = hidden and b.emit("torch.masked_fill", mask, hidden, b.rng.choice((float("-inf"), -1e4)))
        options["attn_mask"] = mask
    if b.chance(0.3):
        options["scale"] = 0.3
    return b.emit("F.scaled_dot_product_attention", query, key, value, **options)


@rule(5)
def _by_hand(b: Builder) -> Any:
    """Norms, gates, rotations and weighted means, as people write them out."""
    x = b.tensor("f", least=2)
    width = _shape(b, x)[-1]
    way = b.rng.choice((_root_norm, _layer_norm, _gate, _rotation, _soft_rows, _mean_of_some))
    return way(b, x, width)


def _chain(b: Builder, *calls: tuple[Any, ...]) -> Any:
    """Calls on what the one before gave; `None` stands for it."""
    last: Any = None
    for name, *args in calls:
        options = args.pop() if args and isinstance(args[-1], dict) else {}
        last = b.emit(name, *[last if a is None else a for a in args], **options)
        if last is None:
            return None
    return last


def _root_norm(b: Builder, x: Ref, width: int) -> Any:
    scale = _chain(b, ("torch.Tensor.float", x), ("torch.pow", None, 2), ("torch.mean", None, -1, {"keepdim": True}),
                   ("torch.add", None, 1e-5), ("torch.rsqrt", None))
    weight = b.input((width,), b.values[x.name].dtype)
    return scale and _chain(b, ("torch.mul", x, scale), ("torch.Tensor.type_as", None, x), ("torch.mul", None, weight))


def _layer_norm(b: Builder, x: Ref, width: int) -> Any:
    off = _chain(b, ("torch.mean", x, -1, {"keepdim": True}), ("torch.sub", x, None))
    spread = off and _chain(b, ("torch.var", x, -1, {"keepdim": True, "correction": b.rng.choice((0, 1))}),
                            ("torch.add", None, 1e-3), ("torch.sqrt", None))
    return spread and b.emit("torch.div", off, spread)


def _gate(b: Builder, x: Ref, width: int) -> Any:
    gate = b.emit(b.rng.choice(("F.silu", "F.gelu", "torch.sigmoid", "F.relu")), x)
    product = gate and b.emit("torch.mul", gate, b.partner(x, "f"))
    return product and _chain(b, ("torch.sum", product, b.dim(product), {"keepdim": b.chance(0.5)}))


def _rotation(b: Builder, x: Ref, width: int) -> Any:
    half = width // 2
    first = b.emit("operator.getitem", x, (Ellipsis, slice(None, half)))
    second = b.emit("operator.getitem", x, (Ellipsis, slice(half, None)))
    turned = first and second and _chain(b, ("torch.neg", second), ("torch.cat", [Ref(f"v{len(b.calls)}"), first], -1))
    angles = turned and b.input((width,), b.values[x.name].dtype)
    cos, sin = (angles and b.emit(f"torch.{name}", angles) for name in ("cos", "sin"))
    sides = [a and c and b.emit("torch.mul", a, c) for a, c in ((x, cos), (turned, sin))]
    return all(sides) and b.emit("torch.add", *sides)


def _soft_rows(b: Builder, x: Ref, width: int) -> Any:
    most = b.emit("torch.amax", x, -1, True)
    powers = most and _chain(b, ("torch.sub", x, most), ("torch.exp", None))
    total = powers and b.emit("torch.sum", powers, -1, True)
    return total and b.emit("torch.div", powers, total)


def _mean_of_some(b: Builder, x: Ref, width: int) -> Any:
    mask = _chain(b, ("torch.arange", width), ("torch.lt", None, b.rng.randint(0, width)))
    kept = mask and _chain(b, ("torch.mul", x, mask), ("torch.sum", None, -1))
    count = kept and _chain(b, ("torch.sum", mask), ("torch.clamp", None, 1))
    return count and b.emit("torch.div", kept, count)
