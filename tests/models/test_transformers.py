"""Real models with random weights: captured whole, and no further from float64 than eager is, times two."""
from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any

import ptdebug
import pytest
import torch

transformers = pytest.importorskip("transformers")


def bert() -> tuple[torch.nn.Module, dict[str, Any]]:
    config = transformers.BertConfig(
        vocab_size=500, hidden_size=64, num_hidden_layers=2, num_attention_heads=4, intermediate_size=128
    )
    ids = torch.randint(0, 500, (2, 24))
    return transformers.BertModel(config), {"input_ids": ids, "attention_mask": torch.ones_like(ids)}


def gpt2() -> tuple[torch.nn.Module, dict[str, Any]]:
    config = transformers.GPT2Config(vocab_size=500, n_positions=64, n_embd=64, n_layer=2, n_head=4)
    return transformers.GPT2LMHeadModel(config), {"input_ids": torch.randint(0, 500, (2, 24)), "use_cache": False}


def t5_encoder() -> tuple[torch.nn.Module, dict[str, Any]]:
    config = transformers.T5Config(vocab_size=500, d_model=64, d_kv=16, d_ff=128, num_layers=2, num_heads=4)
    return transformers.T5EncoderModel(config), {"input_ids": torch.randint(0, 500, (2, 24))}


def resnet() -> tuple[torch.nn.Module, dict[str, Any]]:
    config = transformers.ResNetConfig(
        embedding_size=16, hidden_sizes=[16, 32], depths=[1, 2], layer_type="basic", num_labels=10
    )
    return transformers.ResNetForImageClassification(config), {"pixel_values": torch.randn(2, 3, 64, 64)}


MODELS: dict[str, Callable[[], tuple[torch.nn.Module, dict[str, Any]]]] = {
    "bert": bert, "gpt2": gpt2, "t5_encoder": t5_encoder, "resnet": resnet,
}


def tensors(output: Any) -> Iterator[tuple[str, torch.Tensor]]:
    for name, value in output.items():
        if isinstance(value, torch.Tensor):
            yield name, value


@pytest.mark.parametrize("name", MODELS)
def test_a_model_is_one_graph_and_as_exact_as_eager(name, tmp_path):
    torch.manual_seed(0)
    model, inputs = MODELS[name]()
    model.eval()
    wide = {k: v.double() if isinstance(v, torch.Tensor) and v.is_floating_point() else v for k, v in inputs.items()}
    before = ptdebug.stats()
    with torch.no_grad():
        exact = dict(tensors(copy.deepcopy(model).double()(**wide)))
        eager = model(**inputs)
        compiled = ptdebug.compile(model)
        with ptdebug.record("recording", str(tmp_path)) as recording:
            for _ in range(2):
                ours = compiled(**inputs)
        assert [(c.status, c.reason) for c in recording.compiles()] == [("compiled", "")], "kernels, not a fallback"
    after = ptdebug.stats()
    assert after["graphs"] - before["graphs"] == 1
    assert after["graph_breaks"] == before["graph_breaks"]
    assert type(ours) is type(eager)
    assert [k for k, _ in tensors(ours)] == [k for k, _ in tensors(eager)]
    for key, expected in tensors(eager):
        got = ours[key]
        assert (got.shape, got.dtype, got.stride()) == (expected.shape, expected.dtype, expected.stride())
        allowed = 2 * (expected - exact[key]).abs().max().item() + 1e-6 * exact[key].abs().max().item()
        assert (got - exact[key]).abs().max().item() <= allowed


def test_another_batch_size_and_a_third_compile_once_more_and_no_more():
    torch.manual_seed(0)
    model, _ = bert()
    model.eval()
    compiled = ptdebug.compile(model)
    graphs = []
    with torch.no_grad():
        for batch in (2, 3, 5, 7):
            ids = torch.randint(0, 500, (batch, 16))
            torch.testing.assert_close(compiled(ids).last_hidden_state, model(ids).last_hidden_state)
            graphs.append(ptdebug.stats()["graphs"])
    assert [g - graphs[0] for g in graphs] == [0, 1, 1, 1]
