"""ptdebug's decompositions: where torch's reference loses precision or speed, reads data, or does not exist.

Each takes and returns what its operator does, in terms of other ATen operators. A rule that returns NotImplemented
leaves its operator to its lowering, or to ATen.
"""
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch._decomp import decomposition_table
from torch._prims_common import suggest_memory_format

from .filtered_rows import filtered_rows, filters_rows

aten = torch.ops.aten

OWN: dict[Any, Callable[..., Any]] = {}


def own(*operators: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register the decorated function as the rule of `operators`."""

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        for operator in operators:
            assert operator not in OWN, f"{operator} has two rules"
            OWN[operator] = function
        return function

    return register


# ---- complex numbers
@own(aten.abs.default)
def absolute_value(x: torch.Tensor) -> Any:
    """Of complex64 numbers: the root of two squares, in loops. Of other dtypes by the lowering, or by ATen."""
    if x.dtype is not torch.complex64:
        return NotImplemented
    parts = aten.view_as_real.default(aten.resolve_conj.default(x))
    return aten.hypot.default(aten.select.int(parts, -1, 0), aten.select.int(parts, -1, 1))


# ---- images
@own(aten.grid_sampler_2d.default)
def grid_sampler_2d(image: torch.Tensor, *rest: Any) -> Any:
    """torch's rule gathers four points for each result; ATen's kernel on CPUs walks along rows, three times as fast."""
    if image.device.type == "cpu":
        return NotImplemented
    return decomposition_table[aten.grid_sampler_2d.default](image, *rest)


@own(aten.channel_shuffle.default)
def channel_shuffle(x: torch.Tensor, groups: int) -> Any:
    """torch's rule, whose result has its rows innermost; that of ATen's kernel on CPUs is laid out as the image is."""
    shuffled, form = decomposition_table[aten.channel_shuffle.default](x, groups), suggest_memory_format(x)
    if _is_gpu(x) or (form is torch.contiguous_format and shuffled.is_contiguous()):
        return shuffled
    return aten.clone.default(shuffled, memory_format=form)


# ---- indices
@own(aten.take.default)
def take(x: torch.Tensor, index: torch.Tensor) -> Any:
    """torch's rule indexes in Python, which reads a 0-d index."""
    return aten.index.Tensor(aten.reshape.default(x, [-1]), [index])


@own(aten.index_add.default)
def index_add(x: torch.Tensor, *rest: Any, **options: Any) -> Any:
    """torch's rule rounds 16-bit sums after each element; ATen's kernel on CPUs adds rows up in float32."""
    if x.dtype in (torch.float16, torch.bfloat16):
        return NotImplemented
    return _written_at_indices(aten.index_add.default)(x, *rest, **options)


def _written_at_indices(operator: Any, from_the_end: bool = False) -> Callable[..., Any]:
    """torch's rule, an `index_put`. Which indices of no element raise, each kernel of ATen has its own mind about.

    An `index_put` counts negative indices `from_the_end`; where the operator takes none, they become one that raises.
    """

    def rule(x: torch.Tensor, dim: int, index: torch.Tensor, *rest: Any, **options: Any) -> Any:
        if any(type(n) is int and n == 0 for n in x.shape):
            return NotImplemented
        places = index if from_the_end else torch.where(index < 0, torch.iinfo(index.dtype).max, index)
        return decomposition_table[operator](x, dim, places, *rest, **options)

    return rule


own(aten.index_copy.default)(_written_at_indices(aten.index_copy.default))
for _operator in (aten.index_fill.int_Scalar, aten.index_fill.int_Tensor):
    own(_operator)(_written_at_indices(_operator, from_the_end=True))


@own(aten.scatter_reduce.two)
def scatter_reduce(x: torch.Tensor, dim: int, index: torch.Tensor, source: torch.Tensor, reduce: str, *,
                   include_self: bool = True) -> Any:
    """A sum is `scatter_add`; other reductions are ATen's."""
    if reduce != "sum" or not include_self:
        return NotImplemented
    return aten.scatter_add.default(x, dim, index, source)


def one_hot(tensor: torch.Tensor, num_classes: int = -1) -> torch.Tensor:
    """`torch.nn.functional.one_hot`; what it raises for the data is raised when the graph runs.

    Without a number of classes the result's size depends on the data: a tracer breaks there.
    """
    if num_classes == -1:
        return torch.nn.functional.one_hot(tensor)
    message = "one_hot: Class values must be "
    torch._assert_async((tensor >= 0).all(), f"{message}non-negative.")
    torch._assert_async((tensor < num_classes).all(), f"{message}smaller than num_classes.")
    classes = torch.arange(num_classes, dtype=tensor.dtype, device=tensor.device)
    return (tensor.unsqueeze(-1) == classes).to(torch.int64, memory_format=torch.contiguous_format)


def max_pool1d(x: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
    """`torch.nn.functional.max_pool1d`, whose CPU kernel for what needs no gradients gives row-major results."""
    result = torch.nn.functional.max_pool1d(x, *args, **kwargs)
    needs_gradients = torch.is_grad_enabled() and x.requires_grad
    if x.device.type != "cpu" or needs_gradients or not isinstance(result, torch.Tensor):
        return result
    return result.contiguous()


# ---- random numbers
@own(getattr(aten.random, "from"))
def random_between(x: torch.Tensor, low: int, high: int | None, *, generator: Any = None) -> Any:
    """Numbers below the difference, moved up: where the dtype holds all of these exactly, eager's."""
    if x.dtype is torch.bool or type(low) is not int or type(high) is not int:
        return NotImplemented
    largest = int(2 / torch.finfo(x.dtype).eps) if x.dtype.is_floating_point else torch.iinfo(x.dtype).max
    least = 0 if x.dtype is torch.uint8 else -largest
    if not least <= low < high <= largest or high - low > largest:
        return NotImplemented
    return aten.add.Scalar(aten.random.to(x, high - low, generator=generator), low)


# ---- element by element
def _truth(x: torch.Tensor) -> torch.Tensor:
    return x if x.dtype is torch.bool else aten.ne.Scalar(x, 0)


@own(aten.logical_and.default)
def logical_and(x: torch.Tensor, y: torch.Tensor) -> Any:
    """By operators whose fake results have eager's strides; those of `logical_and` have not."""
    return aten.bitwise_and.Tensor(_truth(x), _truth(y))


@own(aten.logical_or.default)
def logical_or(x: torch.Tensor, y: torch.Tensor) -> Any:
    """As `logical_and`."""
    return aten.bitwise_or.Tensor(_truth(x), _truth(y))


@own(aten.logical_xor.default)
def logical_xor(x: torch.Tensor, y: torch.Tensor) -> Any:
    """As `logical_and`."""
    return aten.bitwise_xor.Tensor(_truth(x), _truth(y))


@own(aten.pow.Tensor_Scalar)
def power_of_truth(x: torch.Tensor, exponent: Any) -> Any:
    """A bool to the power of a bool is one, which torch's fake kernel does not know."""
    if x.dtype is not torch.bool or not isinstance(exponent, bool):
        return NotImplemented
    return aten.clone.default(x) if exponent else aten.ones_like.default(x)


@own(aten.sgn.default)
def sgn(x: torch.Tensor) -> Any:
    """The sign, which torch's rule takes of a wider number: what is 0 in 16 bits is not there."""
    return decomposition_table[aten.sgn.default](x) if x.dtype.is_complex else aten.sign.default(x)


@own(aten.heaviside.default)
def heaviside(x: torch.Tensor, values: torch.Tensor) -> Any:
    """As `sgn`."""
    return torch.where(aten.eq.Scalar(x, 0), values, aten.gt.Scalar(x, 0).to(x.dtype))


@own(aten.round.decimals)
def round_decimals(x: torch.Tensor, *, decimals: int = 0) -> Any:
    """As ATen's kernel (aten/src/ATen/native/cpu/UnaryOpsKernel.cpp); it rounds 16-bit floats three times."""
    if x.dtype not in (torch.float32, torch.float64):
        return NotImplemented
    scale = 10.0 ** abs(decimals)
    if decimals >= 0:
        return aten.div.Scalar(aten.round.default(aten.mul.Scalar(x, scale)), scale)
    return aten.mul.Scalar(aten.round.default(aten.div.Scalar(x, scale)), scale)


@own(aten.linspace.default)
def linspace(start: Any, end: Any, steps: int, *, dtype: torch.dtype | None = None, **options: Any) -> Any:
    """For integers, eager truncates both ends first (aten/src/ATen/native/RangeFactories.cpp)."""
    if dtype is not None and not (dtype.is_floating_point or dtype.is_complex):
        start, end = int(start), int(end)
    return decomposition_table[aten.linspace.default](start, end, steps, dtype=dtype, **options)


@own(aten.angle.default)
def angle(x: torch.Tensor) -> Any:
    """0 or pi, and NaN stays; complex numbers are ATen's."""
    if x.dtype.is_complex or not x.dtype.is_floating_point:
        return NotImplemented
    turned = aten.where.ScalarOther(aten.lt.Scalar(x, 0), aten.full_like.default(x, torch.pi), 0.0)
    return aten.where.self(aten.isnan.default(x), x, turned)


@own(aten.view.dtype)
def view_in_its_dtype(x: torch.Tensor, dtype: torch.dtype) -> Any:
    """A view in the same dtype is the tensor, whose elements may share memory."""
    return aten.alias.default(x) if x.dtype is dtype else NotImplemented


@own(aten._native_batch_norm_legit_functional.default)
def batch_norm(x: torch.Tensor, weight: Any, bias: Any, mean: torch.Tensor, spread: torch.Tensor, *rest: Any) -> Any:
    """torch's rule, with 16-bit running statistics in float32: the kernel rounds once, after it has added to them what
    is new."""
    kept = mean.dtype, spread.dtype
    wide = [s.float() if s.dtype.itemsize == 2 else s for s in (mean, spread)]
    rule = decomposition_table[aten._native_batch_norm_legit_functional.default]
    *first, mean, spread = rule(x, weight, bias, *wide, *rest)
    return (*first, mean.to(kept[0]), spread.to(kept[1]))


@own(aten.copy.default)
def copy_of_number(x: torch.Tensor, source: Any, non_blocking: bool = False) -> Any:
    """Of a Python number: as of a 0-d tensor of double, or of an integer, which wraps around."""
    if isinstance(source, torch.Tensor) or type(source) not in (bool, int, float):
        return NotImplemented
    dtype = {bool: torch.bool, int: torch.int64, float: torch.float64}[type(source)]
    return aten.copy.default(x, aten.full.default([], source, dtype=dtype, device=x.device))


@own(aten.ldexp.Tensor)
def ldexp(x: torch.Tensor, other: torch.Tensor) -> Any:
    """In the dtype of the product with a power of two; whole exponents are ATen's, which knows no too large ones.

    ATen raises a two of the first's dtype, unless that is float32: the power of one number has both dtypes' precision.
    """
    if not other.dtype.is_floating_point:
        return NotImplemented
    if other.dim() == 0 and x.dtype.is_floating_point and x.dtype is not torch.float32:
        return aten.mul.Tensor(x, aten.pow.Scalar(2.0, other.to(torch.promote_types(x.dtype, other.dtype))))
    return aten.mul.Tensor(x, aten.pow.Scalar(2.0, other))


@own(aten.linalg_vector_norm.default)
def norm_of_one(x: torch.Tensor, order: Any = 2, dims: Any = None, keepdim: bool = False, dtype: Any = None) -> Any:
    """Of single elements: magnitudes, which cannot overflow; torch 2.11's fake keeps the dimensions there."""
    over = range(x.dim()) if dims is None else [d % max(x.dim(), 1) for d in ([dims] if type(dims) is int else dims)]
    if not x.is_floating_point() or x.dim() == 0 or order == 0 or any(type(n) is not int for n in x.shape):
        return NotImplemented
    if dims == [] or any(x.shape[d] != 1 for d in over):
        return NotImplemented
    size = aten.clone.default(x if dtype is None else x.to(dtype), memory_format=torch.contiguous_format)
    size = aten.abs.default(size)
    return size if keepdim else aten.squeeze.dims(size, list(over))


@own(aten.logsumexp.default)
def logsumexp(x: torch.Tensor, dims: Sequence[int], keepdim: bool = False) -> Any:
    """torch's rule; where no dimension is named, ATen's kernel reduces all and then raises."""
    if len(dims) == 0 and x.dim() > 0 and not keepdim:
        return NotImplemented
    return decomposition_table[aten.logsumexp.default](x, dims, keepdim)


# ---- blocks: windows that neither overlap nor miss anything
def blocks(size: Sequence[Any], out: Sequence[int]) -> list[Any] | None:
    """The shape that cuts the last dimensions of `size` into blocks, `out` of them, None where they do not fit."""
    rank = len(out)
    inner = size[-rank:]
    if any(type(n) is not int or o == 0 or n == 0 or n % o for n, o in zip(inner, out)):
        return None
    return [*size[:-rank], *[n for o, s in zip(out, inner) for n in (o, s // o)]]


def inner_dims(rank: int) -> list[int]:
    """The dimensions of that shape that are inside of blocks."""
    return [-1 - 2 * i for i in range(rank)]


# ---- convolutions; a GPU's library adds a bias, and sums its gradient, in passes of its own
def _is_gpu(x: torch.Tensor) -> bool:
    return x.device.type == "cuda"


@own(aten.convolution.default)
def convolution(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, *rest: Any) -> Any:
    """Short filters of rows are loops. On a GPU the bias is added by whatever loops read the result, after a rounding
    as in eager (not so for groups)."""
    stride, padding, dilation, transposed, _, groups = rest
    if filters_rows(x, weight, padding, transposed, groups):
        return filtered_rows(x, weight, bias, stride, padding, dilation)
    if bias is None or not _is_gpu(x) or x.dim() != weight.dim() or rest[-1] != 1:
        return NotImplemented
    return aten.convolution.default(x, weight, None, *rest) + bias.view([-1] + [1] * (x.dim() - 2))


@own(aten.convolution_backward.default)
def convolution_backward(
    gradient: torch.Tensor, x: torch.Tensor, weight: torch.Tensor, bias_sizes: Any, *rest: Any
) -> Any:
    """The gradient of the bias is a sum over all but the channels."""
    *how, (for_x, for_weight, for_bias) = rest
    if not for_bias or not _is_gpu(x) or x.dim() != weight.dim():
        return NotImplemented
    others: Sequence[Any] = (None, None)
    if for_x or for_weight:
        mask = [for_x, for_weight, False]
        others = aten.convolution_backward.default(gradient, x, weight, None, *how, mask)[:2]
    return *others, gradient.sum([0, *range(2, x.dim())])


# ---- losses
def _reduced(loss: torch.Tensor, reduction: int) -> torch.Tensor:
    return loss if reduction == 0 else loss.mean() if reduction == 1 else loss.sum()


@own(aten.huber_loss.default)
def huber_loss(x: torch.Tensor, target: torch.Tensor, reduction: int = 1, delta: float = 1.0) -> Any:
    """In the dtype of `x` whatever the target's is, as eager's kernel stores it."""
    gap = (x - target).abs()
    loss = torch.where(gap <= delta, 0.5 * gap * gap, delta * (gap - 0.5 * delta))
    return _reduced(loss.to(x.dtype), reduction)


@own(aten.smooth_l1_loss_backward.default)
def smooth_l1_loss_backward(
    gradient: torch.Tensor, x: torch.Tensor, target: torch.Tensor, reduction: int, beta: float
) -> Any:
    """As ATen's kernel: NaN is on neither side, and stays. torch's rule takes its sign, which is 0."""
    wide = torch.float64 if x.dtype is torch.float64 else torch.float32
    gap = x.to(wide) - target.to(wide)
    share = gradient.to(wide) / x.numel() if reduction == 1 else gradient.to(wide)
    result = torch.where(gap <= -beta, -share, torch.where(gap >= beta, share, share * gap / beta))
    return result.to(x.dtype)


@own(aten.soft_margin_loss.default)
def soft_margin_loss(x: torch.Tensor, target: torch.Tensor, reduction: int = 1) -> Any:
    """As `huber_loss`."""
    return _reduced((-x * target).to(x.dtype).exp().log1p(), reduction)


@own(aten.binary_cross_entropy.default)
def binary_cross_entropy(x: torch.Tensor, *rest: Any) -> Any:
    """ATen's kernel raises for what is no probability. torch's rule gives NaN, as a graph on a GPU does here."""
    if not _is_gpu(x):
        possible = torch.logical_and(x >= 0, x <= 1).all()
        aten._assert_async.msg(possible, "all elements of input should be between 0 and 1")
    return decomposition_table[aten.binary_cross_entropy.default](x, *rest)


@own(aten._log_softmax.default)
def log_softmax(x: torch.Tensor, dim: int, half_to_float: bool) -> Any:
    """Taken apart, a backward needs two numbers of each row beside `x`, which is there, in place of all results.

    A CPU has a better way to take the logarithm (its lowering), and numbers without a row are ATen's.
    """
    if not _is_gpu(x) or x.dim() == 0 or not x.is_floating_point():
        return NotImplemented
    wide = torch.float64 if x.dtype is torch.float64 else torch.float32
    shifted = x.to(wide)
    shifted = shifted - shifted.amax(dim, keepdim=True)
    result = shifted - shifted.exp().sum(dim, keepdim=True).log()
    return result if half_to_float else result.to(x.dtype)


@own(aten._softmax_backward_data.default)
def softmax_backward(grad: torch.Tensor, result: torch.Tensor, dim: int, dtype: torch.dtype) -> Any:
    """The sum is subtracted before the product, as in ATen's kernel for CPUs (aten/src/ATen/native/SoftMax.cpp): the
    difference may overflow. torch's rule multiplies first, as the kernel for GPUs does."""
    if _is_gpu(grad) or not grad.dtype == result.dtype == dtype:
        return decomposition_table[aten._softmax_backward_data.default](grad, result, dim, dtype)
    wide = torch.float64 if dtype is torch.float64 else torch.float32
    grad, result = grad.to(wide), result.to(wide)
    return ((grad - (grad * result).sum(dim, keepdim=True)) * result).to(dtype).contiguous()


@own(aten.nll_loss_backward.default, aten.nll_loss2d_backward.default)
def nll_loss_backward(
    gradient: torch.Tensor, values: torch.Tensor, target: torch.Tensor, weight: torch.Tensor | None, reduction: int,
    ignore_index: int, total_weight: torch.Tensor,
) -> Any:
    """One element of each row, the target's, is not zero. torch's rule scatters it into zeros; computed on its own,
    each element fuses with the softmax's gradient that follows.

    `values` is (C), (N, C) or (N, C, d1, ...), `target` the same without C; `reduction` 1 is the mean.
    """
    channel = 0 if values.dim() < 2 else 1
    if reduction == 1:
        gradient = gradient / total_weight
    factor = -(gradient.unsqueeze(channel) if gradient.dim() > 0 else gradient)
    shape = [1] * values.dim()
    shape[channel] = values.shape[channel]
    if weight is not None:
        factor = factor * weight.view(shape)
    wanted = target.unsqueeze(channel)
    classes = torch.arange(values.shape[channel], device=values.device).view(shape)
    return torch.where((classes == wanted) & (wanted != ignore_index), factor, 0.0).to(values.dtype)


@own(aten._amp_foreach_non_finite_check_and_unscale.default)
def unscaled(gradients: Sequence[torch.Tensor], found: torch.Tensor, inverse: torch.Tensor) -> Any:
    """What `GradScaler` does before a step: gradients times the inverse of the scale, and 1 where one is not finite."""
    inverse = inverse.reshape(())  # of one dimension it would give shape and dtype to the products
    for gradient in gradients:
        found = torch.where(gradient.isfinite().logical_not().any(), 1.0, found)
    return [gradient * inverse for gradient in gradients], found
