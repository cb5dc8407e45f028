"""Checks that compiled and eager give the same bits in bfloat16. They do not: `ptdebug bisect` says why."""
import torch


def score(x, w, b):
    h = torch.nn.functional.silu(x * w + b)
    h = h / (h.square().mean(-1, keepdim=True) + 1e-6).sqrt()
    return (h * w).softmax(-1)


torch.manual_seed(0)
x, w, b = (torch.randn(8, 64).bfloat16() for _ in range(3))
expected = score(x, w, b)
got = torch.compile(score)(x, w, b)
print("largest difference", (got - expected).abs().max().item())
assert torch.equal(got, expected), "compiled and eager differ"
