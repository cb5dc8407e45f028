"""What the fuzz calls: arithmetic, reductions, products, layers, losses, complex numbers, changes in place."""

from __future__ import annotations

from typing import Any

import torch

from .fuzz_programs import Builder, Ref
from .fuzz_rules import DTYPES, rule

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
