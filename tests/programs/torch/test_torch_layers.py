"""Programs about the layers and losses of torch: recurrent ones, attention, transformers, convolutions."""
# mypy: ignore-errors
# ruff: noqa: RUF059 - programs as people write them

from __future__ import annotations

import pytest
import torch
import torch.nn as nn
import torch.nn.functional as F

from ..checking import Programs, check, trained

program = Programs()


@program
def recurrent(compile):
    rnn = nn.RNN(3, 4, batch_first=True)
    gru = nn.GRU(4, 4, num_layers=2, bidirectional=True)
    lstm = nn.LSTM(8, 4, num_layers=2, batch_first=True, proj_size=2)
    cell = nn.LSTMCell(3, 4)
    grus = nn.GRUCell(4, 4)

    def f(x, state):
        a, _ = rnn(x)
        b, h = gru(a)
        c, (hn, cn) = lstm(b)
        h1, c1 = cell(x[:, 0], state)
        return c, hn, cn, h, grus(h1), c1

    f = compile(f, fullgraph=True)
    out = f(torch.randn(2, 5, 3), (torch.zeros(2, 4), torch.ones(2, 4)))
    sum(o.sum() for o in out).backward()
    return out, [p.grad for m in (rnn, gru, lstm, cell, grus) for p in m.parameters()]


@program
def recurrent_with_dropout(compile):
    lstm = nn.LSTM(3, 4, num_layers=2, dropout=0.5)
    f = compile(lstm, fullgraph=True)
    a = f(torch.randn(5, 2, 3))
    lstm.eval()
    return a, f(torch.randn(5, 2, 3), (torch.zeros(2, 2, 4), torch.zeros(2, 2, 4)))


@program
def packed_sequences(compile):
    lstm = nn.LSTM(3, 4, batch_first=True)

    def f(x, lengths):
        packed = nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        out, (h, c) = lstm(packed)
        return nn.utils.rnn.pad_packed_sequence(out, batch_first=True)[0], h

    with torch.no_grad():
        return compile(f)(torch.randn(2, 5, 3), torch.tensor([3, 5]))


@program
def sequences_that_are_packed(compile):
    """How many rows these have, data tells; torch's fake kernel says another number."""

    def f(x, lengths, rows):
        data, batches = torch._pack_padded_sequence(x, lengths, True)
        packed = nn.utils.rnn.pack_sequence(rows, enforce_sorted=False)
        return data * 2, data.shape, batches + 1, packed.data * 2, packed.batch_sizes, packed.sorted_indices

    f = compile(f)
    rows = [torch.randn(2, 3), torch.randn(4, 3), torch.randn(1, 3)]
    return [f(torch.randn(3, 4, 2), torch.tensor(lengths), rows) for lengths in ([4, 2, 1], [3, 3, 3], [4, 4, 4])]


@program
def attention_layers(compile):
    mha = nn.MultiheadAttention(8, 2, batch_first=True)
    f = compile(mha, fullgraph=True)
    x = torch.randn(2, 4, 8)
    mask = nn.Transformer.generate_square_subsequent_mask(4)
    a = f(x, x, x)
    b = f(x, x, x, need_weights=False, attn_mask=mask, is_causal=True)
    c = f(x, x, x, key_padding_mask=torch.tensor([[False, False, True, True], [False] * 4]))
    grads = trained(mha, a[0], b[0], c[0])
    mha.eval()
    with torch.no_grad():
        return a, b[0], c, grads, f(x, x, x, need_weights=False)


@program
def transformer_layers(compile):
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, dropout=0.1)
    enc = nn.TransformerEncoder(layer, 2)
    dec = nn.TransformerDecoder(nn.TransformerDecoderLayer(8, 2, 16, batch_first=True, dropout=0.0), 1)

    def f(x, y):
        mem = enc(x, mask=nn.Transformer.generate_square_subsequent_mask(4), is_causal=True)
        return dec(y, mem, tgt_is_causal=False)

    f = compile(f)
    x, y = torch.randn(2, 4, 8), torch.randn(2, 3, 8)
    out = f(x, y)
    grads = trained(enc, out)
    enc.eval()
    dec.eval()
    with torch.no_grad():
        return out, grads, f(x, y)


@program
def many_layers(compile):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.PReLU(), nn.MaxPool2d(2))
            norm, drop = nn.GroupNorm(2, 4), nn.Dropout2d(0.2)
            self.up = nn.Sequential(nn.ConvTranspose2d(8, 4, 2, 2), norm, nn.Hardswish(), drop)
            norm, larger = nn.InstanceNorm2d(1, affine=True), nn.Upsample(scale_factor=2)
            self.shuffle = nn.Sequential(nn.PixelShuffle(2), norm, larger)
            self.head = nn.Sequential(nn.AdaptiveAvgPool2d(2), nn.LocalResponseNorm(2), nn.Flatten(), nn.Softmax(-1))
            self.bag = nn.EmbeddingBag(10, 4, mode="mean")
            self.bilinear = nn.Bilinear(4, 4, 2)
            self.pad = nn.Sequential(nn.ReflectionPad2d(1), nn.Unfold(2))

        def forward(self, x, ids):
            x = self.head(self.shuffle(self.up(self.conv(x))))
            bag = self.bag(ids)
            return x, self.bilinear(x[:, :4], bag), F.pairwise_distance(bag, bag + 1)

    m = Net()
    f = compile(m, fullgraph=True)
    x, ids = torch.randn(2, 3, 8, 8), torch.randint(0, 10, (2, 5))
    out = f(x, ids)
    grads = trained(m, *out)
    m.eval()
    with torch.no_grad():
        return out, grads, f(x, ids), m


@program
def losses(compile):
    def f(x, y, t):
        return [
            nn.MSELoss()(x, y), nn.HuberLoss(delta=0.5)(x, y), nn.CrossEntropyLoss(label_smoothing=0.1)(x, t),
            nn.BCEWithLogitsLoss(pos_weight=torch.ones(4))(x, y.sigmoid()), nn.KLDivLoss(reduction="batchmean")(
                x.log_softmax(-1), y.softmax(-1)), nn.NLLLoss(ignore_index=0)(x.log_softmax(-1), t),
            nn.TripletMarginLoss()(x, y, x + 1), nn.CosineEmbeddingLoss()(x, y, torch.ones(3)), nn.GaussianNLLLoss()(
                x, y, torch.ones(3, 4)), nn.MarginRankingLoss()(x, y, torch.ones(3, 4)), nn.CTCLoss()(
                x.log_softmax(-1)[:, None], torch.tensor([[1]]), torch.tensor([3]), torch.tensor([1])),
        ]  # fmt: skip

    f = compile(f)
    x = torch.randn(3, 4, requires_grad=True)
    out = f(x, torch.randn(3, 4), torch.tensor([1, 0, 2]))
    sum(out).backward()
    return out, x.grad


@pytest.mark.parametrize("name", program)
def test_a_program_with_layers_is_the_program(name: str) -> None:
    check(program[name])
