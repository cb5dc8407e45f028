"""Operators whose reference decomposition in torch is used: all overloads of each name.

tests/operators compares each with eager, forward and backward, by its distance to float64.
"""
from __future__ import annotations

BY_TORCH = frozenset(
    """
    addr affine_grid_generator aminmax binary_cross_entropy_with_logits celu channel_shuffle
    col2im count_nonzero deg2rad dot eye frac glu hardshrink heaviside
    im2col isin isneginf isposinf l1_loss linalg_cross log_sigmoid_forward
    logaddexp logaddexp2 logit logspace mish mse_loss multi_margin_loss mv mvlgamma nansum
    new_empty new_full new_ones new_zeros nll_loss_forward nll_loss2d_forward norm
    ones ones_like pixel_shuffle pixel_unshuffle _prelu_kernel rad2deg
    roll rot90 rsub _safe_softmax sgn silu sinc
    smooth_l1_loss softplus special_entr special_log_ndtr special_xlog1py
    split std std_mean stack sum t threshold trace
    tril triu unbind unsafe_split unsafe_split_with_sizes upsample_nearest1d
    upsample_nearest2d upsample_nearest3d
    _upsample_nearest_exact1d _upsample_nearest_exact2d _upsample_nearest_exact3d
    vdot xlogy zeros zeros_like
    _fused_rms_norm _chunk_cat _weight_norm_interface _unsafe_index special_erfcx _unsafe_view _reshape_alias

    addcdiv addcmul clamp_max clamp_min elu fill hardsigmoid hardswish hardtanh leaky_relu lerp masked_fill nan_to_num
    native_layer_norm native_group_norm select_scatter slice_scatter transpose diag_embed

    alias_copy as_strided_copy diagonal_copy expand_copy narrow_copy permute_copy split_with_sizes_copy squeeze_copy
    t_copy transpose_copy unbind_copy unfold_copy unsqueeze_copy view_copy slice_copy select_copy split_copy
    detach_copy

    _native_batch_norm_legit _native_batch_norm_legit_functional _batch_norm_with_update_functional
    _unsafe_masked_index _unsafe_masked_index_put_accumulate _unsafe_index_put
    block_diag diagonal_scatter as_strided_scatter dist pairwise_distance
    upsample_bicubic2d special_ndtr zero renorm

    _log_softmax_backward_data elu_backward gelu_backward
    glu_backward hardswish_backward hardtanh_backward huber_loss_backward leaky_relu_backward
    log_sigmoid_backward mish_backward mse_loss_backward native_dropout_backward
    native_group_norm_backward native_layer_norm_backward _fused_rms_norm_backward _prelu_kernel_backward
    rrelu_with_noise_backward
    silu_backward smooth_l1_loss_backward softplus_backward tanh_backward
    threshold_backward native_batch_norm_backward batch_norm_backward
    diagonal_backward select_backward slice_backward unfold_backward
    """.split()
)
