"""What the fuzz calls: one rule for each family of operators. A rule adds one call to a program, or none."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from .fuzz_programs import Builder, Ref

Rule = Callable[[Builder], Any]
RULES: list[tuple[int, Rule]] = []

UNARY = """abs neg sign sqrt rsqrt reciprocal exp exp2 expm1 log log2 log10 log1p sin cos tan asin acos atan sinh cosh
 tanh asinh acosh atanh erf erfc erfinv lgamma digamma sigmoid floor ceil trunc round frac square isnan isinf isfinite
 logical_not bitwise_not signbit sgn positive logit i0 sinc deg2rad rad2deg nan_to_num relu isposinf isneginf
 clone special.ndtr special.entr special.i0e special.log_ndtr special.erfcx""".split()
ACTIVATIONS = """gelu silu mish softplus hardswish hardsigmoid hardtanh elu selu celu leaky_relu relu6 softsign
 logsigmoid softshrink hardshrink""".split()
BINARY = """add sub mul div add sub mul true_divide floor_divide remainder fmod pow maximum minimum fmax fmin atan2
 hypot copysign nextafter eq ne lt le gt ge logical_and logical_or logical_xor bitwise_and bitwise_or bitwise_xor
 bitwise_left_shift bitwise_right_shift xlogy logaddexp logaddexp2 heaviside gcd lcm ldexp float_power special.xlog1py
 rsub isclose""".split()
REDUCTIONS = "sum mean prod amax amin any all var std logsumexp nansum count_nonzero argmax argmin".split()
DTYPES = (
    torch.float32,
    torch.float64,
    torch.bfloat16,
    torch.float16,
    torch.int64,
    torch.int32,
    torch.int16,
    torch.int8,
    torch.uint8,
    torch.bool,
)


def rule(weight: int) -> Callable[[Rule], Rule]:
    """Add the decorated function to the table."""

    def register(function: Rule) -> Rule:
        RULES.append((weight, function))
        return function

    return register


def step(b: Builder) -> None:
    """Try one random rule."""
    weights, rules = zip(*RULES)
    b.rng.choices(rules, weights)[0](b)


@rule(12)
def _unary(b: Builder) -> Any:
    return b.emit(f"torch.{b.rng.choice(UNARY)}", b.tensor("ffib"))


@rule(4)
def _activation(b: Builder) -> Any:
    return b.emit(f"F.{b.rng.choice(ACTIVATIONS)}", b.tensor("f"))


@rule(16)
def _binary(b: Builder) -> Any:
    x = b.tensor()
    y = b.scalar() if b.chance(0.25) else b.partner(x)
    return b.emit(f"torch.{b.rng.choice(BINARY)}", *((x, y) if b.chance(0.7) or not isinstance(y, Ref) else (y, x)))


@rule(2)
def _scaled(b: Builder) -> Any:
    x = b.tensor()
    name = b.rng.choice(("add", "sub"))
    return b.emit(f"torch.{name}", x, b.partner(x), alpha=b.scalar())


@rule(2)
def _rounded(b: Builder) -> Any:
    x = b.tensor()
    if b.chance(0.3):
        return b.emit("torch.round", x, decimals=b.rng.choice((0, 1, 2, -1)))
    mode = b.rng.choice(("floor", "trunc", None))
    return b.emit("torch.div", x, b.partner(x) if b.chance(0.6) else b.scalar(), rounding_mode=mode)


@rule(5)
def _choice(b: Builder) -> Any:
    x = b.tensor()
    condition = b.partner(x, "b")
    y = b.scalar() if b.chance(0.3) else b.partner(x)
    if b.chance(0.3):
        return b.emit("torch.masked_fill", x, condition, b.scalar())
    return b.emit("torch.where", condition, x, y)


@rule(3)
def _bounds(b: Builder) -> Any:
    x = b.tensor()
    low, high = (None if b.chance(0.3) else b.scalar() for _ in range(2))
    if b.chance(0.3):
        return b.emit("torch.clamp", x, b.partner(x), b.partner(x))
    return b.emit("torch.clamp", x, low, high)


@rule(3)
def _three(b: Builder) -> Any:
    x = b.tensor("f")
    name = b.rng.choice(("addcmul", "addcdiv", "lerp"))
    if name == "lerp":
        return b.emit("torch.lerp", x, b.partner(x, "f"), b.rng.choice((0.3, 0.5, 0.75, b.partner(x, "f"))))
    return b.emit(f"torch.{name}", x, b.partner(x, "f"), b.partner(x, "f"), value=b.scalar())


@rule(9)
def _cast(b: Builder) -> Any:
    x = b.tensor("fibc")
    choices = [d for d in DTYPES if b.low or d not in (torch.float16, torch.bfloat16)]
    return b.emit("torch.Tensor.to", x, b.rng.choice(choices))


# ---- reductions and scans
@rule(10)
def _reduction(b: Builder) -> Any:
    x = b.tensor()
    name = b.rng.choice(REDUCTIONS)
    dims: Any = b.dim(x)
    if name in ("sum", "mean", "amax", "amin", "var", "std", "logsumexp", "nansum", "any", "all") and b.chance(0.3):
        rank = max(b.values[x.name].dim(), 1)
        dims = tuple(b.rng.sample(range(rank), b.rng.randint(1, rank)))
    if b.chance(0.15) and name not in ("logsumexp", "amax", "amin"):
        return b.emit(f"torch.{name}", x)
    options: dict[str, Any] = {} if name == "count_nonzero" else {"keepdim": b.chance(0.4)}
    if name in ("sum", "prod", "nansum") and b.chance(0.2):
        options["dtype"] = b.rng.choice((torch.float64, torch.float32, torch.int64))
    if name in ("var", "std"):
        options["correction"] = b.rng.choice((0, 1, 1, 2))
    return b.emit(f"torch.{name}", x, dims, **options)


@rule(3)
def _several_results(b: Builder) -> Any:
    x = b.tensor()
    name = b.rng.choice(
        ("max", "min", "var_mean", "std_mean", "aminmax", "cummax", "cummin", "median", "mode", "nanmedian")
    )
    if name == "mode":  # of rounded values, rounding decides which are equal
        x = b.tensor("ib")
    if name == "aminmax":
        return b.emit("torch.aminmax", x, dim=b.dim(x))
    return b.emit(f"torch.{name}", x, b.dim(x))


@rule(3)
def _scan(b: Builder) -> Any:
    x = b.tensor()
    return b.emit(f"torch.{b.rng.choice(('cumsum', 'cumprod', 'logcumsumexp', 'cumsum'))}", x, b.dim(x))


@rule(2)
def _norm(b: Builder) -> Any:
    x = b.tensor("f")
    order = b.rng.choice((0, 1, 2, 2, 3, 0.5, float("inf"), -float("inf")))
    return b.emit("torch.linalg.vector_norm", x, order, b.dim(x), b.chance(0.5))


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
    shape[d] = b.rng.randint(1, max(n, 1))
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


# ---- products, layers
@rule(5)
def _product(b: Builder) -> Any:
    x = b.tensor("f", least=1, most=3)
    value = b.values[x.name]
    inner, outer = value.shape[-1], b.rng.choice((1, 3, 8))
    name = b.rng.choice(
        ("torch.matmul", "F.linear", "torch.mv", "torch.dot", "torch.outer", "torch.bmm", "torch.addmm")
    )
    if name == "F.linear":
        bias = b.input((outer,), value.dtype) if b.chance(0.5) else None
        return b.emit(name, x, b.input((outer, inner), value.dtype), bias)
    if name == "torch.addmm" and value.dim() == 2:
        weight = b.input((inner, outer), value.dtype)
        return b.emit(
            name, b.input((outer,), value.dtype), x, weight, beta=b.rng.choice((1, 0.5)), alpha=b.rng.choice((1, 2))
        )
    if name in ("torch.mv", "torch.dot", "torch.outer"):
        return b.emit(name, x, b.input((inner,), value.dtype))
    shape = (inner, outer) if value.dim() < 3 or name == "torch.matmul" else (value.shape[0], inner, outer)
    return b.emit(name, x, b.input(shape, value.dtype))


@rule(6)
def _normalization(b: Builder) -> Any:
    x = b.tensor("f", least=1)
    value = b.values[x.name]
    width = value.shape[-1]
    options: list[tuple[Any, ...]] = [
        ("F.softmax", x, b.dim(x)),
        ("F.log_softmax", x, b.dim(x)),
        ("F.normalize", x),
        ("F.softmin", x, b.dim(x)),
        ("F.glu", x, b.dim(x)),
        ("F.rms_norm", x, (width,)),
    ]
    affine = [b.input((width,), value.dtype) if b.chance(0.5) else None for _ in range(2)]
    options.append(("F.layer_norm", x, (width,), *affine))
    if value.dim() >= 2:
        channels = value.shape[1]
        weight = b.input((channels,), value.dtype)
        options.append(("F.group_norm", x, b.rng.choice((1, channels)), weight))
        options.append(("F.instance_norm", x))
        options.append(
            (
                "F.batch_norm",
                x,
                b.input((channels,), value.dtype, "small"),
                b.input((channels,), value.dtype, "index", 5),
                weight,
                None,
                b.chance(0.5),
            )
        )
    return b.emit(*b.rng.choice(options))


@rule(4)
def _windows(b: Builder) -> Any:
    rank = b.rng.choice((3, 4))
    x = b.tensor("f", least=rank, most=rank)
    value = b.values[x.name]
    n = rank - 2
    size = b.rng.choice((1, 2, 3))
    options: list[tuple[Any, ...]] = [
        (f"F.max_pool{n}d", x, size, b.rng.choice((1, 2)), b.rng.choice((0, size // 2))),
        (f"F.avg_pool{n}d", x, size, b.rng.choice((1, 2)), b.rng.choice((0, size // 2))),
        (f"F.adaptive_avg_pool{n}d", x, b.rng.choice((1, 2, 3))),
        (f"F.adaptive_max_pool{n}d", x, b.rng.choice((1, 2))),
        (f"F.conv{n}d", x, b.input((3, value.shape[1]) + (size,) * n, value.dtype)),
        (f"F.conv_transpose{n}d", x, b.input((value.shape[1], 2) + (size,) * n, value.dtype)),
        ("F.interpolate", x, None, 2.0, b.rng.choice(("nearest", "nearest-exact", "area"))),
        ("F.interpolate", x, None, 1.5, "linear" if n == 1 else b.rng.choice(("bilinear", "bicubic")), b.chance(0.5)),
    ]
    if n == 2:
        options += [("F.pixel_shuffle", x, 2), ("F.unfold", x, size), ("F.pixel_unshuffle", x, 2)]
    return b.emit(*b.rng.choice(options))


@rule(2)
def _loss(b: Builder) -> Any:
    x = b.tensor("f")
    y = b.tensor("f", shape=tuple(b.values[x.name].shape))
    name = b.rng.choice(("mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss", "kl_div", "soft_margin_loss"))
    return b.emit(f"F.{name}", x, y, reduction=b.rng.choice(("mean", "sum", "none")))


# ---- complex numbers
@rule(2)
def _complex(b: Builder) -> Any:
    x = b.tensor("c") if b.chance(0.7) else b.tensor("f")
    if b.chance(0.4):
        return b.emit(f"torch.{b.rng.choice(('mul', 'add', 'sub', 'div'))}", x, b.partner(x, "cf"))
    names = (
        "real",
        "imag",
        "conj",
        "abs",
        "angle",
        "view_as_real",
        "resolve_conj",
        "exp",
        "sum",
        "conj_physical",
        "neg",
    )
    return b.emit(f"torch.{b.rng.choice(names)}", x)


# ---- writing in place
@rule(8)
def _in_place(b: Builder) -> Any:
    x = b.tensor()
    if not b.writable(x):
        return None
    names = (
        "add_",
        "sub_",
        "mul_",
        "div_",
        "copy_",
        "clamp_",
        "masked_fill_",
        "fill_",
        "zero_",
        "neg_",
        "relu_",
        "exp_",
        "sigmoid_",
        "logical_not_",
        "index_fill_",
        "addcmul_",
        "maximum",
        "index_put_",
        "pow_",
        "bitwise_and_",
    )
    name = b.rng.choice(names)
    function = f"torch.Tensor.{name}"
    if name in ("zero_", "neg_", "relu_", "exp_", "sigmoid_", "logical_not_"):
        return b.emit(function if name != "relu_" else "torch.relu_", x)
    if name == "clamp_":
        return b.emit(function, x, -1, 2)
    if name == "fill_":
        return b.emit(function, x, b.scalar())
    if name == "masked_fill_":
        return b.emit(function, x, b.partner(x, "b"), b.scalar())
    if name == "addcmul_":
        return b.emit(function, x, b.partner(x), b.partner(x))
    if name in ("index_fill_", "index_put_"):
        shape = b.values[x.name].shape
        if not shape:
            return None
        index = b.input((2,), torch.int64, "index", shape[0])
        if name == "index_fill_":
            return b.emit(function, x, 0, index, b.scalar())
        return b.emit(function, x, (index,), b.input((), b.values[x.name].dtype), b.chance(0.9))
    return b.emit(function, x, b.scalar() if b.chance(0.3) and name != "copy_" else b.partner(x))
