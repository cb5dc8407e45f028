"""Calls of PyTorch's own operator database, as functions of tensors."""
from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any
from unittest.mock import patch

import torch
from torch.utils._pytree import tree_flatten, tree_leaves, tree_unflatten

MOST_USED = """
abs add addmm all amax amin any arange argmax argmin argsort baddbmm bmm broadcast_to cat ceil chunk clamp clamp_max
clamp_min clone contiguous cos cumsum diagonal div.no_rounding_mode div.floor_rounding div.trunc_rounding einsum empty
eq erf exp expand expm1 flatten flip floor floor_divide full full_like gather ge gt index_add index_put index_select
isfinite isinf isnan le lerp log log1p logical_and logical_not logical_or logsumexp lt masked_fill masked_select matmul
max.binary max.reduction_no_dim max.reduction_with_dim maximum mean min.binary min.reduction_no_dim
min.reduction_with_dim minimum mm mul narrow ne neg nn.functional.gelu nn.functional.linear nn.functional.pad.constant
nn.functional.relu nn.functional.softplus nonzero ones_like permute pow prod reciprocal remainder repeat
repeat_interleave reshape roll round rsqrt rsub scatter scatter_add select sigmoid sign sin softmax sort split sqrt
squeeze stack std sub sum t tanh to topk transpose tril triu unbind unsqueeze var view where zeros_like __getitem__
nn.functional.conv2d nn.functional.embedding nn.functional.layer_norm nn.functional.batch_norm nn.functional.silu
nn.functional.max_pool2d nn.functional.avg_pool2d nn.functional.cross_entropy log_softmax linalg.vector_norm
""".split()
"""Operators that models and training loops use most, for dtypes beside float32."""


@dataclass(frozen=True)
class Sample:
    """One call of an operator; tensors anywhere in its arguments are inputs, everything else is fixed."""

    operator: str
    number: int
    function: Callable[..., Any]
    leaves: tuple[Any, ...]
    structure: Any
    places: tuple[int, ...]
    tensors: tuple[torch.Tensor, ...]
    tracked: tuple[bool, ...] = ()  # which tensors require grad, where gradients are looked at

    def arguments(self, tensors: Sequence[Any]) -> tuple[Any, Any]:
        """(args, kwargs) of the function with something in the place of each tensor."""
        filled = list(self.leaves)
        for place, tensor in zip(self.places, tensors):
            filled[place] = tensor
        args, kwargs = tree_unflatten(filled, self.structure)
        return args, kwargs

    def call(self, *tensors: Any) -> list[Any]:
        """The results as a flat list."""
        args, kwargs = self.arguments(tensors)
        return tree_leaves(self.function(*args, **kwargs))

    def inputs(self, dtype: torch.dtype | None = None) -> tuple[torch.Tensor, ...]:
        """New inputs, those that are tracked requiring grad; floating-point ones converted to `dtype`."""
        made = copies(self.tensors, dtype)
        for tensor, wanted in zip(made, self.tracked):
            tensor.requires_grad_(wanted)
        return made

    @property
    def name(self) -> str:
        """What a report calls it."""
        return f"{self.operator}[{self.number}]"


def operators(only: Sequence[str] = (), dtype: torch.dtype = torch.float32, device: str = "cpu") -> list[Any]:
    """The entries of the operator database that take `dtype` on a device."""
    with patch.object(torch.backends, "disable_global_flags"):  # its import forbids the process to set them
        import torch.testing._internal.common_methods_invocations as database

    database.wrapper_set_seed = _unseeded  # random entries seed inside the call, where a compiled graph cannot
    found = [op for op in database.op_db if dtype in op.supported_dtypes(device)]
    return [op for op in found if any(fnmatchcase(full_name(op), name) for name in only)] if only else found


def _unseeded(op: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    return op(*args, **kwargs)


def full_name(op: Any) -> str:
    """The name of an entry with its variant."""
    return f"{op.name}.{op.variant_test_name}" if op.variant_test_name else str(op.name)


def differentiable(op: Any, dtype: torch.dtype = torch.float32, device: str = "cpu") -> bool:
    """Whether eager has gradients for an entry."""
    return bool(op.supports_autograd) and dtype in op.supported_backward_dtypes(device)


def samples(
    op: Any, dtype: torch.dtype = torch.float32, grad: bool = False, device: str = "cpu"
) -> Iterator[Sample]:
    """The sample inputs of an entry, each as a function of tensors."""
    torch.manual_seed(0)
    for number, given in enumerate(op.sample_inputs(device, dtype, requires_grad=grad)):
        yield sample_of(op.op, full_name(op), number, (given.input, *given.args), given.kwargs)


def sample_of(function: Callable[..., Any], name: str, number: int, args: tuple[Any, ...], kwargs: Any) -> Sample:
    """A call as a `Sample`: tensors anywhere in the arguments become inputs, everything else is fixed."""
    leaves, structure = tree_flatten((args, kwargs))
    places = tuple(i for i, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor))
    tensors = copies([leaves[i].detach() for i in places])  # the database changes some after it has given them
    tracked = tuple(leaves[i].requires_grad for i in places)
    return Sample(name, number, function, tuple(leaves), structure, places, tensors, tracked if any(tracked) else ())


def copies(tensors: Sequence[torch.Tensor], dtype: torch.dtype | None = None) -> tuple[torch.Tensor, ...]:
    """Copies with the same strides and offsets, those that share memory sharing it again.

    With `dtype`, floating-point tensors are converted to it, and complex ones to the complex dtype of that size.
    """
    storages: dict[tuple[int, torch.dtype], torch.Tensor] = {}
    made = []
    for t in tensors:
        if t.layout is not torch.strided or t.is_quantized:
            made.append(t.clone())
            continue
        key = (t.untyped_storage()._cdata, t.dtype)
        if key not in storages:
            count = t.untyped_storage().nbytes() // t.element_size()
            flat = torch.empty(0, dtype=t.dtype, device=t.device).set_(t.untyped_storage(), 0, (count,), (1,)).clone()
            storages[key] = flat if dtype is None else flat.to(_converted(t.dtype, dtype))
        copy = storages[key].as_strided(t.shape, t.stride(), t.storage_offset())
        copy = torch._conj(copy) if t.is_conj() else copy
        made.append(torch._neg_view(copy) if t.is_neg() else copy)
    return tuple(made)


def _converted(old: torch.dtype, wanted: torch.dtype) -> torch.dtype:
    return wanted if old.is_floating_point else wanted.to_complex() if old.is_complex else old
