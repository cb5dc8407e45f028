"""What a matrix product on a GPU takes, by the alignment of its rows: estimates, from measurements on an H100."""
from __future__ import annotations

from collections.abc import Iterable
from math import gcd
from typing import Any

import torch

PIECE = 16  # bytes that a tile is copied by
RATES = {
    2: {16: 650e12, 8: 250e12, 4: 245e12, 2: 105e12},
    4: {16: 345e12, 8: 170e12, 4: 130e12},
}
"""Operations in a second, by the size of an element and by the bytes that rows are aligned to."""
MEMORY = 2.4e12  # bytes read or written in a second
UNKNOWN = 1024  # what counts for a size that depends on data
LAUNCH = 3e-6  # seconds of a kernel that does next to nothing


def product_time(values: Iterable[torch.Tensor], alignment: int, again: int = 0) -> float:
    """Seconds of a product, of matrices `values` (left, right, result), where all rows are aligned to `alignment`;
    `again` bytes are read more than once."""
    left, right, result = values
    rates = RATES[result.itemsize]
    work = 2 * result.numel() * left.shape[1] / rates.get(alignment, max(rates.values()))
    return LAUNCH + max(work, (again + sum(bytes_of(v) for v in (left, right, result))) / MEMORY)


def copy_time(value: torch.Tensor) -> float:
    """Seconds of copying a tensor."""
    return LAUNCH + 2 * bytes_of(value) / MEMORY


def alignment(*values: torch.Tensor) -> int:
    """The bytes to which all rows (or columns, where it lies by columns) of matrices are aligned, 16 at most."""
    aligned = PIECE
    for value in values:
        length, step = value.shape[-1], value.stride(0)
        if value.stride(0) == 1 and value.stride(1) != 1:
            length, step = value.shape[0], value.stride(1)
        aligned = gcd(aligned, length * value.itemsize, step * value.itemsize)
    return aligned


def with_hints(value: torch.Tensor) -> torch.Tensor:
    """A tensor without memory of the same layout, where the sizes that vary have the values that they had."""
    numbers = [[size.node.hint if isinstance(size, torch.SymInt) else size for size in sizes]
               for sizes in (value.shape, value.stride())]
    shape, stride = ([UNKNOWN if n is None else n for n in given] for given in numbers)
    return torch.empty_strided(shape, stride, dtype=value.dtype, device="meta")


def bytes_of(value: torch.Tensor) -> int:
    """The bytes of all elements."""
    return value.numel() * value.itemsize


def by_tensor_cores(dtype: torch.dtype) -> bool:
    """Whether products of a dtype run on tensor cores: float32 only where the program allows TF32."""
    if dtype in (torch.float16, torch.bfloat16):
        return True
    if dtype is not torch.float32:
        return False
    settings: Any = torch._C
    try:
        return bool(settings._get_cublas_allow_tf32())
    except RuntimeError:  # set by the newer interface, which the older one does not read
        return True


__all__ = ["LAUNCH", "PIECE", "alignment", "by_tensor_cores", "bytes_of", "copy_time", "product_time", "with_hints"]
