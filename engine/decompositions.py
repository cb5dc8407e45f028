"""Which ATen operators are rewritten into smaller ones before lowering, and by which rule.

`RULES` names operators whose reference decomposition in torch (`torch._decomp`, `torch._refs`) is as precise and as
fast as eager; the rule is looked up there when the operator is met. An operator that has a lowering of its own is never
decomposed. To add one, add its name; to replace torch's rule, add an entry to `OWN`.
"""
from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch._decomp import decomposition_table
from torch._dispatch.python import enable_python_dispatcher

RULES = frozenset(
    """
    addcdiv addcmul addr alias_copy aminmax affine_grid_generator binary_cross_entropy
    binary_cross_entropy_with_logits celu channel_shuffle clamp_max clamp_min col2im count_nonzero deg2rad
    diag_embed diagonal_copy dot elu expand_copy eye fill frac glu hardshrink hardsigmoid hardswish hardtanh
    heaviside huber_loss im2col index_add index_copy index_fill isin isneginf isposinf l1_loss leaky_relu lerp
    linalg_cross linspace log_sigmoid_forward logaddexp logaddexp2 logit logspace logsumexp masked_fill mish
    mse_loss multi_margin_loss mv mvlgamma nan_to_num nansum native_layer_norm native_group_norm new_empty
    new_full new_ones new_zeros nll_loss_forward nll_loss2d_forward norm ones ones_like pixel_shuffle
    pixel_unshuffle _prelu_kernel rad2deg reflection_pad1d reflection_pad2d reflection_pad3d replication_pad1d
    replication_pad2d replication_pad3d roll rot90 rsub _safe_softmax select_scatter sgn silu sinc
    slice_scatter smooth_l1_loss soft_margin_loss softplus softshrink special_entr special_log_ndtr
    special_xlog1py split squeeze_copy std std_mean stack sum t take threshold trace transpose_copy tril triu
    unbind unfold_copy unsafe_split unsafe_split_with_sizes unsqueeze_copy upsample_bilinear2d
    upsample_linear1d upsample_nearest1d upsample_nearest2d vdot view_copy xlogy zeros zeros_like
    _fused_rms_norm _chunk_cat _weight_norm_interface _unsafe_index special_erfcx _unsafe_view _reshape_alias
    """.split()
)

OWN: dict[Any, Callable[..., Any]] = {}


def rule_for(operator: torch._ops.OpOverload) -> Callable[..., Any] | None:
    """The decomposition of `operator`, or None where it has none or keeps its own kernel."""
    own = OWN.get(operator)
    if own is not None:
        return own
    if operator.namespace == "aten" and operator._schema.name[len("aten::") :] in RULES:
        return decomposition_table.get(operator)
    return None


PYTHON_RULES = frozenset((
    torch.batch_norm, torch.instance_norm, torch.nn.functional.batch_norm, torch.nn.functional.instance_norm,
    torch.nn.functional.one_hot, torch.ops.aten.native_batch_norm.default,
))
"""Functions that C++ takes apart in a way that a graph cannot express: the running statistics of a batch norm change
without its schema saying so, and `one_hot` looks at its data. torch has Python rules for these, which say the same."""


def python_rules(function: Any) -> AbstractContextManager[Any]:
    """The context in which `function` of a captured graph runs while it is traced."""
    return enable_python_dispatcher() if function in PYTHON_RULES else nullcontext()
