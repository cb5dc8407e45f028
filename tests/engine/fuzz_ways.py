"""Other ways to the results of functions, which are as good as eager's: where infinities meet on the way, one gives NaN
and the other not."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch._decomp import decomposition_table

from .fuzz_devices import here
from .fuzz_programs import kind_of


def _affine(normal: torch.Tensor, weight: torch.Tensor | None = None, bias: torch.Tensor | None = None) -> torch.Tensor:
    channel = [1, -1, *[1] * (normal.dim() - 2)]
    scaled = normal if weight is None else normal * weight.view(channel)
    return scaled if bias is None else scaled + bias.view(channel)


def _group_norm(x: torch.Tensor, groups: int, *affine: Any) -> torch.Tensor:
    """By its definition; eager's kernel takes the weight into the factor and the mean, in which infinities meet."""
    return _affine(F.group_norm(x, groups), *affine)


def _group_norm_by_spread(x: torch.Tensor, groups: int, *affine: Any) -> torch.Tensor:
    """Where the spread overflows, nothing is left but the bias; eager's kernel has NaN there."""
    rows = x.unflatten(1, (groups, -1)).flatten(2)
    rows = rows if x.dtype is torch.float64 else rows.float()
    spread, mean = torch.var_mean(rows, 2, correction=0, keepdim=True)
    return _affine(((rows - mean) * torch.rsqrt(spread + 1e-5)).view(x.shape).to(x.dtype), *affine)


def _instance_norm(x: torch.Tensor, mean: Any = None, var: Any = None, *affine: Any) -> torch.Tensor:
    """As `_group_norm`."""
    return _affine(F.instance_norm(x), *affine)


def _mean_of(spread: Any, mean: Any) -> Any:
    """A spread and a mean, each by a kernel of its own."""
    return lambda x, *args, **options: (spread(x, *args, **options), mean(x, *args))


def _running_mean(x: torch.Tensor, *args: Any) -> torch.Tensor:
    """A mean that is corrected with each element: the first infinity makes it infinite, the next step NaN."""
    mean = torch.mean(x, *args)
    return torch.where(mean.isinf(), torch.nan, mean)


def _batch_norm(x: torch.Tensor, *args: Any) -> torch.Tensor:
    """By its definition; eager adds up doubles one after the other, and moves the mean into the bias. With statistics
    that are given, as a GPU's kernels compute it, which Triton's interpreter runs beside eager on the CPU."""
    result = F.batch_norm(x, *args)
    if not args[4]:
        if here().fakes == here().tensors:
            return result
        channel = [1, -1, *[1] * (x.dim() - 2)]
        mean, spread, weight, bias = (None if a is None else a.view(channel) for a in args[:4])
        apart = x - mean if weight is None else (x - mean) * weight
        return (apart * torch.rsqrt(spread + 1e-5) + (0 if bias is None else bias)).to(x.dtype)
    spread, mean = torch.var_mean(x, [d for d in range(x.dim()) if d != 1], correction=0, keepdim=True)
    return _affine((x - mean) / torch.sqrt(spread + 1e-5), *args[2:4])


def _batch_norm_by_var_mean(x: torch.Tensor, mean: Any, *args: Any) -> torch.Tensor:
    """With a mean that is corrected with each element, as `_running_mean`, and a spread added up in pairs."""
    before = None if mean is None else args[0].clone()
    result = _batch_norm(x, mean, *args)
    if mean is not None and args[3]:
        spread = torch.var(x, [d for d in range(x.dim()) if d != 1])
        running = (0.1 * spread + 0.9 * before).to(before.dtype)
        with contextlib.suppress(RuntimeError):  # overlapping memory, which eager takes where nothing is written
            mean.copy_(torch.where(mean.isinf(), torch.nan, mean))
            args[0].copy_(torch.where(running.isfinite() & args[0].isfinite(), running, args[0]))
    return result


def _batch_norm_in_doubles(x: torch.Tensor, *args: Any) -> torch.Tensor:
    """With sums that do not overflow, and so running statistics that stay numbers."""
    wide = [a.double() if isinstance(a, torch.Tensor) else a for a in args]
    result = F.batch_norm(x.double(), *wide)
    for kept, new in zip(args[:2], wide[:2]):
        if kept is not None:
            with contextlib.suppress(RuntimeError):  # overlapping memory
                kept.copy_(new)
    return result.to(x.dtype)


def _batch_norm_by_sums(x: torch.Tensor, mean: Any, *args: Any) -> torch.Tensor:
    """With a running mean of sums, which an infinity makes infinite; one that is corrected with each element, as a
    GPU's kernel has it, becomes NaN."""
    before = None if mean is None else mean.clone()
    result = _batch_norm(x, mean, *args)
    if mean is not None and args[3]:
        now = x.double().mean([d for d in range(x.dim()) if d != 1])
        share = args[4] if len(args) > 4 else 0.1
        with contextlib.suppress(RuntimeError):  # overlapping memory
            mean.copy_(torch.where(now.isinf(), share * now + (1 - share) * before, mean))
    return result


def _spread_by_sums(root: bool) -> Any:
    """A variance of squares that are added up: where they overflow it is infinite. One that is corrected with each
    element, as a GPU's kernel has it, becomes NaN there."""
    function = torch.std if root else torch.var

    def way(x: torch.Tensor, dims: Any = None, *, correction: Any = 1, keepdim: bool = False) -> torch.Tensor:
        result = function(x, dims, correction=correction, keepdim=keepdim)
        if x.dtype.is_complex or x.numel() == 0:
            return result
        wide = x if x.dtype is torch.float64 else x.float()
        mean = torch.mean(wide, dims, keepdim=True)
        squares = torch.sum((wide - mean).square(), dims, keepdim=keepdim)
        spread = squares / max(x.numel() // mean.numel() - correction, 0)
        made = (spread.sqrt() if root else spread).to(x.dtype)
        return torch.where(result.isfinite() & made.isfinite(), result, made)

    return way


def _cosine_similarity(x: torch.Tensor, y: torch.Tensor, dim: int = 1, eps: float = 1e-8) -> torch.Tensor:
    """With norms that are rounded to the dtype of each tensor, as in eager, and quotients that are not: these kernels
    keep in float32."""
    x, y = torch.broadcast_tensors(x, y)
    parts = []
    for each in (x, y):
        size = torch.linalg.vector_norm(each, 2, dim, keepdim=True).clamp_min(eps)
        wide = each.dtype if each.dtype is torch.float64 else torch.float32
        parts.append(each.to(wide) / size.to(wide))
    return (parts[0] * parts[1]).sum(dim).to(torch.promote_types(x.dtype, y.dtype))


def _interpolated(x: torch.Tensor, size: Any, *args: Any) -> torch.Tensor:
    """In Triton's interpreter, beside eager on the CPU: of an image that keeps its size, a GPU makes a copy."""
    result = F.interpolate(x, size, *args)
    linear = len(args) > 1 and args[1].endswith("linear")
    copied = linear and here().fakes != here().tensors and result.shape == x.shape
    return x.clone() if copied else result


def _max_pool(x: torch.Tensor, *args: Any) -> Any:
    """Of rows: where no element of a window is above -inf, a GPU's kernel for channels that are innermost gives the
    index 0, which need not be in the window, and that for rows the window's first."""
    return F.max_pool2d(x.contiguous(), *args)


def _in_tf32(function: Any) -> Any:
    """A convolution of float32 on a GPU's matrix units, which round what they multiply to 11 significant bits: torch
    allows that, and whether one runs that does, the sizes and the memory format decide."""
    def rounded(x: torch.Tensor) -> torch.Tensor:
        short = ((x.contiguous().view(torch.int32) + 0x1000) & ~0x1FFF).view(torch.float32)
        return torch.where(x.isfinite(), short, x).double()

    def way(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None, *how: Any) -> torch.Tensor:
        if not x.is_cuda or x.dtype is not torch.float32 or not torch.backends.cudnn.allow_tf32:
            return function(x, weight, bias, *how)  # type: ignore[no-any-return]
        result: torch.Tensor = function(rounded(x), rounded(weight), None if bias is None else bias.double(), *how)
        return result.float()

    return way


def _softshrink(x: torch.Tensor, bound: float = 0.5) -> torch.Tensor:
    """As the loop over what vectors leave has it: of what is cut off, the sign is left."""
    return torch.where(x.abs() <= bound, x * 0, F.softshrink(x, bound))


def _rms_norm(x: torch.Tensor, shape: tuple[int, ...], weight: torch.Tensor | None = None, eps: Any = None) -> Any:
    """By its definition: where squares overflow, nothing is left; a GPU's own kernel has NaN there."""
    wide = x if x.dtype is torch.float64 else x.float()
    least = torch.finfo(wide.dtype).eps if eps is None else eps
    made = wide * torch.rsqrt(wide.square().mean([-1 - d for d in range(len(shape))], keepdim=True) + least)
    return (made if weight is None else made * weight).to(x.dtype)


def _hardswish(x: torch.Tensor) -> torch.Tensor:
    """With a sixth in the precision of the numbers; a GPU has it in float32."""
    return x * (x + 3).clamp(0, 6) / 6


def _fmod(x: torch.Tensor, y: Any) -> torch.Tensor:
    """As C has it; vectors find no remainder of a number by one that is much smaller."""
    result = torch.fmod(x, y)
    if kind_of(result.dtype) != "f":
        return result
    operands = [v.to(result.dtype).double().cpu().numpy() if isinstance(v, torch.Tensor) else v for v in (x, y)]
    with np.errstate(invalid="ignore"):
        return torch.as_tensor(np.fmod(*operands)).to(result)


def _fmod_of_multiples(x: torch.Tensor, y: Any) -> torch.Tensor:
    """Nothing is left where, with operands rounded otherwise, one could be a multiple of the other."""
    result = torch.fmod(x, y)
    if kind_of(result.dtype) != "f":
        return result
    quotient = x.double() / y
    reach = 4 * torch.finfo(result.dtype).eps * quotient.abs()
    return torch.where((quotient - quotient.round()).abs() <= reach, result * 0, result)


def _remainder(x: torch.Tensor, y: Any) -> torch.Tensor:
    """As `_fmod`, with the sign of the divisor."""
    result = torch.remainder(x, y)
    if kind_of(result.dtype) != "f":
        return result
    x, y = (v.to(result.dtype) if isinstance(v, torch.Tensor) else v for v in (x, y))
    rest = _fmod(x, y)
    return torch.where((rest != 0) & ((y < 0) != (rest < 0)), rest + y, rest)


def _addcmul(x: torch.Tensor, a: torch.Tensor, b: torch.Tensor, value: Any = 1) -> torch.Tensor:
    """With each product rounded; eager's compiler makes the last one and the sum one instruction, and some not."""
    return x + value * a * b


def _log1p(x: torch.Tensor) -> torch.Tensor:
    """The number itself, where it is so small that it has fewer digits; vectors give the one after it."""
    result = torch.log1p(x)
    if kind_of(result.dtype) != "f" or x.dtype != result.dtype:
        return result
    return torch.where(x.abs() < torch.finfo(x.dtype).tiny, x, result)


def _attention_by_products(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, attn_mask: torch.Tensor | None = None,
    dropout_p: float = 0.0, is_causal: bool = False, *, scale: float | None = None, enable_gqa: bool = False,
) -> torch.Tensor:
    """By two matrix products, with a zero for each place that is masked; kernels leave these out."""
    result: torch.Tensor = torch.ops.aten._scaled_dot_product_attention_math(
        query, key, value, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa)[0]
    return result


def _attention_in_one_kernel(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, attn_mask: torch.Tensor | None = None,
    dropout_p: float = 0.0, is_causal: bool = False, *, scale: float | None = None, enable_gqa: bool = False,
) -> torch.Tensor:
    """By a GPU's kernel for memory that lies well, which has NaN where no score of a row is finite."""
    tensors = [t.contiguous() for t in (query, key, value)]
    if query.is_cuda and attn_mask is None:
        with contextlib.suppress(RuntimeError):  # heads of a size that it does not take
            result: torch.Tensor = torch.ops.aten._scaled_dot_product_efficient_attention(
                *tensors, None, False, dropout_p, is_causal, scale=scale)[0]
            return result
    return _attention_by_products(*tensors, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa)


def _by_copies(choose: Callable[[torch.Tensor], torch.Tensor], function: Any) -> Any:
    """A function of elements, on what `choose` makes of 64 copies of each element; of its result, the first copy."""
    def way(*args: Any) -> torch.Tensor:
        result: torch.Tensor = function(*[choose(a.unsqueeze(-1).repeat(*[1] * a.dim(), 64))
                                          if isinstance(a, torch.Tensor) else a for a in args])
        return result[..., 0]

    return way


def _two_minds(kernel: str) -> tuple[Any, Any]:
    """A kernel by its vectors alone, and by its loop alone, which takes elements that do not lie side by side."""
    function = getattr(torch.ops.aten, kernel)
    return _by_copies(lambda copies: copies, function), _by_copies(lambda copies: copies[..., ::2], function)


def _tap_by_tap(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None, stride: int = 1, pad: int | str = 0,
    hole: int = 1, groups: int = 1, *, pads_count: bool = False, wide: bool = False,
) -> torch.Tensor:
    """A convolution that leaves out what windows have beside the image; some kernels multiply a zero there
    (`pads_count`), which is NaN where a weight is not finite. Which kernel runs, the sizes, the processor and the
    memory format decide.

    If `wide`, sums and products are doubles, which do not overflow: some kernels multiply and add at once."""
    function = (F.conv1d, F.conv2d)[x.dim() - 3]
    result = function(x, weight, bias, stride, pad, hole, groups)
    if not result.numel():
        return result
    ends = [divmod(hole * (k - 1), 2) if pad == "same" else (pad, 0) for k in weight.shape[2:]]
    pads = [n for least, more in reversed(ends) for n in (least, least + more)]
    if wide:
        x, weight = x.double(), weight.double()
    image, inside = F.pad(x, pads), F.pad(torch.ones_like(x), pads).bool()
    if pads_count:
        inside = torch.ones_like(inside)
    start = torch.zeros_like(result, dtype=x.dtype)
    total = start if bias is None else _affine(start, None, bias)
    for tap in itertools.product(*[range(k) for k in weight.shape[2:]]):
        window = (..., *[slice(t * hole, t * hole + stride * (n - 1) + 1, stride)
                         for t, n in zip(tap, result.shape[2:])])
        pixels, there = (v[window].unflatten(1, (groups, 1, -1)) for v in (image, inside))
        taps = weight[(..., *tap)].reshape(groups, -1, weight.shape[1], *[1] * len(tap))
        total += torch.where(there, pixels * taps, 0).sum(3).flatten(1, 2)
    kept = result.isfinite() & total.isfinite() if pads_count else result.isfinite()
    return torch.where(kept, result, total.to(result.dtype))


BY_PARTS: dict[str, tuple[Any, ...]] = {
    **{f"torch.{name}": tuple(_mean_of(spread, mean) for mean in (torch.mean, _running_mean))
       for name, spread in (("var_mean", torch.var), ("std_mean", torch.std),
                            ("ops.aten.var_mean.correction", torch.var), ("ops.aten.std_mean.correction", torch.std))},
    "torch.ops.aten.native_layer_norm_backward":
        (decomposition_table[torch.ops.aten.native_layer_norm_backward.default],),
    "F.group_norm": (_group_norm, _group_norm_by_spread),
    "F.instance_norm": (_instance_norm,),
    "F.batch_norm": (_batch_norm, _batch_norm_by_var_mean, _batch_norm_in_doubles, _batch_norm_by_sums),
    "torch.var": (_spread_by_sums(root=False),),
    "torch.std": (_spread_by_sums(root=True),),
    "F.cosine_similarity": (_cosine_similarity,),
    "F.max_pool2d": (_max_pool,),
    "F.interpolate": (_interpolated,),
    "F.softshrink": (_softshrink,),
    "F.hardswish": (_hardswish,),
    "F.hardsigmoid": (lambda x: (x + 3).clamp(0, 6) / 6,),
    "F.rms_norm": (_rms_norm,),
    "F.scaled_dot_product_attention": (_attention_by_products, _attention_in_one_kernel),
    **{f"torch.ops.aten.{kernel}": _two_minds(kernel)
       for kernel in ("hardswish_backward", "hardtanh_backward", "logit_backward", "elu_backward",
                      "softshrink_backward", "hardshrink_backward")},
    **{f"F.{name}": (_in_tf32(getattr(F, name)),) for name in (
        "conv3d", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d")},
    **{f"F.{name}": (_tap_by_tap, partial(_tap_by_tap, wide=True), partial(_tap_by_tap, pads_count=True),
                     _in_tf32(getattr(F, name))) for name in ("conv1d", "conv2d")},
    **dict.fromkeys(("torch.fmod", "torch.ops.aten.fmod.Scalar"), (_fmod, _fmod_of_multiples)),
    "torch.remainder": (_remainder,),
    "torch.log1p": (_log1p,),
    "torch.addcmul": (_addcmul,),
    "torch.Tensor.addcmul_": (lambda x, *args, **options: x.copy_(_addcmul(x, *args, **options)),),
}
"""Functions with other ways to their results: where infinities meet on the way, one gives NaN and the other not.

Eager's own ways differ so for variances: of a row with an infinity, they say otherwise by its place. And its vectors
say other things than its loops over the rest, of NaN above all.
"""
