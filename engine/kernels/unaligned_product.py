"""A matrix product with a dense result whose rows are no multiple of 16 bytes, at a GPU's full speed.

A GPU's libraries copy tiles by 16 bytes, and take a kernel three to seven times slower where rows are not aligned to
that: the logits of a vocabulary of 50257 words. Two ways around it, neither of which needs other memory of that size:

- The result's rows are misaligned, `left` lies by rows and `right` by columns. Of 16-bit rows of odd length, each
  eighth begins at the same place of a piece of 16 bytes. So it is computed in (at most) eight products, each of every
  eighth row, and of the columns that are whole pieces there. What is left are a few columns at both ends, one thin
  product.
- `left` lies by columns, and has a number of rows that is no multiple: the last rows are a product of their own.
"""
from __future__ import annotations

from math import gcd

import torch

_LIBRARY = torch.library.Library("ptdebug", "FRAGMENT")
_LIBRARY.define("unaligned_product(Tensor left, Tensor right, Tensor? bias=None) -> Tensor")

PIECE = 16  # bytes
BIAS_ROW = 64  # bytes: with rows that are multiples of only 16 a product takes a seventh longer
FEWEST = 16  # rows of each of the interleaved products


def unaligned_product(left: torch.Tensor, right: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
    """`left @ right (+ bias)`, dense; the bias is one of each column, or of any shape where `left` lies by columns."""
    out = left.new_empty((left.shape[0], right.shape[1]))
    with torch.no_grad():  # a result given by `out=` has no gradient
        if left.stride(0) == 1 and left.stride(1) != 1:
            _last_rows_apart(left, right, bias, out)
        else:
            _interleaved(left, right, bias, out)
    return out


def interleaving(columns: int, itemsize: int) -> int:
    """After how many dense rows of so many columns one begins at the same place of a piece."""
    piece = PIECE // itemsize
    return piece // gcd(columns, piece)


def _last_rows_apart(left: torch.Tensor, right: torch.Tensor, bias: torch.Tensor | None, out: torch.Tensor) -> None:
    whole = left.shape[0] - left.shape[0] % (PIECE // left.itemsize)
    for rows in (slice(0, whole), slice(whole, left.shape[0])):
        by_rows = bias is not None and bias.dim() == 2 and bias.shape[0] != 1
        _multiply(left[rows], right, bias[rows] if bias is not None and by_rows else bias, out[rows])


def _interleaved(left: torch.Tensor, right: torch.Tensor, bias: torch.Tensor | None, out: torch.Tensor) -> None:
    columns, piece = out.shape[1], PIECE // out.itemsize
    every = interleaving(columns, out.itemsize)
    if columns < 2 * piece or left.shape[0] < FEWEST * every:  # the weight would be read several times for little
        _multiply(left, right, bias, out)
        return
    if bias is not None and out.itemsize == 2:  # exact: one more term of each sum, which is rounded once
        left, right, bias = *_with_bias(left, right, bias), None
    ends = _ends(right, piece)
    thin = _multiply(left, ends, None if bias is None else torch.cat([bias[:piece], bias[-piece:]]))
    out[:, :piece].copy_(thin[:, :piece])
    out[:, -piece:].copy_(thin[:, piece:])
    for row in range(every):
        start = -row * columns % piece
        part = slice(start, columns - (columns - start) % piece)
        _multiply(left[row::every], right[:, part], None if bias is None else bias[part], out[row::every, part])


def _ends(right: torch.Tensor, piece: int) -> torch.Tensor:
    """The first and the last columns."""
    rows = right.t()
    return torch.cat([rows[:piece], rows[-piece:]]).t()


def _with_bias(left: torch.Tensor, right: torch.Tensor, bias: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Both matrices with one more term for each sum, the bias times one, and zeros that keep rows well aligned."""
    more = BIAS_ROW // left.itemsize
    ones, biases = left.new_zeros((left.shape[0], more)), right.new_zeros((right.shape[1], more))
    ones[:, 0] = 1
    biases[:, 0] = bias
    return torch.cat([left, ones], 1), torch.cat([right.t(), biases], 1).t()


def _multiply(
    left: torch.Tensor, right: torch.Tensor, bias: torch.Tensor | None, out: torch.Tensor | None = None
) -> torch.Tensor:
    return torch.mm(left, right, out=out) if bias is None else torch.addmm(bias, left, right, out=out)


def _result(left: torch.Tensor, right: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
    return left.new_empty((left.shape[0], right.shape[1]))


_LIBRARY.impl("unaligned_product", unaligned_product, "CompositeExplicitAutograd")
_LIBRARY.impl("unaligned_product", _result, "Meta")

OPERATOR = torch.ops.ptdebug.unaligned_product.default
"""The operator by which graphs call it."""
