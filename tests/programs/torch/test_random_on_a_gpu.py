"""Random numbers of a GPU: compiled code draws eager's, in eager's order, and leaves the generator as eager does."""
# mypy: ignore-errors

from __future__ import annotations

import ptdebug
import pytest
import torch
import torch.nn.functional as F

from tests.devices import GPU

pytestmark = GPU

DRAWING = {
    "dropout": lambda x: F.dropout(x, 0.3) + F.dropout(x * 2, 0.6),
    "dropout of nothing and all": lambda x: (F.dropout(x, 0.0), F.dropout(x, 1.0), F.dropout(x, 0.5)),
    "dropout in place": lambda x: F.dropout(x.clone(), 0.5, inplace=True),
    "channels": lambda x: F.dropout1d(x, 0.4) + F.alpha_dropout(x, 0.3) + F.feature_alpha_dropout(x[None], 0.3)[0],
    "like": lambda x: (torch.rand_like(x), torch.randn_like(x.half()), torch.randint_like(x, 3, 90)),
    "sizes": lambda x: (torch.rand(x.shape[0], 3, device=x.device), torch.randn(5, device=x.device),
                        torch.randint(-9, 9, (7,), device=x.device), torch.randperm(12, device=x.device)),
    "fills": lambda x: (x.clone().uniform_(2, 3), x.clone().normal_(), x.clone().exponential_(2.0),
                        x.clone().bernoulli_(0.3), x.clone().cauchy_(), x.clone().geometric_(0.2),
                        x.clone().log_normal_(), x.long().random_(3, 90)),
    "of probabilities": lambda x: (torch.bernoulli(x.sigmoid()), torch.multinomial(x.abs(), 3), torch.poisson(x.abs()),
                                   torch.normal(x, 2.0), torch.normal(x, x.abs() + 1)),
    "gumbel": lambda x: F.gumbel_softmax(x, hard=True),
    "rrelu": lambda x: F.rrelu(x, training=True),
    "transposed": lambda x: torch.rand_like(x.t()) + F.dropout(x.t(), 0.5),
    "half": lambda x: F.dropout(x.half(), 0.5) + torch.rand_like(x.bfloat16()),
}  # fmt: skip


@pytest.mark.parametrize("name", DRAWING)
def test_draws_eagers_numbers(name):
    function = DRAWING[name]

    def both(f):
        found = []
        for size in ((6, 5), (6, 5), (40, 129)):
            x = torch.linspace(-2, 2, size[0] * size[1], device="cuda").view(size).requires_grad_()
            torch.manual_seed(3)
            made = f(x)
            made = made if isinstance(made, tuple) else (made,)
            loss = sum(m.float().sum() for m in made if m.requires_grad)
            gradient = torch.autograd.grad(loss, x)[0] if isinstance(loss, torch.Tensor) else None
            found.append((*(m.detach() for m in made), gradient, torch.rand(3, device="cuda")))
        return found

    compiled = ptdebug.compile(function)
    for ours, eagers in zip(both(compiled), both(function)):
        assert len(ours) == len(eagers)
        for one, other in zip(ours, eagers):
            torch.testing.assert_close(one, other, rtol=1e-6, atol=1e-6)
    told = ptdebug.stats()["reasons"]
    assert all(reason.startswith("recompile: L['x'].size()") for reason in told), told
