"""What the program converts to another dtype is rounded first: bit for bit what eager has."""
from __future__ import annotations

from collections.abc import Callable

import ptdebug
import pytest
import torch
import torch.nn.functional as F

Function = Callable[[torch.Tensor], torch.Tensor]
half, bfloat16, float32 = torch.float16, torch.bfloat16, torch.float32

CASTS: dict[str, Function] = {
    "float": lambda x: (x.to(half) * 1000).float(),
    "double": lambda x: (x.half() * 1000).double(),
    "to, and on": lambda x: (x.half() * 1000).to(float32) * 1e-3,
    "type": lambda x: (x.half() * 1000).type(float32),
    "type_as": lambda x: (x.half() * 1000).type_as(x),
    "to as another": lambda x: (x.half() * 1000).to(x),
    "a function": lambda x: torch.Tensor.float(torch.Tensor.half(x) * 1000),
    "bfloat16": lambda x: (x.bfloat16() * 1.001).float(),
    "half to bfloat16": lambda x: (x.half() * 1000).bfloat16(),
    "bfloat16 to half": lambda x: (x.bfloat16() * 1.01).half(),
    "eight bits": lambda x: x.to(torch.float8_e4m3fn).float(),
    "there and back": lambda x: x.half().float(),
    "twice": lambda x: ((x.half() * 1000).float() / 1000).half().float(),
    "through a view": lambda x: (x.half() * 1000).view(3, 1).t().float(),
    "beside what is not cast": lambda x: torch.where(x > 1, (x.half() * 1000).float(), x),
    "sum": lambda x: (x.half() * 1000).sum(dtype=float32),
    "mean": lambda x: (x.half() * 1000).mean(dtype=float32),
    "cumsum": lambda x: (x.half() * 1000).cumsum(0, dtype=float32),
    "norm": lambda x: torch.linalg.vector_norm(x.half() * 1000, dtype=float32),
    "copy_": lambda x: torch.empty(3).copy_(x.half() * 1000),
    "to a complex dtype": lambda x: (x.half() * 1000).to(torch.complex64).real,
}  # fmt: skip


@pytest.mark.parametrize("name", CASTS)
def test_a_conversion_of_the_program_rounds(name: str) -> None:
    x = torch.tensor([100.0, 1.0, 0.1234567])
    torch.testing.assert_close(ptdebug.compile(CASTS[name])(x), CASTS[name](x), rtol=0, atol=0, equal_nan=True)


def test_a_softmax_in_another_dtype_gets_rounded_numbers() -> None:
    def attend(x: torch.Tensor) -> torch.Tensor:
        return F.softmax(x.bfloat16() * 3.001, dim=-1, dtype=float32)

    x = torch.linspace(1, 8, 40)
    torch.testing.assert_close(ptdebug.compile(attend)(x), attend(x), rtol=1e-6, atol=1e-7)


def test_gradients_through_conversions() -> None:
    def loss(x: torch.Tensor) -> torch.Tensor:
        return (x * (x.half() * 1000).float().softmax(-1)).sum()

    found = []
    for function in (loss, ptdebug.compile(loss)):
        x = torch.tensor([60.0, 59.99, 2.0], requires_grad=True)
        function(x).backward()
        found.append(x.grad)
    torch.testing.assert_close(found[0], found[1])
