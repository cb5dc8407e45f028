"""Steps of training on a GPU, dropout included: losses, gradients, statistics and random numbers are eager's."""
# mypy: ignore-errors

from __future__ import annotations

import copy

import ptdebug
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from tests.devices import GPU

from .test_many_models import DECODER, ENCODER, PICTURE, ids, small

pytestmark = GPU
transformers = pytest.importorskip("transformers")

STEPS = 3


class Residual(nn.Module):
    """Convolutions with batch norms, whose statistics move, and dropout of whole channels."""

    def __init__(self):
        super().__init__()
        self.stem, self.inner = nn.Conv2d(3, 16, 3, stride=2, padding=1), nn.Conv2d(16, 16, 3, padding=1, bias=False)
        self.norms = nn.ModuleList(nn.BatchNorm2d(16) for _ in range(2))
        self.drop, self.head = nn.Dropout2d(0.2), nn.Linear(16, 10)

    def forward(self, pixel_values):
        x = F.relu(self.norms[0](self.stem(pixel_values)))
        x = F.max_pool2d(F.relu(x + self.norms[1](self.drop(self.inner(x)))), 2)
        return (self.head(F.dropout(x.mean((2, 3)), 0.1, self.training)),)


def pictures(size=32):
    return {"pixel_values": torch.randn(4, 3, size, size)}


def tokens():
    return {"input_ids": ids(2, 12)}


def of(name, make, inputs):
    return pytest.param(make, inputs, id=name)


MODELS = [
    of("BERT", lambda: small("BertForMaskedLM", ENCODER | {"attention_probs_dropout_prob": 0.0}), tokens),
    of("GPT-2", lambda: small("GPT2LMHeadModel", {"vocab_size": 90, "n_embd": 32, "n_layer": 2, "n_head": 4,
                                                  "use_cache": False, "attn_pdrop": 0.0}), tokens),
    of("Llama", lambda: small("LlamaForCausalLM", DECODER), tokens),
    of("T5", lambda: small("T5EncoderModel", {"vocab_size": 90, "d_model": 32, "d_kv": 8, "d_ff": 48,
                                              "num_layers": 2, "num_heads": 4}), tokens),
    of("ViT", lambda: small("ViTForImageClassification", ENCODER | PICTURE | {"hidden_dropout_prob": 0.1}), pictures),
    of("ConvNeXt", lambda: small("ConvNextForImageClassification", {"hidden_sizes": [8, 16, 24, 32],
                                                                    "depths": [1, 1, 1, 1]}), pictures),
    of("ResNet", lambda: small("ResNetForImageClassification", {"embedding_size": 8, "hidden_sizes": [8, 16],
                                                                "depths": [1, 1], "layer_type": "basic"}), pictures),
    of("residual", Residual, pictures),
]  # fmt: skip


def trained(model, call, given):
    """Losses, then gradients, buffers and parameters of the last step, and the next random numbers."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    torch.manual_seed(1)
    losses = []
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss = (call(**given)[0].float() ** 2).mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    gradients = {name: p.grad for name, p in model.named_parameters() if p.grad is not None}
    return losses, gradients, dict(model.state_dict()), torch.rand(4, device="cuda")


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["float32", "bfloat16"])
@pytest.mark.parametrize("make, inputs", MODELS)
def test_steps_are_eagers(make, inputs, dtype, tmp_path):
    torch.manual_seed(0)
    model = make().cuda().to(dtype).train()
    given = {key: value.cuda().to(dtype) if value.is_floating_point() else value.cuda()
             for key, value in inputs().items()}
    other = copy.deepcopy(model)
    exact = copy.deepcopy(model).double()
    expected = trained(model, model, given)
    with ptdebug.record("recording", str(tmp_path)) as recording:
        found = trained(other, ptdebug.compile(other), given)
    compiles = recording.compiles()
    assert {(c.status, c.reason) for c in compiles} == {("compiled", "")}, "kernels, not a fallback"
    assert torch.equal(found[-1], expected[-1]), "as many random numbers were drawn"
    wide = {key: value.double() if value.is_floating_point() else value for key, value in given.items()}
    reference = trained(exact, exact, wide)
    for ours, eagers, right in zip(_flat(found), _flat(expected), _flat(reference)):
        _check(ours, eagers, right)


def _flat(seen):
    losses, gradients, state, _ = seen
    return [*losses, *gradients.values(), *state.values()]


def _check(ours, eagers, right):
    """As far from float64 as eager is, twice over, and some roundings of the largest value."""
    assert (ours.dtype, ours.shape) == (eagers.dtype, eagers.shape)
    if not ours.dtype.is_floating_point:
        assert torch.equal(ours, eagers)
        return
    off, eagers_off = ((t.double() - right).abs().max() for t in (ours, eagers))
    unit = torch.finfo(ours.dtype).eps * right.abs().max().clamp_min(1e-4)
    assert off <= 3 * eagers_off + 16 * unit, (off.item(), eagers_off.item(), unit.item())
