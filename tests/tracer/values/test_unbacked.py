"""Numbers and sizes that only data tells: in the graph where nothing branches on them, a break where something does."""
from __future__ import annotations

import ptdebug
import pytest
import torch
from ptdebug.tracer.frames.dispatch import reset, stats
from torch.utils._pytree import tree_leaves
from torch.utils.checkpoint import checkpoint

INPUTS = (
    torch.linspace(-2, 3, 12).reshape(3, 4), -torch.ones(3, 4), torch.rand(3, 4), torch.tensor([[1.0, -1, -1, -1]] * 3),
    torch.full((3, 4), 2.0),
)


def same(a, b):
    if isinstance(a, torch.Tensor):
        assert a.dtype == b.dtype and a.shape == b.shape
        torch.testing.assert_close(a, b, equal_nan=True)
    elif isinstance(a, (tuple, list)):
        assert type(a) is type(b) and len(a) == len(b)
        for x, y in zip(a, b):
            same(x, y)
    else:
        assert type(a) is type(b) and a == pytest.approx(b)


def compare(function, inputs=INPUTS):
    """Against eager, exceptions included; returns the statistics."""
    reset()
    compiled = ptdebug.compile(function)
    for x in inputs:
        try:
            wanted = function(x.clone())
        except Exception as error:
            with pytest.raises(type(error)):
                compiled(x.clone())
            continue
        same(compiled(x.clone()), wanted)
    assert not any("internal error" in reason for reason in stats()["reasons"]), stats()
    return stats()


@pytest.mark.parametrize("function", [
    lambda x: x * x.abs().max().item(),
    lambda x: (x + x.argmax().item(), x.argmax().item() + 1),
    lambda x: ((x > 0).any().item(), x + 1),
    lambda x: torch.tanh(x / float(x.abs().max())),
    lambda x: x * int(x.abs().sum()),
    lambda x: x * (x.max().item() / 127.0),
    lambda x: (x[0].tolist(), x * 2),
    lambda x: torch.full((2,), x.sum().item()) + 1,
    lambda x: torch.nonzero(x > 0) * 2 + 1,
    lambda x: torch.tanh(x[x > 0]) * 2,
    lambda x: (x[x > 0].sum(), x[x > 100].mean(), (x[x > 0] > 0.5).sum()),
    lambda x: x[x > 0].max(),  # raises where there is none
    lambda x: torch.unique((x * 2).long()) + 1,
    lambda x: torch.repeat_interleave(x.flatten(), x.flatten().abs().long()) * 2,
    lambda x: torch.masked_select(x, x > 0).exp(),
    lambda x: (x[x.sum(1) > 0] @ torch.ones(4, 2)).relu(),
    lambda x: torch.nn.functional.layer_norm(x[x.sum(1) > 0], (4,)),
    lambda x: x * (x[x > 0].shape[0] / 4),
    lambda x: torch.cat([x[x > 0], x[x < 0]]),
    lambda x: x[torch.nonzero(x > 0)[:, 0]],
    lambda x: torch.where(x > 0),
    lambda x: torch.zeros(x.abs().argmax().item()) + 1,
    lambda x: x[x > 0] + torch.arange(3),  # 1 would broadcast: checked when the graph runs
])
def test_one_graph(function):
    found = compare(function)
    assert (found["graphs"], found["graph_breaks"], found["recompiles"]) == (1, 0, 0), found


@pytest.mark.parametrize("function", [
    lambda x: x + 1 if x.sum().item() > 0 else x - 1,
    lambda x: x * (x.max().item() * 0.1 * 3.0),  # Python rounds twice
    lambda x: (f"{x.sum().item():.3f}", x + 1),
])
def test_what_needs_the_number_breaks(function):
    assert compare(function)["graph_breaks"] > 0


@pytest.mark.parametrize("compute", [
    lambda a: a < a, lambda a: a == a, lambda a: a != a, lambda a: a >= a, lambda a: a - a, lambda a: a * 0,
    lambda a: a / a, lambda a: a < float("inf"), lambda a: str(a + 0),
], ids=range(9))  # fmt: skip
def test_floats_that_no_algebra_knows(compute):
    def read(x):
        return x + 1, str(compute(x.sum().item()))

    compare(read, [torch.full((2,), number) for number in (1.0, float("nan"), float("inf"), -0.0)])


def experts(x):
    out = torch.zeros_like(x)
    for expert in range(3):
        rows, = torch.where(x[:, 0].detach().long() % 3 == expert)
        out.index_add_(0, rows, torch.tanh(x[rows]) * (expert + 1))
    return out


def checkpointed(x):
    return checkpoint(lambda y: y[y > 0].exp().sum() * y.max().item(), x, use_reentrant=False)


def doubled_in_place(x):
    y = x.clone()
    y[y > 0] *= 2
    return y * y[y < 0].sum()


def gradients(function):
    """What is like `function`, and gives the gradient of its tensors, too."""

    def differentiated(run, x):
        x.requires_grad_()
        results = tree_leaves(run(x))
        tensors = [result for result in results if isinstance(result, torch.Tensor) and result.requires_grad]
        sum((t * torch.arange(1.0, t.numel() + 1).view(t.shape)).sum() for t in tensors).backward()
        return [r.detach() if isinstance(r, torch.Tensor) else r for r in results], x.grad

    reset()
    compiled = ptdebug.compile(function)
    for x in INPUTS:
        same(differentiated(compiled, x.clone()), differentiated(function, x.clone()))
    return stats()


@pytest.mark.parametrize("function", [
    lambda x: x * x.detach().abs().max().item(),
    lambda x: (x.sum().item(), x.sin(), x.cos().sum().item()),
    lambda x: x[0] * x[0].tolist()[1],
    lambda x: x.nonzero().shape[0] * x,
    lambda x: (x[x[:, 0] > 0] @ x.t()).relu(),
    lambda x: torch.cat([x[x > 0], x[x <= 0]]).view(3, 4).cos(),
    lambda x: x[x.nonzero(as_tuple=True)].square(),
    lambda x: torch.repeat_interleave(x, (x[:, 0] > 0).long() + 1, dim=0) ** 2,
    lambda x: torch.masked_select(x, x > 0.5).sort().values,
    experts, checkpointed, doubled_in_place,
])  # fmt: skip
def test_one_graph_with_gradients(function):
    found = gradients(function)
    assert (found["graphs"], found["graph_breaks"], found["recompiles"], found["reasons"]) == (1, 0, 0, {}), found


def test_where_an_operator_asks_for_a_size_the_rest_is_compiled():
    found = gradients(lambda x: x.sin()[x > 0].view(-1, 1).matmul(torch.ones(1, 2)).mean())
    assert found["graph_breaks"] == 1, found
    assert not any("eager" in reason for reason in found["reasons"]), found


def test_checks_of_such_numbers_hold_and_raise():
    def zeros(x):
        n = x.abs().sum().long().item()
        torch._check(n >= 0)
        torch._check(n <= 20)
        return torch.zeros(n) + 1

    found = compare(zeros, (*INPUTS, torch.full((3, 4), 10.0)))
    assert found["graph_breaks"] == 0
