"""Functions of torch that are traced in another form: their own code reads data, or defines a class.

Each form computes what torch's function computes, operator by operator. A condition on data for which torch's function
raises becomes an operator that raises when the graph runs; the call is then rerun in eager.
"""
from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch.distributions import constraints

from ...breaks.reasons import Reason
from ...breaks.unsupported import Unsupported
from ..core.base import Value
from ..core.constant import constant
from ..core.handlers import NAMED, handles
from ..core.registry import from_python
from .tensor import TensorValue
from .tensor_methods import METHODS

if TYPE_CHECKING:
    from ..core.base import Translator

Args = Sequence[Value]
Kwargs = Mapping[str, Value]

MOST_PLACES = 4096  # `combinations` keeps it as a constant


# ---- statistics ------------------------------------------------------------------------------------------------------
def _cov(input: torch.Tensor, *, correction: int = 1) -> torch.Tensor:
    """Without weights, as `cov` in aten/src/ATen/native/Correlation.cpp."""
    rows = input if input.dim() == 2 else input.view(1, -1)
    count = rows.size(1)
    centered = rows - (rows.sum(1) / count).unsqueeze(1)
    return torch.true_divide(torch.mm(centered, centered.t().conj()), count - correction).squeeze()


@handles(torch.cov)
def _cov_handler(tx: Translator, args: Args, kwargs: Kwargs) -> Value:
    """Weighted, or with no degree of freedom left (about which torch warns), it is torch's own."""
    named = {k: v for k, v in kwargs.items() if not v.is_constant() or v.as_constant() is not None}
    given = args[0] if args else named.pop("input", None)
    if isinstance(given, TensorValue) and set(named) <= {"correction"} and len(args) < 2:
        fake, lost = given.fake, named["correction"].as_constant() if named else 1
        count = fake.shape[-1] if fake.dim() else 1
        if fake.dim() <= 2 and fake.dtype != torch.bool and type(count) is int and count > lost:
            return tx.inline(from_python(tx, _cov), [given], named)
    return tx.graph.call(torch.cov, args, kwargs, tx)


def _corrcoef(input: torch.Tensor) -> torch.Tensor:
    """As `corrcoef` in aten/src/ATen/native/Correlation.cpp."""
    c = torch.cov(input)
    if c.dim() == 0:
        return c / c
    d = c.diag()
    deviation = torch.sqrt(torch.real(d) if d.is_complex() else d)
    c = c / deviation.view(-1, 1)
    c = c / deviation.view(1, -1)
    return torch.complex(c.real.clip(-1, 1), c.imag.clip(-1, 1)) if c.is_complex() else c.clip(-1, 1)


@handles(torch.corrcoef)
def _corrcoef_handler(tx: Translator, args: Args, kwargs: Kwargs) -> Value:
    return tx.inline(from_python(tx, _corrcoef), args, kwargs)


# ---- indices and dimensions that depend on a size only ---------------------------------------------------------------
def _chosen(input: torch.Tensor, places: list[list[int]], count: int) -> torch.Tensor:
    return input[torch.tensor(places, dtype=torch.int64, device=input.device).view(-1, count)]


@handles(torch.combinations)
def _combinations(tx: Translator, args: Args, kwargs: Kwargs) -> Value:
    """With a constant index; torch's own selects with a mask, which makes the size of the result data-dependent."""
    named = dict(zip(("input", "r", "with_replacement"), args)) | dict(kwargs)
    given = named.get("input")
    length = given.fake.shape[0] if isinstance(given, TensorValue) and given.fake.dim() == 1 else None
    chosen = named["r"].as_constant() if "r" in named else 2
    again = named["with_replacement"].as_constant() if "with_replacement" in named else False
    if given is not None and type(length) is int and type(chosen) is int and chosen > 0:
        count = math.comb(length + chosen - 1 if again else length, chosen)
        if count * chosen <= MOST_PLACES:
            choose = itertools.combinations_with_replacement if again else itertools.combinations
            places = [list(place) for place in choose(range(length), chosen)]
            return tx.inline(from_python(tx, _chosen), [given, from_python(tx, places), constant(chosen)], {})
    return tx.graph.call(torch.combinations, args, kwargs, tx)


@handles(torch.unique_consecutive)
def _unique_consecutive(tx: Translator, args: Args, kwargs: Kwargs) -> Value:
    """With a non-negative dimension: torch's fake kernel reads -1 as all dimensions."""
    named = dict(zip(("input", "return_inverse", "return_counts", "dim"), args)) | dict(kwargs)
    given, dim = named.pop("input", None), named.get("dim")
    if isinstance(given, TensorValue) and dim is not None and type(dim.as_constant()) is int and given.fake.dim():
        named["dim"] = constant(dim.as_constant() % given.fake.dim())
        return tx.graph.call(torch.unique_consecutive, [given], named, tx)
    return tx.graph.call(torch.unique_consecutive, args, kwargs, tx)


METHODS["unique_consecutive"] = lambda tx, self, args, kwargs: _unique_consecutive(tx, [self, *args], kwargs)


# ---- losses ----------------------------------------------------------------------------------------------------------
def _gaussian_nll_loss(
    input: torch.Tensor, target: torch.Tensor, var: Any, full: bool = False, eps: float = 1e-6, reduction: str = "mean"
) -> torch.Tensor:
    """As in torch/nn/functional.py, except for how a negative variance is found."""
    if isinstance(var, float):
        if var < 0:
            raise ValueError("var has negative entry/entries")
        var = var * torch.ones_like(input)
    else:
        torch._assert_async(torch.logical_not(torch.any(var < 0)))
    if var.size() != input.size():
        if input.size()[:-1] == var.size():
            var = torch.unsqueeze(var, -1)
        elif input.ndim != var.ndim or sum(y for x, y in zip(input.size(), var.size()) if x != y) != 1:
            raise ValueError("var is of incorrect size")
    if reduction != "none" and reduction != "mean" and reduction != "sum":
        raise ValueError(reduction + " is not valid")
    var = var.clone()
    with torch.no_grad():
        var.clamp_(min=eps)
    loss = 0.5 * (torch.log(var) + (input - target) ** 2 / var)
    if full:
        loss += 0.5 * math.log(2 * math.pi)
    return loss.mean() if reduction == "mean" else loss.sum() if reduction == "sum" else loss


@handles(F.gaussian_nll_loss)
def _gaussian_nll_loss_handler(tx: Translator, args: Args, kwargs: Kwargs) -> Value:
    tensors = [value for value in (*args, *kwargs.values()) if isinstance(value, TensorValue)]
    # Without a rerun the graph would raise another error than torch's function. On a GPU, an assert would leave the
    # device unusable.
    if not tx.trace.options.run_again or any(tensor.fake.device.type != "cpu" for tensor in tensors):
        return tx.graph.call(F.gaussian_nll_loss, args, kwargs, tx)
    return tx.inline(from_python(tx, _gaussian_nll_loss), args, kwargs)


# ---- arguments of distributions --------------------------------------------------------------------------------------
def _is_symmetric(constraint: Any, value: torch.Tensor) -> torch.Tensor:
    """As in torch/distributions/constraints.py, where only the shape decides what is compared."""
    rows, columns = value.shape[-2:]
    if rows != columns:
        return torch.full(value.shape[:-2], False, dtype=torch.bool, device=value.device)
    return torch.isclose(value, value.mT, atol=1e-6).all(-2).all(-1)


def _is_positive_definite(constraint: Any, value: torch.Tensor) -> torch.Tensor:
    """As there, except that both answers are computed before one is selected."""
    rows, columns = value.shape[-2:]
    if rows != columns:
        return torch.full(value.shape[:-2], False, dtype=torch.bool, device=value.device)
    symmetric = torch.isclose(value, value.mT, atol=1e-6).all(-2).all(-1)
    return torch.where(symmetric.all(), torch.linalg.cholesky_ex(value).info.eq(0), symmetric)


def _is_positive_semidefinite(constraint: Any, value: torch.Tensor) -> torch.Tensor:
    """As there; a matrix that is not symmetric need not have eigenvalues."""
    rows, columns = value.shape[-2:]
    if rows != columns:
        return torch.full(value.shape[:-2], False, dtype=torch.bool, device=value.device)
    symmetric = torch.isclose(value, value.mT, atol=1e-6).all(-2).all(-1)
    eigenvalues = torch.linalg.eigvalsh(torch.where(symmetric.all(), value, 0))
    return torch.where(symmetric.all(), eigenvalues.ge(0).all(-1), symmetric)


def _traced_as(function: Any, form: Any) -> None:
    handles(function)(lambda tx, args, kwargs: tx.inline(from_python(tx, form), args, kwargs))


_traced_as(constraints._Symmetric.check, _is_symmetric)
_traced_as(constraints._PositiveDefinite.check, _is_positive_definite)
_traced_as(constraints._PositiveSemidefinite.check, _is_positive_semidefinite)


# ---- masks -----------------------------------------------------------------------------------------------------------
def _with_identity(op: Any, input: torch.Tensor, mask: torch.Tensor | None, *args: Any) -> torch.Tensor:
    """As in torch/masked/_ops.py, for a tensor that is not a MaskedTensor."""
    if mask is None:
        return input
    masked = torch.masked._ops
    return masked._where(
        masked._input_mask(input, mask=mask), input, masked._reduction_identity(op.__name__, input, *args)
    )


def _combine_input_and_mask(tx: Translator, args: Args, kwargs: Kwargs) -> Value:
    """Without torch's local class, which is for tensors that hold their mask."""
    if args[1].python_type() in (torch.Tensor, torch.nn.Parameter):
        return tx.inline(from_python(tx, _with_identity), args, kwargs)
    raise Unsupported(Reason.OPCODE, detail="a class statement inside the function")


NAMED["torch.masked._ops", "_combine_input_and_mask"] = _combine_input_and_mask
