"""The strides of results in eager, where torch's fake kernels, or rules made of several operators, say otherwise.

Code is generated for what a fake kernel says, and a program that reads strides, or takes a view where eager copies,
would see the difference. `traits.py` says which operator has which layout (`strides`).
"""
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch._prims_common import (
    compute_elementwise_output_strides,
    is_non_overlapping_and_dense_or_false,
    make_contiguous_strides_for,
    suggest_memory_format,
)
from torch.fx.experimental.symbolic_shapes import statically_known_true

Strides = tuple[int, ...]
Layout = Callable[..., "Strides | None"]
"""(first result, the operator's arguments) -> the strides that eager gives that result; None: those it has."""


def is_expanded(tensor: torch.Tensor) -> bool:
    """Whether a dimension of several elements is one element in memory."""
    return any(s == 0 and n > 1 for n, s in zip(tensor.shape, tensor.stride()))


def is_one(size: Any) -> bool:
    """Whether a size is the number 1, and no symbol."""
    return type(size) is int and size == 1


# ---- element by element
def as_elements(out: torch.Tensor, *args: Any) -> Strides:
    """As TensorIterator lays out the result of tensors that broadcast together; a rule made of several may not.

    On a CPU, what has another dtype than they compute in is copied to that first, and the copy has no expanded
    dimensions; a GPU's kernel converts what it reads.
    """
    if _all_row_major(out, args):
        return row_major(out)
    tensors = [a for a in args if isinstance(a, torch.Tensor)]
    if out.device.type == "cuda":
        return together(out, *tensors)
    common = out.dtype
    if common is torch.bool:
        for tensor in tensors:
            common = torch.promote_types(common, tensor.dtype)
    return together(out, *[_converted(a, common) for a in tensors])


def _converted(tensor: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """A tensor with the strides of its copy in a dtype."""
    same = tensor.dtype is dtype or _is_dense(tensor)
    return tensor if same else torch.empty_like(tensor)


def _all_row_major(out: torch.Tensor, args: Sequence[Any]) -> bool:
    """Whether TensorIterator makes a row-major result, with new strides for dimensions of size 1, from which a
    convolution or `cat` tells a memory format: arguments are row-major tensors of one shape, and no number is among
    them (`fast_set_up` in aten/src/ATen/TensorIterator.cpp)."""
    tensors = [a for a in args if isinstance(a, torch.Tensor)]
    if len(tensors) < len(args) or not any(map(is_one, out.shape)):
        return False
    return all(_is_shaped_like(t, out) and _is_row_major(t) for t in tensors)


def _is_shaped_like(tensor: torch.Tensor, other: torch.Tensor) -> bool:
    return tensor.dim() == other.dim() and all(map(is_same, tensor.shape, other.shape))


def _is_row_major(tensor: torch.Tensor) -> bool:
    """Whether the tensor is contiguous, which strides of dimensions of size 1 have no part in. Nothing is guarded."""
    if all(type(n) is int for n in (*tensor.shape, *tensor.stride())):
        return tensor.is_contiguous()
    expected: Any = 1
    for size, stride in zip(reversed(tensor.shape), reversed(tensor.stride())):
        if not is_one(size):
            if not is_same(stride, expected):
                return False
            expected = expected * size
    return True


def _is_dense(tensor: torch.Tensor) -> bool:
    """Whether the tensor has each of its elements once, and nothing between them, as far as its sizes tell."""
    strided = tensor.layout is torch.strided
    fixed = strided and all(type(n) is int for n in (*tensor.shape, *tensor.stride()))
    return (fixed and tensor.is_contiguous()) or is_non_overlapping_and_dense_or_false(tensor)


def is_same(one: Any, other: Any) -> bool:
    """Whether two sizes or strides are equal for all sizes: a coincidence of those at hand is no guard."""
    return bool(one == other) if type(one) is type(other) is int else statically_known_true(one == other)


def together(out: torch.Tensor, *tensors: torch.Tensor) -> Strides:
    """As elements of tensors that are not converted."""
    return tuple(compute_elementwise_output_strides(*[_broadcast(t, out.shape) for t in tensors]))


def _broadcast(tensor: torch.Tensor, shape: Sequence[Any]) -> torch.Tensor:
    """A tensor as TensorIterator sees it: `expand` has other strides for new dimensions of size 1, which count where
    those of another tensor are strange."""
    if all(type(n) is int for n in (*shape, *tensor.shape)) and tensor.shape == shape:
        return tensor
    lead = len(shape) - tensor.dim()
    if lead <= 0:
        return tensor.expand(shape)
    strides = [0 if n != m else s for n, m, s in zip(shape[lead:], tensor.shape, tensor.stride())]
    return tensor.as_strided(shape, (*[0] * lead, *strides))


def of_elements(out: torch.Tensor, *args: Any) -> Strides | None:
    """As elements, where all are row-major, where one is not dense, or where there are dimensions of size 1 and an
    argument that has fewer dimensions, as a number has: a fake kernel converts what it computes in another dtype, which
    makes it dense. At sizes that vary this is what eager does on a CPU, and not on a GPU."""
    if _all_row_major(out, args):
        return row_major(out)
    tensors = [a for a in args if isinstance(a, torch.Tensor) and a.dim() > 0]
    static = all(type(n) is int for t in (out, *tensors) for n in (*t.shape, *t.stride()))
    ones = any(map(is_one, out.shape))
    if not tensors or any(type(n) is int and n == 0 for n in out.shape):
        return None
    if not (static or ones or out.device.type == "cuda"):
        return None
    if not all(map(_is_dense, tensors)):
        return as_elements(out, *args)
    mixed = len({a.dim() if isinstance(a, torch.Tensor) else 0 for a in args}) > 1
    return together(out, *tensors) if ones and mixed else None


def chosen(out: torch.Tensor, condition: torch.Tensor, *branches: torch.Tensor) -> Strides:
    """As elements of the condition and of the branches, which alone are converted."""
    if _all_row_major(out, (condition, *branches)):
        return row_major(out)
    return together(out, condition, *[_converted(branch, out.dtype) for branch in branches])


def of_one(out: torch.Tensor, x: torch.Tensor, *_: Any) -> Strides | None:
    """As TensorIterator lays out the result of one tensor: what is contiguous gets the usual strides of dimensions of
    size 1 too, from which a convolution tells the memory format."""
    return row_major(out) if any(map(is_one, x.shape)) and _is_row_major(x) else None


def of_its_elements(out: torch.Tensor, *args: Any) -> Strides | None:
    """As elements of the tensor: the kernel holds the numbers beside it, which are no operands."""
    return of_elements(out, *[a for a in args if isinstance(a, torch.Tensor)])


def second_first(out: torch.Tensor, gradient: torch.Tensor, x: torch.Tensor, *_: Any) -> Strides:
    """As elements, where the kernel takes what it was in the forward before the gradient."""
    return as_elements(out, x, gradient)


def like_the_first(out: torch.Tensor, x: torch.Tensor, *_: Any) -> Strides:
    """As `empty_like` of the first argument, where the result is not reduced: that of a dense tensor keeps the strides
    of dimensions of size 1, unlike its fake."""
    if x.shape != out.shape:
        return row_major(out)
    return x.stride() if _is_dense(x) else tuple(torch.empty_like(x).stride())


def finite(out: torch.Tensor, x: torch.Tensor) -> Strides | None:
    """Of floats as elements, which are compared; of integers as `ones_like` and `zeros_like`."""
    return of_one(out, x) if x.dtype.is_floating_point else like_the_first(out, x)


def as_fake(out: torch.Tensor, *_: Any) -> None:
    """As the fake tensor: `empty_like` makes the result, which keeps the strides of dimensions of size 1."""


def of_the_first(out: torch.Tensor, x: torch.Tensor, *_: Any) -> Strides:
    """Those of the first argument, gaps and all."""
    return x.stride()


def scattered(out: torch.Tensor, x: torch.Tensor, *_: Any) -> Strides | None:
    """Those of the first argument; of an expanded one, of its copy, which keeps the order of dimensions
    (`clone_preserve_strides` in aten/src/ATen/native/TensorShape.cpp)."""
    return tuple(torch.empty_like(x).stride()) if is_expanded(x) else None


def scaled_by_a_power(out: torch.Tensor, x: torch.Tensor, exponents: torch.Tensor) -> Strides:
    """As elements of the first and of the power, which is row-major where it is that of a number, and not of a two in
    the first's dtype. With whole exponents, a result of the first's shape has its layout."""
    if x.dtype.is_floating_point and not exponents.dtype.is_floating_point:
        return torch.empty_like(x).stride() if x.shape == out.shape else as_elements(out, x, exponents)
    of_a_number = not x.dtype.is_floating_point or x.dtype is torch.float32
    return as_elements(out, x, x.new_empty(exponents.shape) if of_a_number else exponents)


def expanded(out: torch.Tensor, x: torch.Tensor, *_: Any) -> Strides:
    """New dimensions of size 1 get the stride that the next one would continue (`inferExpandGeometry` in
    aten/src/ATen/ExpandUtils.cpp), 0 before an expanded one; at sizes that vary torch's rule gives other strides."""
    strides = list(out.stride())
    for d in reversed(range(out.dim() - x.dim() if x.dim() else 0)):
        strides[d] = out.shape[d + 1] * strides[d + 1] if is_one(out.shape[d]) and strides[d + 1] != 0 else 0
    return tuple(strides)


def angle(out: torch.Tensor, x: torch.Tensor) -> Strides | None:
    return row_major(out) if x.dtype.is_complex else None


def indexed(out: torch.Tensor, x: torch.Tensor, indices: Sequence[torch.Tensor | None], *_: Any) -> Strides | None:
    """As TensorIterator lays out the input, with strides of 0 in the place of indexed dimensions, beside the indices.

    As `make_info` in aten/src/ATen/native/TensorAdvancedIndexing.cpp, which torch's fake kernel follows but for
    dimensions of size 1 and for indices of 32 bits, of which it makes others of 64 when they have their common shape.
    A GPU takes copies of indices whose strides differ.
    """
    found = [i for i in indices if i is not None]
    masks = any(i.dtype in (torch.bool, torch.uint8) for i in found)
    if not found or masks or 0 in out.shape:
        return None
    dims = list(range(x.dim()))
    used = [d for d in dims if d < len(indices) and indices[d] is not None]
    first = used[0]
    if used[-1] - first + 1 != len(used):  # not side by side: they move to the front
        first, x = 0, x.permute(used + [d for d in dims if d not in used])
    last = first + len(used)
    block = torch.broadcast_shapes(*[i.shape for i in found])
    stride = (*x.stride()[:first], *[0] * len(block), *x.stride()[last:])
    shape = (1,) * first + block + (1,) * (x.dim() - last)
    places = [i.expand(block).to(torch.int64).reshape(shape) for i in found]
    if x.device.type == "cuda" and any(place.stride() != places[0].stride() for place in places):
        places = [place.new_empty(place.shape) for place in places]
    window = x.new_empty_strided(out.shape, stride)
    return together(out, window, *places)


# ---- row by row
def row_major(out: torch.Tensor, *_: Any) -> Strides:
    """Row-major whatever the input's layout."""
    return tuple(make_contiguous_strides_for(out.shape))


def _row_major_or_channels_last(out: torch.Tensor, x: torch.Tensor, *_: Any) -> Strides:
    """Row-major, but channels last where the input is."""
    formats = {4: torch.channels_last, 5: torch.channels_last_3d}
    rank = out.dim()
    if rank in formats and not x.is_contiguous() and x.is_contiguous(memory_format=formats[rank]):
        return x.stride()
    return row_major(out)


def suggested(out: torch.Tensor, x: torch.Tensor, *_: Any) -> Strides:
    """In the memory format that the strides of the input suggest, whether it is dense or not."""
    return tuple(torch.empty_like(out, memory_format=suggest_memory_format(x)).stride())


def batch_norm(out: torch.Tensor, x: torch.Tensor, *args: Any) -> Strides:
    """As `_row_major_or_channels_last`, with new strides for dimensions of size 1, where all operands are whole; else
    in the format suggested (ATen's native/Normalization.cpp, batch_norm_cpu_transform_input_template)."""
    formats = {4: torch.channels_last, 5: torch.channels_last_3d}
    whole = x.dim() in formats and all(a.is_contiguous() for a in args if isinstance(a, torch.Tensor))
    if whole and x.is_contiguous():
        return row_major(out)
    if whole and x.is_contiguous(memory_format=formats[x.dim()]):
        return tuple(torch.empty_like(out, memory_format=formats[x.dim()]).stride())
    return suggested(out, x)


def format_of_the_second(out: torch.Tensor, gradient: torch.Tensor, x: torch.Tensor, *_: Any) -> Strides:
    """As `_row_major_or_channels_last`, of a gradient whose kernel takes what it was in the forward second."""
    return _row_major_or_channels_last(out, x)


def rolled(out: torch.Tensor, x: torch.Tensor, shifts: Sequence[int], dims: Sequence[int] = ()) -> Strides | None:
    """One dimension after the other, two parts joined, in the format that both suggest; one of them may be empty. All
    elements in a row where no dimension is given (aten/src/ATen/native/TensorTransformations.cpp)."""
    if any(type(n) is int and n == 0 for n in out.shape):
        return None
    if not dims:
        return row_major(out)
    for shift, dim in zip(shifts, dims):
        start = -shift % x.shape[dim]
        parts = x.narrow(dim, start, x.shape[dim] - start), x.narrow(dim, 0, start)
        formats = {suggest_memory_format(part) for part in parts}
        x = torch.empty_like(out, memory_format=formats.pop() if len(formats) == 1 else torch.contiguous_format)
    return tuple(x.stride())


def rearranged(out: torch.Tensor, x: torch.Tensor, factor: int) -> Strides | None:
    """In rows: `math_pixel_shuffle` copies what it permutes (aten/src/ATen/native/PixelShuffle.cpp)."""
    return row_major(out) if type(factor) is int and factor > 1 else None


def max_unpool2d(out: torch.Tensor, x: torch.Tensor, *_: Any) -> Strides | None:
    """The format of the input, as aten/src/ATen/native/MaxUnpooling.cpp has it."""
    if x.dim() != 4 or not x.is_contiguous(memory_format=torch.channels_last) or x.is_contiguous():
        return None
    channels, height, width = out.shape[1:]
    return channels * height * width, 1, channels * width, channels


# ---- dimension by dimension
def _nested(sizes: Sequence[int], order: Sequence[int]) -> Strides:
    """Dense strides for dimensions that lie in `order`, the outermost first."""
    strides, stride = [0] * len(sizes), 1
    for d in reversed(order):
        strides[d] = stride
        stride *= sizes[d]
    return tuple(strides)


def fourier(keep_last: bool) -> Layout:
    def layout(out: torch.Tensor, x: torch.Tensor, dims: Sequence[int], *_: Any) -> Strides | None:
        """Transformed dimensions innermost, the others around them in the order in which they lie in the input.

        As `_exec_fft` in aten/src/ATen/native/mkl/SpectralOps.cpp; torch's fake kernels say so from 2.12 on.
        """
        if not dims or not torch.backends.mkl.is_available():
            return None
        return _with_innermost(out, x, dims, dims[:-1] if keep_last else dims)

    return layout


def _with_innermost(out: torch.Tensor, x: torch.Tensor, dims: Sequence[int], moved: Sequence[int]) -> Strides:
    inner = sorted([d % x.dim() for d in moved], key=x.stride, reverse=True)
    inner += [d % x.dim() for d in dims[len(moved) :]]
    outer = sorted([d for d in range(x.dim()) if d not in inner], key=x.stride, reverse=True)
    return _nested(out.shape, outer + inner)


def fourier_on_a_gpu(out: torch.Tensor, x: torch.Tensor, dims: Sequence[int], *_: Any) -> Strides | None:
    """As `fourier`, of as many dimensions as one plan of cuFFT has (aten/src/ATen/native/cuda/SpectralOps.cpp)."""
    return _with_innermost(out, x, dims, dims) if 0 < len(dims) <= 3 else None


def unique(position: int) -> Layout:
    def layout(out: torch.Tensor, x: torch.Tensor, *rest: Any) -> Strides | None:
        """Slices along `dim`, the argument at `position`, one after the other (aten/src/ATen/native/Unique.cpp)."""
        dim = rest[position - 1] if len(rest) >= position else None
        if dim is None or x.numel() == 0:
            return None
        dim %= x.dim()
        return _nested(x.shape, [dim, *[d for d in range(x.dim()) if d != dim]])

    return layout
