"""Models of the transformers package with random weights: one graph, the same output as eager."""
from __future__ import annotations

import os
from typing import Any

import pytest
import torch

os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
transformers = pytest.importorskip("transformers")

SMALL = {
    "vocab_size": 99, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48,
    "max_position_embeddings": 64,
}  # fmt: skip
IDS = torch.arange(24).reshape(2, 12) % 99
MASK = torch.ones(2, 12, dtype=torch.long)
MASK[1, 8:] = 0
IMAGE = torch.linspace(-1, 1, 2 * 3 * 32 * 32).reshape(2, 3, 32, 32)
IMAGES = {
    "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48, "image_size": 32,
    "patch_size": 8,
}  # fmt: skip


def bert() -> tuple[Any, dict[str, Any]]:
    return transformers.BertForMaskedLM(transformers.BertConfig(**SMALL)), {"input_ids": IDS, "attention_mask": MASK}


def gpt2() -> tuple[Any, dict[str, Any]]:
    config = transformers.GPT2Config(vocab_size=99, n_positions=64, n_embd=32, n_layer=2, n_head=4, use_cache=False)
    return transformers.GPT2LMHeadModel(config), {"input_ids": IDS}


def t5_encoder() -> tuple[Any, dict[str, Any]]:
    config = transformers.T5Config(vocab_size=99, d_model=32, d_kv=8, d_ff=48, num_layers=2, num_heads=4)
    return transformers.T5EncoderModel(config), {"input_ids": IDS, "attention_mask": MASK}


def resnet() -> tuple[Any, dict[str, Any]]:
    config = transformers.ResNetConfig(
        embedding_size=16, hidden_sizes=[16, 32], depths=[1, 2], layer_type="basic", num_labels=5
    )
    return transformers.ResNetForImageClassification(config), {"pixel_values": IMAGE}


def llama() -> tuple[Any, dict[str, Any]]:
    config = transformers.LlamaConfig(**SMALL, num_key_value_heads=2, use_cache=False)
    return transformers.LlamaForCausalLM(config), {"input_ids": IDS}


def vit() -> tuple[Any, dict[str, Any]]:
    return transformers.ViTForImageClassification(transformers.ViTConfig(**IMAGES)), {"pixel_values": IMAGE}


@pytest.mark.parametrize("build", [bert, gpt2, t5_encoder, resnet, llama, vit])
def test_one_graph(check, build):
    torch.manual_seed(0)
    model, inputs = build()
    model.eval()

    def run(**kwargs: Any) -> Any:
        return model(**kwargs)

    with torch.no_grad():
        check(run, **inputs)
