"""What is known of each ATen operator, in one table: to add a fact, add an operator to a row, or a row.

A row names operators as ATen does: "max.dim" is one overload, "max" all of them. An operator has the facts of its own
rows and of its packet's. The functions that rows mention are beside this file (`argument_checks.py`, `layouts.py`,
...); what asks for the facts, and applies them, is in `checks.py`, `meta.py` and `effects.py`.
"""
from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from functools import cache
from typing import Any, NamedTuple

import torch

from . import argument_checks as arguments, layouts, size1_strides, symbolic_meta, untrusted
from .argument_checks import Args, Check
from .layouts import Layout

_aten = torch.ops.aten


class Work(NamedTuple):
    """Bytes that one CPU core, or a GPU, moves in the time of one operation on a float32 element."""

    cpu: float
    gpu: float = 0.5


@dataclass(frozen=True, kw_only=True)
class Traits:
    """The facts about one operator; what is empty is as torch's fake kernels, schemas and tags say."""

    # -- what eager refuses, and fake kernels let pass
    check: Check | None = None
    """What is wrong with the arguments."""
    same_dtype: tuple[int, ...] = ()
    """Positions of arguments whose dtypes must agree, where they are tensors (there may be no bias)."""
    norm_dtype: tuple[int, ...] = ()
    """The same of norms: parameters and statistics may be float32 where the first is float16 or bfloat16."""
    converts: str = ""
    """Which numbers are converted to the dtype of the result, and must fit: "numbers" (but for those in a list), or
    "alpha" alone: a number that is added is a tensor of 64 bits first, which wraps around."""

    # -- where fake kernels give another result than eager's kernels
    no_meta: Callable[[Any, Args], str] | None = None
    """Why a call cannot be traced."""
    sized_by_data: bool = False
    """The sizes that a fake kernel gives are no sizes of eager's: they are data-dependent."""
    unsafe: Callable[[Any, Args], str] | None = None
    """Why generated code would do something else than eager's kernel."""
    wrong_result: untrusted.Wrong | None = None
    """Why sizes or dtypes of the fake result cannot be trusted."""
    symbolic_meta: Callable[..., Any] | None = None
    """The meta kernel where sizes vary."""
    strides: Layout | None = None
    """The strides of the (first) result, on a CPU, and on a GPU if nothing else is said."""
    gpu_strides: Layout | None = None
    """The strides of the (first) result on a GPU, where they are others."""
    captured_strides: Callable[[Any, Args, Any], Any] | None = None
    """The strides of dimensions of size 1 during capture."""
    sized_by_input: bool = False
    """Although the result has an unbacked size, the sizes of the input tell its strides."""
    view: bool = False
    """The result is a view, of which the schema says nothing."""

    kernels_by_size: bool = False
    """There are several kernels, chosen by size: what one refuses another may take."""

    # -- effects
    raises: bool | Callable[[Sequence[Any], Any], bool] = False
    """Raises for some data and not for other; or (arguments, fake result) -> whether this call may."""
    pure: bool = False
    """As a method of tensors: what is unused can be dropped."""
    asserts: bool = False
    """There only to raise."""
    fills: str = ""
    """The random fill in place of which this is the functional form."""
    writes_equal: bool = False
    """In place: sets all elements to one number, or writes nothing. Eager allows it where elements share memory."""
    moves_memory: bool = False
    """Gives a tensor other memory."""
    needs_elements: bool = False
    """A reduction that raises where there is nothing to reduce."""

    # -- costs
    work: Work | None = None
    """What one element costs; None: as little as an addition."""
    library: str = ""
    """What kind of kernel it is that ATen does best."""


_TABLE: dict[str, Traits] = {}


def _row(operators: str, **facts: Any) -> None:
    for name in operators.split():
        known = _TABLE.get(name, Traits())
        assert not any(getattr(known, fact) for fact in facts), f"{name} has a fact twice"
        _TABLE[name] = replace(known, **facts)


def traits_named(name: str) -> Traits:
    """The facts about all overloads of an operator, or about a function of torch or Python of this name."""
    return _TABLE.get(name, _NONE)


def traits_of(operator: Any) -> Traits:
    """The facts about an overload of an operator; of what is none of ATen's, nothing is known."""
    known = _known.get(operator)
    if known is None:
        known = _known[operator] = _merged(operator)
    return known


def _merged(operator: Any) -> Traits:
    if not isinstance(operator, torch._ops.OpOverload) or operator.namespace != "aten":
        return _NONE
    packet, own = str(operator.overloadpacket.__name__), str(operator).removeprefix("aten.")
    found = traits_named(packet)
    facts = {f.name: value for f in fields(Traits) if (value := getattr(traits_named(own), f.name))}
    return replace(found, **facts) if facts else found


_NONE = Traits()
_known: dict[Any, Traits] = {}


@cache
def operators_with(fact: str) -> tuple[tuple[Any, Any], ...]:
    """(overload, what its row says) of each operator that has a row of its own with a fact, as far as this torch has
    the operator."""
    return tuple(_with(fact))


def _with(fact: str) -> Iterator[tuple[Any, Any]]:
    for name, traits in _TABLE.items():
        packet, _, overload = name.partition(".")
        found = getattr(getattr(torch.ops.aten, packet, None), overload, None) if overload else None
        if found is not None and getattr(traits, fact):
            yield found, getattr(traits, fact)


# ---- arguments that eager refuses
_row("_softmax.default _log_softmax.default cummax.default cummin.default sort.default", check=arguments.dimension)
_row("sort.stable", check=arguments.sort_stable)
_row("max.dim min.dim median.dim nanmedian.dim mode.default", check=arguments.not_empty)
_row("max.default min.default", check=arguments.has_elements)
_row("index_select.default", check=arguments.index_select)
_row("index_add.default index_add_.default index_reduce.default index_reduce_.default", check=arguments.index_add)
_row("index_copy.default index_copy_.default", check=arguments.index_copy)
_row("index_put.default index_put_.default", check=arguments.index_put)
_row("nll_loss_forward.default nll_loss2d_forward.default", check=arguments.is_of(1, torch.int64, torch.uint8))
_row("masked_select.default", check=arguments.is_of(1, torch.bool))
_row("diagonal_scatter.default", check=arguments.scatters_to(_aten.diagonal.default))
_row("slice_scatter.default", check=arguments.scatters_to(_aten.slice.Tensor))
_row("select_scatter.default", check=arguments.scatters_to(_aten.select.int))
_row("select.int", check=arguments.selected)
_row("squeeze.default squeeze.dim squeeze.dims squeeze_.default squeeze_.dim squeeze_.dims", check=arguments.squeezed)
_row("bucketize.Tensor", check=arguments.boundaries)
_row("celu.default celu_.default", check=arguments.alpha_of_celu)
_row("add.Tensor", check=arguments.alpha_of_bools)
_row("amax amin max min argmax argmin aminmax median nanmedian mode", needs_elements=True)

# ---- dtypes that do not go together
_row("mm.default bmm.default mv.default linalg_cross.default heaviside.default polar.default complex.default"
     " grid_sampler_2d.default grid_sampler_3d.default", same_dtype=(0, 1))
_row("addmm.default addmv.default addbmm.default baddbmm.default convolution.default binary_cross_entropy.default",
     same_dtype=(0, 1, 2))
_row("index_add.default index_add_.default index_copy.default index_copy_.default", same_dtype=(0, 3))
_row("index_put.default index_put_.default put.default put_.default nll_loss_forward.default", same_dtype=(0, 2))
_row("native_layer_norm.default", norm_dtype=(0, 2, 3))
_row("native_group_norm.default", norm_dtype=(0, 1, 2))
_row("native_batch_norm.default cudnn_batch_norm.default", norm_dtype=(0, 1, 2, 3, 4))

# ---- numbers that have to fit into a dtype
_row("fill.Scalar fill_.Scalar masked_fill.Scalar masked_fill_.Scalar index_fill.int_Scalar index_fill_.int_Scalar"
     " scatter.value scatter_.value full.default full_like.default new_full.default scalar_tensor.default"
     " clamp.default clamp_.default clamp_min.default clamp_min_.default clamp_max.default clamp_max_.default"
     " hardtanh.default hardtanh_.default threshold.default threshold_.default constant_pad_nd.default"
     " where.Scalar where.ScalarOther where.ScalarSelf pow.Tensor_Scalar pow_.Scalar"
     " addcmul.default addcmul_.default", converts="numbers")
_row("add.Tensor add_.Tensor sub.Tensor sub_.Tensor", converts="alpha")

# ---- calls and results that cannot be trusted
_row("pixel_unshuffle.default", no_meta=untrusted.no_elements)
_row("_pack_padded_sequence.default", no_meta=untrusted.always, sized_by_data=True)
_row("slice_scatter.default select_scatter.default diagonal_scatter.default as_strided_scatter.default",
     unsafe=untrusted.scatters, strides=layouts.scattered)
_row("median.dim nanmedian.dim", unsafe=untrusted.median_rows)
_row("_unique.default", wrong_result=untrusted.sized_by_data)
_row("linalg_vector_norm.default", wrong_result=untrusted.vector_norm)
_row("soft_margin_loss.default huber_loss.default", wrong_result=untrusted.dtype_of_the_first)
_row("_native_batch_norm_legit_functional.default", wrong_result=untrusted.batch_norm_statistics)
_row("_unsafe_view.default unsafe_split.Tensor unsafe_split_with_sizes.default", view=True)

# ---- meta kernels for sizes that vary
_row("native_group_norm.default", symbolic_meta=symbolic_meta.group_norm)
_row("upsample_nearest1d_backward.default _upsample_nearest_exact1d_backward.default"
     " upsample_linear1d_backward.default upsample_bilinear2d_backward.default upsample_trilinear3d_backward.default",
     symbolic_meta=symbolic_meta.of_an_image)
_row("upsample_bicubic2d_backward.default upsample_nearest3d_backward.default"
     " _upsample_nearest_exact3d_backward.default", symbolic_meta=symbolic_meta.in_rows)

# ---- strides of results: element by element
_row("copysign.Tensor floor_divide.default div.Tensor_mode xlogy.Tensor special_xlog1py.default sub.Tensor add.Tensor"
     " heaviside.default logaddexp.default logaddexp2.default clamp.Tensor logical_and.default logical_or.default"
     " logical_xor.default elu_backward.default gelu_backward.default hardshrink_backward.default"
     " hardsigmoid_backward.default hardswish_backward.default hardtanh_backward.default logit_backward.default"
     " mish_backward.default sigmoid_backward.default silu_backward.default softplus_backward.default"
     " softshrink_backward.default tanh_backward.default lcm.default native_dropout_backward.default",
     strides=layouts.as_elements)
_row("where.self", strides=layouts.chosen)
_row("polar.default complex.default", strides=layouts.together)
_row("leaky_relu_backward.default threshold_backward.default", strides=layouts.second_first)
_row("huber_loss.default index_fill.int_Scalar index_fill.int_Tensor flip.default deg2rad.default rad2deg.default"
     " hardtanh.default relu6.default nan_to_num.default", strides=layouts.like_the_first)
_row("isfinite.default isinf.default", strides=layouts.finite)
_row("clone.default conj_physical.default positive.default", strides=layouts.as_fake)
_row("clamp.default clamp_min.default clamp_max.default elu.default hardshrink.default leaky_relu.default"
     " logit.default polygamma.default softplus.default softshrink.default threshold.default",
     strides=layouts.of_its_elements)
_row("pow.Tensor_Scalar _log_softmax.default tril.default triu.default", strides=layouts.of_one)
_row("angle.default", strides=layouts.angle)
_row("expand.default", strides=layouts.expanded)
_row("ldexp.Tensor", strides=layouts.scaled_by_a_power)
_row("index.Tensor", strides=layouts.indexed)

# ---- strides of results: row by row
_row("log_sigmoid_forward.default im2col.default upsample_nearest1d.default _upsample_nearest_exact1d.default"
     " _softmax_backward_data.default _log_softmax_backward_data.default mse_loss_backward.default"
     " huber_loss_backward.default smooth_l1_loss_backward.default isin.Tensor_Tensor take.default"
     " native_layer_norm_backward.default pow.Scalar masked_fill.Scalar masked_fill.Tensor glu_backward.default"
     " rrelu_with_noise.default rrelu_with_noise_functional.default",
     strides=layouts.row_major)
_row("reflection_pad2d.default reflection_pad3d.default replication_pad2d.default replication_pad3d.default"
     " upsample_nearest3d.default _upsample_nearest_exact3d.default upsample_trilinear3d.default"
     " channel_shuffle.default", strides=layouts.suggested)
_row("reflection_pad2d_backward.default replication_pad2d_backward.default reflection_pad3d_backward.default"
     " replication_pad3d_backward.default", strides=layouts.format_of_the_second)
_row("roll.default", strides=layouts.rolled)

# ---- strides of results: other kernels on a GPU
_row("_log_softmax.default reflection_pad2d.default reflection_pad3d.default replication_pad2d.default"
     " replication_pad3d.default reflection_pad2d_backward.default replication_pad2d_backward.default roll.default"
     " channel_shuffle.default", gpu_strides=layouts.row_major)
_row("_fft_c2c.default", gpu_strides=layouts.fourier_on_a_gpu)
_row("pixel_shuffle.default pixel_unshuffle.default", gpu_strides=layouts.rearranged)
_row("upsample_nearest2d.default _upsample_nearest_exact2d.default upsample_bilinear2d.default"
     " upsample_bicubic2d.default", gpu_strides=layouts.suggested)
_row("native_batch_norm.default _native_batch_norm_legit.default _native_batch_norm_legit.no_stats"
     " _native_batch_norm_legit_functional.default _native_batch_norm_legit_no_training.default"
     " _batch_norm_with_update_functional.default _batch_norm_no_update.default log_sigmoid_forward.default"
     " native_dropout_backward.default max_unpool2d.default _fft_r2c.default"
     " reflection_pad3d_backward.default replication_pad3d_backward.default", gpu_strides=layouts.as_fake)

# ---- strides of results: more of a CPU
_row("native_batch_norm.default _native_batch_norm_legit.default _native_batch_norm_legit.no_stats"
     " _native_batch_norm_legit_functional.default _native_batch_norm_legit_no_training.default"
     " _batch_norm_with_update_functional.default _batch_norm_no_update.default", strides=layouts.batch_norm)
_row("max_unpool2d.default", strides=layouts.max_unpool2d)
_row("_fft_r2c.default", strides=layouts.fourier(keep_last=True))
_row("_fft_c2c.default", strides=layouts.fourier(keep_last=False))
_row("unique_dim.default", strides=layouts.unique(1), sized_by_input=True)
_row("unique_consecutive.default", strides=layouts.unique(3), sized_by_input=True)

# ---- strides of dimensions of size 1 during capture
_row("view.default _unsafe_view.default", captured_strides=size1_strides.of_view)
_row("add.Tensor sub.Tensor mul.Tensor div.Tensor add.Scalar sub.Scalar mul.Scalar div.Scalar",
     captured_strides=size1_strides.with_number)

# ---- random fills: functional form, and the fill in place
for _functional, _fill in (
    ("bernoulli.p", "bernoulli_.float"), ("bernoulli.Tensor", "bernoulli_.Tensor"),
    ("uniform.default", "uniform_.default"), ("normal_functional.default", "normal_.default"),
    ("exponential.default", "exponential_.default"), ("geometric.default", "geometric_.default"),
    ("log_normal.default", "log_normal_.default"), ("cauchy.default", "cauchy_.default"),
    ("random.default", "random_.default"), ("random.to", "random_.to"),
):
    _row(_functional, fills=_fill, strides=layouts.of_the_first)

# ---- data-dependent errors: an index out of range, a divisor that is zero, a matrix that has no inverse
_row("index_select index_add index_copy index_fill index_reduce gather scatter scatter_add scatter_reduce take put"
     " embedding _embedding_bag _embedding_bag_forward_only nll_loss_forward nll_loss2d_forward multi_margin_loss"
     " multilabel_margin_loss_forward binary_cross_entropy masked_scatter max_unpool2d max_unpool3d"
     " bincount repeat_interleave histc histogram _histogramdd_bin_edges _histogramdd_from_bin_cts segment_reduce"
     " _ctc_loss cholesky cholesky_solve cholesky_inverse lu_unpack _linalg_svd _linalg_eigh _linalg_eigvals linalg_eig"
     " linalg_lstsq linalg_pinv linalg_qr multinomial bernoulli", raises=True)
_row("index.Tensor index_put", raises=arguments.looks_up)  # capture knows the first as getitem
_row("floor_divide remainder fmod div.Tensor_mode div.Scalar_mode", raises=arguments.divides_integers)
_row("_assert_scalar _assert_async", asserts=True)

# ... and functions of torch and Python that are made of such operators, under the names that capture knows
_row("getitem setitem take_along_dim embedding_bag cross_entropy nll_loss one_hot floordiv mod ifloordiv imod inverse"
     " linalg_inv linalg_solve linalg_cholesky linalg_eigh linalg_svd linalg_det linalg_matrix_power item", raises=True)

# ---- methods of tensors without effects
_row("size stride dim numel view reshape expand permute transpose t unsqueeze squeeze flatten to type float contiguous"
     " mean sum eq ne lt le gt ge add sub mul div neg abs any all unbind chunk split clone detach type_as", pure=True)

# ---- in place
_row("conj_physical_ fill_ fill_diagonal_ index_fill_ index_put_ masked_fill_ tril_ triu_ zero_ as_strided_ detach_"
     " rename_ requires_grad_ resize_ resize_as_ set_ squeeze_ swapaxes_ swapdims_ t_ transpose_ unsqueeze_",
     writes_equal=True)
_row("resize_ resize_as_ set_", moves_memory=True)

# ---- kernels that eager chooses by size
_row("convolution convolution_backward", kernels_by_size=True)

# ---- costs, measured with this engine's own kernels on one AVX-512 core (7.3 GB/s from memory; benchmarks/memory.py)
for _names, _work in (
    ("sqrt div reciprocal", Work(1.5)), ("tanh log", Work(2.5)), ("rsqrt", Work(3.5)), ("exp exp2", Work(5)),
    ("sigmoid silu", Work(5.5)), ("elu", Work(6)), ("erf", Work(7.5)), ("expm1", Work(9)), ("gelu", Work(9, 1)),
    ("log2 log10 sin cos floor_divide hypot", Work(10)), ("log1p", Work(12)),
    ("tan sinh cosh asin acos atan softplus", Work(15)), ("erfc mish atan2", Work(20)),
    ("asinh acosh atanh", Work(20, 1)), ("pow", Work(33, 2)), ("erfinv", Work(40, 2)), ("fmod", Work(75, 2)),
    ("remainder", Work(75, 1)), ("lgamma digamma", Work(140, 6)),
):
    _row(_names, work=_work)

# ---- kernels that ATen does best
_row("mm addmm bmm baddbmm _int_mm", library="matrix product")
_row("convolution", library="convolution")
_row("_scaled_dot_product_flash_attention_for_cpu _scaled_dot_product_efficient_attention"
     " _scaled_dot_product_cudnn_attention _scaled_dot_product_flash_attention", library="attention")
_row("sort topk", library="sorting")
_row("cumsum", library="scan")
_row("rand randn bernoulli native_dropout", library="random numbers, equal to eager's")
