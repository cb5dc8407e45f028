"""Nested tensors (jagged): graphs that are compiled whole for any lengths, values and gradients as in eager."""
# mypy: ignore-errors
from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from ptdebug.tracer.runtime.statistics import STATISTICS
from torch.nested._internal.nested_tensor import NestedTensor

from ..checking import Programs
from .test_wrapper_tensors import check, in_eager  # noqa: F401  (a fixture)

OF_ONE = Programs()
WHOLE = Programs()
WEIGHT = torch.linspace(-1.0, 1.0, 20).view(4, 5)


def ragged(*lengths, tracked=False):
    parts = [torch.randn(n, 4) for n in lengths]
    return torch.nested.nested_tensor(parts, layout=torch.jagged, requires_grad=tracked)


def plain(value):
    """Without the ragged sizes, which are others for each tensor."""
    if isinstance(value, (tuple, list)):
        return [plain(part) for part in value]
    if not isinstance(value, NestedTensor):
        return value
    return value._values.detach(), value._offsets, value.requires_grad, value._ragged_idx


@OF_ONE
def pointwise(x):
    return (x * 2).sin() + x.cos() * x


@OF_ONE
def a_product(x):
    return F.softmax(x @ WEIGHT, -1)


@OF_ONE
def values(x):
    return x.values() * 2


@OF_ONE
def sizes(x):
    return x * x.size(0) * x.dim() * x.shape[2], x.shape[0]


@OF_ONE
def views(x):
    return x.view(x.shape[0], x.shape[1], 2, 2).transpose(1, 2) * 2


@OF_ONE
def a_view_of_it(x):
    return x.view(x.size(0), -1, 2, 2)


@OF_ONE
def made_of_values(x):
    return torch.nested.nested_tensor_from_jagged(x.values() * 2, x.offsets()) + x


@OF_ONE
def padded(x):
    return torch.nested.to_padded_tensor(x, 0.0).sum(1) / x.offsets().diff().unsqueeze(-1)


@WHOLE
def many_lengths(compile):
    f = compile(lambda x: F.softmax(x * 2, -1))
    return [plain(f(ragged(*n))) for n in ((2, 3), (3, 4), (5, 1), (1, 1, 1), (2, 2, 2), (7,), (9, 1, 1, 1))]


@WHOLE
def results_have_the_ragged_size_of_what_they_come_from(compile):
    x = ragged(2, 3)
    return plain(compile(lambda x: x * 2)(x) + x)


@WHOLE
def two_of_the_same_lengths(compile):
    f = compile(lambda x, y: x * y)
    return [plain(f(x, x.sin())) for x in (ragged(2, 3), ragged(4, 1, 2), ragged(3, 3))]


@WHOLE
def offsets_beside_their_tensor(compile):
    f = compile(lambda x, o: torch.nested.nested_tensor_from_jagged(x.values() + 1, o) * x)
    return [plain(f(x, x.offsets())) for x in (ragged(2, 3), ragged(4, 1, 2), ragged(3, 3))]


@WHOLE
def layers(compile):
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.LayerNorm(8), torch.nn.ReLU(), torch.nn.Linear(8, 2))
    out = compile(model)(ragged(2, 3)).values()
    out.sum().backward()
    return out, [p.grad for p in model.parameters()]


@WHOLE
def made_of_tensors(compile):
    a, b = torch.randn(2, 3), torch.randn(4, 3)
    made = compile(lambda a, b: torch.nested.nested_tensor([a, b], layout=torch.jagged).values())(a, b)
    return made, plain(compile(lambda a, b: torch.nested.as_nested_tensor([a, b], layout=torch.jagged) * 2)(a, b))


@pytest.mark.parametrize("name", OF_ONE)
def test_a_function_of_a_nested_tensor_is_compiled_whole(name, in_eager):  # noqa: F811
    def program(compile):
        f, found = compile(OF_ONE[name]), []
        for tracked in (False, True):
            for lengths in ((2, 3), (4, 1, 2), (3, 3)):
                x = ragged(*lengths, tracked=tracked)
                out = f(x)
                for part in out if isinstance(out, tuple) else (out,):
                    if isinstance(part, torch.Tensor) and part.requires_grad:
                        (part.values() if isinstance(part, NestedTensor) else part).sum().backward()
                found.append(plain([out, x.grad]))
        return found

    check(program)
    assert not in_eager


@pytest.mark.parametrize("name", WHOLE)
def test_a_program_with_nested_tensors_is_compiled_whole(name, in_eager):  # noqa: F811
    check(WHOLE[name])
    assert not in_eager


def test_the_same_sizes_with_other_offsets_are_not_compiled_again(in_eager):  # noqa: F811
    def program(compile):
        f = compile(lambda x: x * 2)
        return [plain(f(ragged(2, 3))) for _ in range(3)]

    check(program)
    assert not [reason for reason in STATISTICS.reasons if reason.startswith("recompile")]
