"""Small models of many architectures: whatever is captured is compiled, and gives what eager gives."""
# mypy: ignore-errors

from __future__ import annotations

import inspect

import ptdebug
import pytest
import torch

from tests.devices import DEVICES

transformers = pytest.importorskip("transformers")

ENCODER = {
    "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48, "vocab_size": 90,
}
DECODER = ENCODER | {"num_key_value_heads": 2, "max_position_embeddings": 64, "use_cache": False, "pad_token_id": 0}
PICTURE = {"image_size": 32, "patch_size": 8}
TOKENS = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}


def ids(*shape):
    return torch.randint(5, 90, shape)


def mask(*shape):
    made = torch.ones(*shape, dtype=torch.long)
    made[-1, shape[1] * 3 // 4 :] = 0
    return made


def text(length=16):
    return {"input_ids": ids(2, length), "attention_mask": mask(2, length)}


def first_token_is_global():
    given = {"input_ids": ids(2, 32), "attention_mask": torch.ones(2, 32, dtype=torch.long)}
    return given | {"global_attention_mask": torch.eye(32, dtype=torch.long)[:1].expand(2, 32).clone()}


def both():
    return text(8) | {"pixel_values": torch.randn(2, 3, 32, 32)}


def of(name, inputs, graphs=1, **options):
    """A model's class, how its inputs are made, of how many graphs it is made, and what its configuration says."""
    return pytest.param(name, inputs, graphs, options, id=name)


MODELS = [
    of("AlbertForMaskedLM", text, **ENCODER, embedding_size=16),
    of("LlamaForCausalLM", text, **DECODER),
    of("MistralForCausalLM", text, **DECODER, sliding_window=8),
    of("Phi3ForCausalLM", text, **DECODER),
    of("T5ForConditionalGeneration", lambda: {"input_ids": ids(2, 12), "decoder_input_ids": ids(2, 6)}, vocab_size=90,
       d_model=32, d_kv=8, d_ff=48, num_layers=2, num_heads=4, use_cache=False, decoder_start_token_id=0),
    of("MambaForCausalLM", lambda: {"input_ids": ids(2, 9)}, vocab_size=90, hidden_size=24, num_hidden_layers=2,
       state_size=4, use_cache=False),
    of("LongformerModel", first_token_is_global, 4, **ENCODER, attention_window=8, max_position_embeddings=64),
    of("FunnelModel", text, vocab_size=90, block_sizes=[1, 1], num_decoder_layers=1, d_model=32, n_head=4, d_head=8,
       d_inner=48),
    of("FNetModel", lambda: {"input_ids": ids(2, 16)}, vocab_size=90, hidden_size=32, num_hidden_layers=2,
       intermediate_size=48),
    of("ViTForImageClassification", lambda: {"pixel_values": torch.randn(2, 3, 32, 32)}, **ENCODER, **PICTURE),
    of("SegformerForSemanticSegmentation", lambda: {"pixel_values": torch.randn(2, 3, 64, 64)}, depths=[1, 1, 1, 1],
       hidden_sizes=[8, 16, 24, 32], num_attention_heads=[1, 2, 3, 4], decoder_hidden_size=24),
    of("CLIPModel", both, text_config=ENCODER | TOKENS, vision_config=ENCODER | PICTURE, projection_dim=16),
    of("Wav2Vec2ForCTC", lambda: {"input_values": torch.randn(2, 1600)}, **ENCODER, conv_dim=(16,) * 7,
       num_conv_pos_embeddings=8, num_conv_pos_embedding_groups=2),
]  # fmt: skip


def small(name, options):
    """The model with random parameters: those that are zero at first would hide errors."""
    torch.manual_seed(0)
    cls = getattr(transformers, name)
    model = cls(cls.config_class(**options))
    with torch.no_grad():
        for parameter in model.parameters():
            if not parameter.any():
                parameter.normal_(0, 0.02)
    return model.eval()


def has_positions_of_numbers():
    """Whether Funnel counts its positions in Python: transformers 5.17 asks tensors for the end of a torch.arange, and
    so breaks the graph at each of them."""
    structure = pytest.importorskip("transformers.models.funnel.modeling_funnel").FunnelAttentionStructure
    return "device" in inspect.signature(structure.relative_pos).parameters


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name, inputs, graphs, options", MODELS)
def test_a_model_is_compiled_and_gives_what_eager_gives(name, inputs, graphs, options, device, tmp_path):
    model = small(name, options).to(device)
    given = {key: value.to(device) for key, value in inputs().items()}
    with torch.no_grad():
        expected = model(**given)
        with ptdebug.record("recording", str(tmp_path)) as recording:
            compiled = ptdebug.compile(model)
            found = [compiled(**given) for _ in range(2)]
    compiles = [c for c in recording.compiles() if c.reason != "it has no tensor operation"]  # a device context's call
    assert {(c.status, c.reason) for c in compiles} == {("compiled", "")}, "kernels, not a fallback"
    assert len(compiles) == graphs or (name == "FunnelModel" and not has_positions_of_numbers())
    for ours in found:
        assert list(ours) == list(expected)
        for key, value in expected.items():
            if isinstance(value, torch.Tensor):
                torch.testing.assert_close(ours[key], value, rtol=1e-4, atol=1e-5)
