"""Arguments that eager refuses and torch's fake kernels let pass, one function for each kind of check.

`traits.py` says which operator has which. Sizes that vary are guarded to be equal; of unbacked ones it is assumed,
with `torch._check`, which the captured graph checks when it runs.
"""
from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

_aten = torch.ops.aten
Args = Sequence[Any]
Check = Callable[[Args, Mapping[str, Any]], str]
"""(arguments, keyword arguments) -> what is wrong with them; "" where nothing is."""


def dimension(args: Args, kwargs: Mapping[str, Any]) -> str:
    """The second argument is a dimension that the tensor has."""
    dim = args[1] if len(args) > 1 else kwargs.get("dim", -1)
    ranks = max(args[0].dim(), 1)
    return "" if -ranks <= dim < ranks else f"dimension {dim} of a tensor of {args[0].dim()}"


def not_empty(args: Args, kwargs: Mapping[str, Any]) -> str:
    """A reduction of one dimension, which has elements."""
    if why := dimension(args, kwargs):
        return why
    dim = args[1] if len(args) > 1 else kwargs.get("dim", -1)
    size = args[0].shape[dim] if args[0].dim() else 1
    return "a dimension without elements" if type(size) is int and size == 0 else ""


def has_elements(args: Args, kwargs: Mapping[str, Any]) -> str:
    """A reduction of all dimensions, where there is something to reduce."""
    return "no elements" if any(type(size) is int and size == 0 for size in args[0].shape) else ""


def is_of(place: int, *dtypes: torch.dtype) -> Check:
    """The argument at `place` has one of these dtypes."""

    def check(args: Args, kwargs: Mapping[str, Any]) -> str:
        dtype = args[place].dtype
        return "" if dtype in dtypes else f"an argument of the dtype {dtype}"

    return check


def boundaries(args: Args, kwargs: Mapping[str, Any]) -> str:
    """Boundaries are a vector."""
    return "" if args[1].dim() == 1 else "boundaries that are no vector"


def sort_stable(args: Args, kwargs: Mapping[str, Any]) -> str:
    """The dimension of `sort.stable`, whose second argument is something else."""
    return dimension((args[0], kwargs.get("dim", -1)), {})


def index_select(args: Args, kwargs: Mapping[str, Any]) -> str:
    """A vector of int32 or int64 selects in a dimension that there is."""
    if args[2].dim() > 1:
        return "an index that is no vector"
    return dimension(args, kwargs) or is_of(2, torch.int32, torch.int64)(args, kwargs)


def index_add(args: Args, kwargs: Mapping[str, Any]) -> str:
    """As index_select, with a source of the size of the other dimensions."""
    if why := dimension(args, kwargs) or is_of(2, torch.int32, torch.int64)(args, kwargs):
        return why
    whole, dim, source = args[0], args[1], args[3]
    if whole.dim() and whole.dim() == source.dim():
        pairs = list(zip(whole.shape, source.shape))
        del pairs[dim]
        if not all(map(_equal, pairs)):
            return "a source of another shape"
    return ""


def index_copy(args: Args, kwargs: Mapping[str, Any]) -> str:
    """As index_select, with an index of int64 only."""
    return dimension(args, kwargs) or is_of(2, torch.int64)(args, kwargs)


def scatters_to(view: Any) -> Check:
    """The source has the shape of the part of the tensor that `view` is: of a slice, a diagonal, ..."""

    def check(args: Args, kwargs: Mapping[str, Any]) -> str:
        part, source = view(args[0], *args[2:], **kwargs), args[1]
        fits = part.dim() == source.dim() and all(map(_equal, zip(part.shape, source.shape)))
        return "" if fits else "a source of another shape"

    return check


def selected(args: Args, kwargs: Mapping[str, Any]) -> str:
    """A position that the dimension has; torch checks it where the size is known."""
    size, position = args[0].shape[args[1]] if args[0].dim() else 0, args[2]
    if _is_unbacked(size) and not _is_unbacked(position):
        torch._check(size > position if position >= 0 else size >= -position)
    return ""


def squeezed(args: Args, kwargs: Mapping[str, Any]) -> str:
    """No check of eager: torch assumes that no unbacked size is 1, and would keep one that is."""
    shape, dims = args[0].shape, args[1] if len(args) > 1 else range(args[0].dim())
    for dim in dims if isinstance(dims, Sequence) else (dims,):
        if -len(shape) <= dim < len(shape) and _is_unbacked(shape[dim]):
            torch._check(shape[dim] != 1)
    return ""


def index_put(args: Args, kwargs: Mapping[str, Any]) -> str:
    """The values broadcast to what the indices select; of masks only the data knows."""
    whole, indices, values = args[:3]
    if any(index is not None and index.dtype in (torch.bool, torch.uint8) for index in indices):
        return ""
    return "" if _broadcasts(values, _aten.index.Tensor(whole, indices)) else "values of another shape"


def alpha_of_celu(args: Args, kwargs: Mapping[str, Any]) -> str:
    """CELU divides by alpha."""
    alpha = args[1] if len(args) > 1 else kwargs.get("alpha", 1.0)
    return "alpha is 0" if isinstance(alpha, (int, float)) and alpha == 0 else ""


def alpha_of_bools(args: Args, kwargs: Mapping[str, Any]) -> str:
    """Booleans are not scaled by a float."""
    of_bools = all(getattr(arg, "dtype", None) is torch.bool for arg in args[:2])
    return "bools times a float" if of_bools and isinstance(kwargs.get("alpha"), float) else ""


def fits_in_place(computed: Any, args: Args, kwargs: Mapping[str, Any]) -> str:
    """Of an operator that writes what `computed` gives to its first argument, element by element."""
    written, others = args[0], [*args[1:], *kwargs.values()]
    tensors = [other for other in others if isinstance(other, torch.Tensor)]
    if not all(_broadcasts(tensor, written) for tensor in tensors):
        return "the result has another shape than the tensor that is written"
    if written.is_complex():
        return ""
    if written.is_floating_point():
        is_complex = any(isinstance(it, complex) for it in others) or any(tensor.is_complex() for tensor in tensors)
        return "a complex result in a tensor of real numbers" if is_complex else ""
    result = computed(*args, **kwargs)
    return "" if torch.can_cast(result.dtype, written.dtype) else f"a {result.dtype} in a tensor of {written.dtype}"


def _broadcasts(tensor: torch.Tensor, to: torch.Tensor) -> bool:
    if tensor.dim() > to.dim():
        return False
    pairs = zip(tensor.shape[::-1], to.shape[::-1])
    return all((type(size) is int and size == 1) or _equal((size, wanted)) for size, wanted in pairs)


def _equal(sizes: tuple[Any, Any]) -> bool:
    if any(map(_is_unbacked, sizes)):
        torch._check(sizes[0] == sizes[1])
        return True
    return bool(sizes[0] == sizes[1])


def _is_unbacked(size: Any) -> bool:
    return isinstance(size, torch.SymInt) and not size.node.has_hint()


# ---- for some data: (arguments, fake result) -> whether the call may raise
def looks_up(args: Sequence[Any], result: Any) -> bool:
    """An index may be out of range; a mask is not."""
    return any(i.meta["val"].dtype not in (torch.bool, torch.uint8) for i in args[1] if i is not None)


def divides_integers(args: Sequence[Any], result: Any) -> bool:
    """An integer divided by 0, but for a divisor that is a constant."""
    known = isinstance(args[1], (int, float)) and args[1] != 0
    return not (known or result.is_floating_point() or result.is_complex())
