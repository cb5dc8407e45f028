"""Corrections of fake results: where torch's fake kernels, or decompositions, infer another result than ATen's kernels
return.

Kernels are generated for the inferred metadata, and code that reads strides, or takes a view where eager copies, would
see the difference: so the metadata is corrected during tracing. To add an operator, add it to the row of `LAYOUTS` that
says what its kernel does.
"""
from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import torch
from torch._prims_common import (
    compute_elementwise_output_strides,
    is_non_overlapping_and_dense_or_false,
    make_contiguous_strides_for,
    suggest_memory_format,
)
from torch.fx.experimental.symbolic_shapes import statically_known_true

from ..graphs.functional_graph import PARTS
from ..graphs.memory_overlap import may_repeat
from ..graphs.random_fills import RANDOM_FILLS
from ..graphs.unbacked import unbacked_in
from ..unsupported import EngineUnsupported

aten = torch.ops.aten

Strides = tuple[int, ...]
Layout = Callable[..., "Strides | None"]
"""(first result, the operator's arguments) -> the strides that eager gives that result; None: those it has."""

SIZED_BY_DATA = frozenset((aten._unique.default,))
"""Operators with data-dependent sizes; torch before 2.12 infers the size for data of zeros."""


AS_THE_FIRST = frozenset((aten.soft_margin_loss.default, aten.huber_loss.default))
"""Operators whose results have the dtype of the first argument whatever the others' are."""

LAID_OUT_BY_INPUT = frozenset((aten.unique_dim.default, aten.unique_consecutive.default))
"""Operators whose result has a data-dependent size, and strides that follow from the sizes of the input."""

SCATTERS = frozenset((
    aten.slice_scatter.default, aten.select_scatter.default, aten.diagonal_scatter.default,
    aten.as_strided_scatter.default,
))
"""Operators that write into a copy of their first argument with its strides; of an expanded one, into a dense copy."""

UNTOLD = frozenset((
    aten._unsafe_view.default, aten.unsafe_split.Tensor, aten.unsafe_split_with_sizes.default,
))
"""Operators that return views without saying so in their schemas."""

MEDIANS = frozenset((aten.median.dim, aten.nanmedian.dim))


def check_copy(operator: Any, args: Sequence[Any]) -> None:
    """Raises EngineUnsupported where eager writes into a copy whose elements share memory, as the original's do, or
    raises, because there is no such part of the copy: torch's fake kernel and generated loops do not check."""
    if operator in SCATTERS and not _is_expanded(args[0]) and may_repeat(args[0]):
        raise EngineUnsupported(f"{operator} writes to elements that share memory")
    if operator in PARTS and not unbacked_in(args) and not _fits(operator, *args):
        raise EngineUnsupported(f"{operator} raises in eager: it has no such slice")


def _fits(operator: Any, whole: torch.Tensor, part: torch.Tensor, *numbers: Any) -> bool:
    if operator is aten.select_scatter.default:  # which fake tensors do not check
        dim, position = numbers
        if not -whole.shape[dim] <= position < whole.shape[dim]:
            return False
    return bool(PARTS[operator](whole, *numbers).shape == part.shape)


def check_empty(operator: Any, args: Sequence[Any]) -> None:
    """Raises EngineUnsupported where eager takes what has no elements for done, and torch's rule gives it a shape."""
    if operator is aten.pixel_unshuffle.default and (unbacked_in(args[0]) or 0 in args[0].shape):
        raise EngineUnsupported(f"{operator} of no elements has its shape in eager")


def check_rows(operator: Any, args: Sequence[Any]) -> None:
    """Raises EngineUnsupported where rows are one element, and eager's kernel reads those beside it in memory: it takes
    a step of 0 for one of 1 (`median_with_indices_impl` in aten/src/ATen/native/Sorting.cpp)."""
    if operator in MEDIANS and args[0].device.type == "cpu" and args[0].dim() > 0:
        size, stride = args[0].shape[args[1]], args[0].stride(args[1])
        if type(stride) is int and stride == 0 and not _is_one(size):
            raise EngineUnsupported(f"{operator} of rows that are one element reads memory around them")


def _is_expanded(tensor: torch.Tensor) -> bool:
    return any(s == 0 and n > 1 for n, s in zip(tensor.shape, tensor.stride()))


def check(operator: Any, out: Any, args: Sequence[Any]) -> None:
    """Raises EngineUnsupported where the fake result of a call of ATen has a size or dtypes that cannot be trusted."""
    if operator in SIZED_BY_DATA and all(type(n) is int for n in out[0].shape):
        raise EngineUnsupported(f"the size of the result of {operator} depends on data")
    if operator is aten.linalg_vector_norm.default and len(args) > 2 and args[2] and not (len(args) > 3 and args[3]):
        if out.dim() == args[0].dim():  # torch 2.11, of dimensions of size 1
            raise EngineUnsupported(f"the fake result of {operator} keeps the dimensions that it reduces")
    if operator in AS_THE_FIRST and out.dtype != args[0].dtype:
        raise EngineUnsupported(f"{operator} returns {args[0].dtype}, its fake kernel {out.dtype}")
    if operator is aten._native_batch_norm_legit_functional.default and out[3].dtype != args[3].dtype:
        raise EngineUnsupported(f"{operator} keeps statistics in {args[3].dtype}, its fake kernel in {out[3].dtype}")


def is_view(operator: Any, result: Any, args: Sequence[Any]) -> bool:
    """Whether the fake result aliases an argument, and eager's result does not: a fake kernel
    or a rule that has nothing to do (drop, move) may return the argument."""
    if not isinstance(result, torch.Tensor) or result.layout is not torch.strided or not _makes_memory(operator):
        return False
    memory = result.untyped_storage()._cdata
    given = [tensor for tensor in _tensors(args) if tensor.layout is torch.strided]
    return any(tensor.untyped_storage()._cdata == memory for tensor in given)


@cache
def _makes_memory(operator: Any) -> bool:
    """Whether an operator never returns a view. What is made of other operators returns what these do."""
    composite = torch._C._dispatch_has_kernel_for_dispatch_key(operator.name(), "CompositeImplicitAutograd")
    return operator not in UNTOLD and not composite and not any(r.alias_info for r in operator._schema.returns)


def eager_strides(
    operator: Any, result: torch.Tensor, args: Sequence[Any], single: bool = False
) -> Strides | None:
    """The strides that eager gives the (first) result of an operator; None where the fake tensor's are right, or where
    sizes are data-dependent.

    Dynamic sizes are compared, which adds a guard on the order of strides. Those of dimensions of size 1, which only a
    memory format shows, count with `single`.
    """
    layout = LAYOUTS.get(operator, _of_elements if torch.Tag.pointwise in operator.tags else None)
    if layout is None or result.device.type != "cpu":
        return None
    tensors = _tensors(args)  # none where the program has given numbers alone
    if not tensors or any(map(unbacked_in, tensors)) or (operator not in LAID_OUT_BY_INPUT and unbacked_in(result)):
        return None
    strides = layout(result, *args)
    if strides is None:
        return None
    differ = [n for n, a, b in zip(result.shape, strides, result.stride()) if not _same(a, b)]
    return strides if any(single or not _is_one(n) for n in differ) else None


def _tensors(args: Sequence[Any]) -> list[torch.Tensor]:
    flat = [part for a in args for part in (a if isinstance(a, (tuple, list)) else (a,))]
    return [a for a in flat if isinstance(a, torch.Tensor)]


def _is_one(size: Any) -> bool:
    return type(size) is int and size == 1


def _same(one: Any, other: Any) -> bool:
    """Whether two strides are equal for all sizes, not just for the current ones."""
    return one == other if type(one) is type(other) is int else statically_known_true(one == other)


# ---- element by element
def _as_elements(out: torch.Tensor, *args: Any) -> Strides:
    """As TensorIterator lays out the result of tensors that broadcast together; a rule made of several may not.

    What has another dtype than they compute in is copied to that first, and the copy has no expanded dimensions.
    """
    if _all_row_major(out, args):
        return _row_major(out)
    tensors = [a for a in args if isinstance(a, torch.Tensor)]
    common = out.dtype
    if common is torch.bool:
        for tensor in tensors:
            common = torch.promote_types(common, tensor.dtype)
    return _together(out, *[_converted(a, common) for a in tensors])


def _converted(tensor: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """A tensor with the strides of its copy in a dtype."""
    same = tensor.dtype is dtype or is_non_overlapping_and_dense_or_false(tensor)
    return tensor if same else torch.empty_like(tensor)


def _all_row_major(out: torch.Tensor, args: Sequence[Any]) -> bool:
    """Whether TensorIterator makes a row-major result, with new strides for dimensions of size 1, from which a
    convolution or `cat` tells a memory format: arguments are row-major tensors of one shape, and no number is among
    them (`fast_set_up` in aten/src/ATen/TensorIterator.cpp)."""
    tensors = [a for a in args if isinstance(a, torch.Tensor)]
    if len(tensors) < len(args) or any(type(n) is not int for t in (out, *tensors) for n in (*t.shape, *t.stride())):
        return False
    return 1 in out.shape and all(t.shape == out.shape and t.is_contiguous() for t in tensors)


def _together(out: torch.Tensor, *tensors: torch.Tensor) -> Strides:
    """As elements of tensors that are not converted."""
    return tuple(compute_elementwise_output_strides(*[_broadcast(t, out.shape) for t in tensors]))


def _broadcast(tensor: torch.Tensor, shape: Sequence[Any]) -> torch.Tensor:
    """A tensor as TensorIterator sees it: `expand` has other strides for new dimensions of size 1, which count where
    those of another tensor are strange."""
    lead = len(shape) - tensor.dim()
    if lead <= 0:
        return tensor.expand(shape)
    strides = [0 if n != m else s for n, m, s in zip(shape[lead:], tensor.shape, tensor.stride())]
    return tensor.as_strided(shape, (*[0] * lead, *strides))


def _of_elements(out: torch.Tensor, *args: Any) -> Strides | None:
    """As elements, where all are row-major, where one is not dense, or where there are dimensions of size 1 and an
    argument that has fewer dimensions, as a number has: a fake kernel converts what it computes in another dtype, which
    makes it dense."""
    if _all_row_major(out, args):
        return _row_major(out)
    tensors = [a for a in args if isinstance(a, torch.Tensor) and a.dim() > 0]
    static = all(type(n) is int for t in (out, *tensors) for n in (*t.shape, *t.stride()))
    ones = any(map(_is_one, out.shape))
    if not tensors or any(type(n) is int and n == 0 for n in out.shape) or not (static or ones):
        return None
    if not all(map(is_non_overlapping_and_dense_or_false, tensors)):
        return _as_elements(out, *args)
    mixed = len({t.dim() for t in tensors}) > 1 or any(isinstance(a, (int, float)) for a in args)
    return _together(out, *tensors) if ones and mixed else None


def _chosen(out: torch.Tensor, condition: torch.Tensor, *branches: torch.Tensor) -> Strides:
    """As elements of the condition and of the branches, which alone are converted."""
    if _all_row_major(out, (condition, *branches)):
        return _row_major(out)
    return _together(out, condition, *[_converted(branch, out.dtype) for branch in branches])


def _of_one(out: torch.Tensor, x: torch.Tensor, *_: Any) -> Strides | None:
    """As TensorIterator lays out the result of one tensor: what is contiguous gets the usual strides of dimensions of
    size 1 too, from which a convolution tells the memory format."""
    static = all(type(n) is int for n in (*x.shape, *x.stride()))
    return _row_major(out) if static and x.is_contiguous() else None


def _of_its_elements(out: torch.Tensor, *args: Any) -> Strides | None:
    """As elements of the tensor: the kernel holds the numbers beside it, which are no operands."""
    return _of_elements(out, *[a for a in args if isinstance(a, torch.Tensor)])


def _second_first(out: torch.Tensor, gradient: torch.Tensor, x: torch.Tensor, *_: Any) -> Strides:
    """As elements, where the kernel takes what it was in the forward before the gradient."""
    return _as_elements(out, x, gradient)


def _like_the_first(out: torch.Tensor, x: torch.Tensor, *_: Any) -> Strides:
    """As `empty_like` of the first argument, where the result is not reduced: that of a dense tensor keeps the strides
    of dimensions of size 1, unlike its fake."""
    if x.shape != out.shape:
        return _row_major(out)
    return x.stride() if is_non_overlapping_and_dense_or_false(x) else tuple(torch.empty_like(x).stride())


def _finite(out: torch.Tensor, x: torch.Tensor) -> Strides | None:
    """Of floats as elements, which are compared; of integers as `ones_like` and `zeros_like`."""
    return _of_one(out, x) if x.dtype.is_floating_point else _like_the_first(out, x)


def _as_inferred(out: torch.Tensor, *_: Any) -> None:
    """As the fake tensor: `empty_like` makes the result, which keeps the strides of dimensions of size 1."""


def _of_the_first(out: torch.Tensor, x: torch.Tensor, *_: Any) -> Strides:
    """Those of the first argument, gaps and all."""
    return x.stride()


def _scattered(out: torch.Tensor, x: torch.Tensor, *_: Any) -> Strides | None:
    """Those of the first argument; of an expanded one, of its copy, which keeps the order of dimensions
    (`clone_preserve_strides` in aten/src/ATen/native/TensorShape.cpp)."""
    return tuple(torch.empty_like(x).stride()) if _is_expanded(x) else None


def _scaled_by_a_power(out: torch.Tensor, x: torch.Tensor, exponents: torch.Tensor) -> Strides:
    """As elements of the first and of the power, which is row-major where it is that of a number, and not of a two in
    the first's dtype. With whole exponents, a result of the first's shape has its layout."""
    if x.dtype.is_floating_point and not exponents.dtype.is_floating_point:
        return torch.empty_like(x).stride() if x.shape == out.shape else _as_elements(out, x, exponents)
    of_a_number = not x.dtype.is_floating_point or x.dtype is torch.float32
    return _as_elements(out, x, x.new_empty(exponents.shape) if of_a_number else exponents)


def _expanded(out: torch.Tensor, x: torch.Tensor, *_: Any) -> Strides:
    """New dimensions of size 1 get the stride that the next one would continue (`inferExpandGeometry` in
    aten/src/ATen/ExpandUtils.cpp), 0 before an expanded one; at sizes that vary torch's rule gives other strides."""
    strides = list(out.stride())
    for d in reversed(range(out.dim() - x.dim() if x.dim() else 0)):
        strides[d] = out.shape[d + 1] * strides[d + 1] if _is_one(out.shape[d]) and strides[d + 1] != 0 else 0
    return tuple(strides)


def _angle(out: torch.Tensor, x: torch.Tensor) -> Strides | None:
    return _row_major(out) if x.dtype.is_complex else None


def _indexed(out: torch.Tensor, x: torch.Tensor, indices: Sequence[torch.Tensor | None], *_: Any) -> Strides | None:
    """As TensorIterator lays out the input, with strides of 0 in the place of indexed dimensions, beside the indices.

    As `make_info` in aten/src/ATen/native/TensorAdvancedIndexing.cpp, which torch's fake kernel follows but for
    dimensions of size 1 and for indices of 32 bits, of which it makes others of 64 when they have their common shape.
    """
    found = [i for i in indices if i is not None]
    masks = any(i.dtype in (torch.bool, torch.uint8) for i in found)
    if not found or masks or 0 in out.shape:
        return None
    dims = list(range(x.dim()))
    used = [d for d in dims if d < len(indices) and indices[d] is not None]
    first = used[0]
    if used[-1] - first + 1 != len(used):  # not adjacent: they move to the front
        first, x = 0, x.permute(used + [d for d in dims if d not in used])
    last = first + len(used)
    block = torch.broadcast_shapes(*[i.shape for i in found])
    stride = (*x.stride()[:first], *[0] * len(block), *x.stride()[last:])
    shape = (1,) * first + block + (1,) * (x.dim() - last)
    places = [i.expand(block).to(torch.int64).reshape(shape) for i in found]
    window = x.new_empty_strided(out.shape, stride)
    return _together(out, window, *places)


# ---- row by row
def _row_major(out: torch.Tensor, *_: Any) -> Strides:
    """Row-major whatever the input's layout."""
    return tuple(make_contiguous_strides_for(out.shape))


def _row_major_or_channels_last(out: torch.Tensor, x: torch.Tensor, *_: Any) -> Strides:
    """Row-major, but channels last where the input is."""
    formats = {4: torch.channels_last, 5: torch.channels_last_3d}
    rank = out.dim()
    if rank in formats and not x.is_contiguous() and x.is_contiguous(memory_format=formats[rank]):
        return x.stride()
    return _row_major(out)


def _suggested(out: torch.Tensor, x: torch.Tensor, *_: Any) -> Strides:
    """In the memory format that the strides of the input suggest, whether it is dense or not."""
    return tuple(torch.empty_like(out, memory_format=suggest_memory_format(x)).stride())


def _batch_norm(out: torch.Tensor, x: torch.Tensor, *args: Any) -> Strides:
    """As `_row_major_or_channels_last`, with new strides for dimensions of size 1, where all operands are whole; else
    in the format suggested (ATen's native/Normalization.cpp, batch_norm_cpu_transform_input_template)."""
    formats = {4: torch.channels_last, 5: torch.channels_last_3d}
    whole = x.dim() in formats and all(a.is_contiguous() for a in args if isinstance(a, torch.Tensor))
    if whole and x.is_contiguous():
        return _row_major(out)
    if whole and x.is_contiguous(memory_format=formats[x.dim()]):
        return tuple(torch.empty_like(out, memory_format=formats[x.dim()]).stride())
    return _suggested(out, x)


def _in_the_format_of_the_second(out: torch.Tensor, gradient: torch.Tensor, x: torch.Tensor, *_: Any) -> Strides:
    """As `_row_major_or_channels_last`, of a gradient whose kernel takes what it was in the forward second."""
    return _row_major_or_channels_last(out, x)


def _rolled(out: torch.Tensor, x: torch.Tensor, shifts: Sequence[int], dims: Sequence[int] = ()) -> Strides | None:
    """One dimension after the other, two parts joined, in the format that both suggest; one of them may be empty. All
    elements in a row where no dimension is given (aten/src/ATen/native/TensorTransformations.cpp)."""
    if any(type(n) is int and n == 0 for n in out.shape):
        return None
    if not dims:
        return _row_major(out)
    for shift, dim in zip(shifts, dims):
        start = -shift % x.shape[dim]
        parts = x.narrow(dim, start, x.shape[dim] - start), x.narrow(dim, 0, start)
        formats = {suggest_memory_format(part) for part in parts}
        x = torch.empty_like(out, memory_format=formats.pop() if len(formats) == 1 else torch.contiguous_format)
    return tuple(x.stride())


def _max_unpool2d(out: torch.Tensor, x: torch.Tensor, *_: Any) -> Strides | None:
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


def _fourier(keep_last: bool) -> Layout:
    def layout(out: torch.Tensor, x: torch.Tensor, dims: Sequence[int], *_: Any) -> Strides | None:
        """Transformed dimensions innermost, the others around them in the order in which they lie in the input.

        As `_exec_fft` in aten/src/ATen/native/mkl/SpectralOps.cpp; torch's fake kernels say so from 2.12 on.
        """
        if not dims or not torch.backends.mkl.is_available():
            return None
        dims = [d % x.dim() for d in dims]
        moved = dims[:-1] if keep_last else dims
        inner = sorted(moved, key=x.stride, reverse=True) + dims[len(moved) :]
        outer = sorted([d for d in range(x.dim()) if d not in dims], key=x.stride, reverse=True)
        return _nested(out.shape, outer + inner)

    return layout


def _unique(position: int) -> Layout:
    def layout(out: torch.Tensor, x: torch.Tensor, *rest: Any) -> Strides | None:
        """Slices along `dim`, the argument at `position`, one after the other (aten/src/ATen/native/Unique.cpp)."""
        dim = rest[position - 1] if len(rest) >= position else None
        if dim is None or x.numel() == 0:
            return None
        dim %= x.dim()
        return _nested(x.shape, [dim, *[d for d in range(x.dim()) if d != dim]])

    return layout


LAYOUTS: dict[Any, Layout] = {
    **dict.fromkeys((
        aten.copysign.Tensor, aten.floor_divide.default, aten.div.Tensor_mode, aten.xlogy.Tensor,
        aten.special_xlog1py.default, aten.sub.Tensor, aten.add.Tensor, aten.heaviside.default,
        aten.logaddexp.default, aten.logaddexp2.default, aten.clamp.Tensor, aten.logical_and.default,
        aten.logical_or.default, aten.logical_xor.default,
        aten.elu_backward.default, aten.gelu_backward.default, aten.hardshrink_backward.default,
        aten.hardsigmoid_backward.default, aten.hardswish_backward.default, aten.hardtanh_backward.default,
        aten.logit_backward.default, aten.mish_backward.default,
        aten.sigmoid_backward.default, aten.silu_backward.default, aten.softplus_backward.default,
        aten.softshrink_backward.default, aten.tanh_backward.default, aten.lcm.default,
    ), _as_elements),
    aten.where.self: _chosen,
    **dict.fromkeys((aten.polar.default, aten.complex.default), _together),
    **dict.fromkeys((aten.leaky_relu_backward.default, aten.threshold_backward.default), _second_first),
    **dict.fromkeys((
        aten.huber_loss.default, aten.index_fill.int_Scalar, aten.index_fill.int_Tensor, aten.flip.default,
        aten.deg2rad.default, aten.rad2deg.default, aten.hardtanh.default, aten.relu6.default, aten.nan_to_num.default,
    ), _like_the_first),
    **dict.fromkeys((aten.isfinite.default, aten.isinf.default), _finite),
    **dict.fromkeys(RANDOM_FILLS, _of_the_first),
    **dict.fromkeys((aten.clone.default, aten.conj_physical.default, aten.positive.default), _as_inferred),
    **dict.fromkeys(SCATTERS, _scattered),
    **dict.fromkeys((
        aten.clamp.default, aten.clamp_min.default, aten.clamp_max.default,
        aten.elu.default, aten.hardshrink.default, aten.leaky_relu.default, aten.logit.default,
        aten.polygamma.default, aten.softplus.default, aten.softshrink.default, aten.threshold.default,
    ), _of_its_elements),
    **dict.fromkeys((
        aten.pow.Tensor_Scalar, aten._log_softmax.default, aten.tril.default, aten.triu.default,
    ), _of_one),
    aten.angle.default: _angle,
    aten.expand.default: _expanded,
    aten.ldexp.Tensor: _scaled_by_a_power,
    aten.index.Tensor: _indexed,
    **dict.fromkeys((
        aten.log_sigmoid_forward.default, aten.im2col.default, aten.upsample_nearest1d.default,
        aten._upsample_nearest_exact1d.default, aten._softmax_backward_data.default,
        aten._log_softmax_backward_data.default, aten.mse_loss_backward.default, aten.huber_loss_backward.default,
        aten.smooth_l1_loss_backward.default, aten.isin.Tensor_Tensor, aten.take.default,
        aten.native_layer_norm_backward.default, aten.pow.Scalar,
        aten.masked_fill.Scalar, aten.masked_fill.Tensor, aten.glu_backward.default,
    ), _row_major),
    **dict.fromkeys((
        aten.reflection_pad2d.default, aten.reflection_pad3d.default, aten.replication_pad2d.default,
        aten.replication_pad3d.default, aten.upsample_nearest3d.default, aten._upsample_nearest_exact3d.default,
        aten.upsample_trilinear3d.default,
    ), _suggested),
    aten.reflection_pad2d_backward.default: _in_the_format_of_the_second,
    aten.replication_pad2d_backward.default: _in_the_format_of_the_second,
    aten.roll.default: _rolled,
    **dict.fromkeys((
        aten.native_batch_norm.default, aten._native_batch_norm_legit.default,
        aten._native_batch_norm_legit.no_stats, aten._native_batch_norm_legit_functional.default,
        aten._native_batch_norm_legit_no_training.default, aten._batch_norm_with_update_functional.default,
        aten._batch_norm_no_update.default,
    ), _batch_norm),
    aten.max_unpool2d.default: _max_unpool2d,
    aten._fft_r2c.default: _fourier(keep_last=True),
    aten._fft_c2c.default: _fourier(keep_last=False),
    aten.unique_dim.default: _unique(1),
    aten.unique_consecutive.default: _unique(3),
}
