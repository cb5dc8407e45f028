"""Trains a small transformer: forward, backward and the optimizer's step compiled, and the same in eager beside it."""
import copy

import torch
import torch.nn.functional as F
from torch import nn


class Model(nn.Module):
    def __init__(self, words: int = 64, width: int = 64) -> None:
        super().__init__()
        self.embed = nn.Embedding(words, width)
        self.layer = nn.TransformerEncoderLayer(width, 4, 4 * width, dropout=0.0, activation="gelu", batch_first=True)
        self.head = nn.Linear(width, words, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        length = tokens.shape[1] - 1
        mask = torch.full((length, length), float("-inf")).triu(1)
        hidden = self.layer(self.embed(tokens[:, :-1]), mask)
        return F.cross_entropy(self.head(hidden).flatten(0, 1), tokens[:, 1:].flatten())


def train(model: nn.Module, compiled: bool, steps: int = 20) -> list[float]:
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    loss_of = torch.compile(model) if compiled else model
    step = torch.compile(optimizer.step) if compiled else optimizer.step
    generator = torch.Generator().manual_seed(0)
    losses = []
    for _ in range(steps):
        start = torch.randint(0, 32, (8, 1), generator=generator)
        loss = loss_of((start + torch.arange(32)) % 64)
        optimizer.zero_grad()
        loss.backward()
        step()
        losses.append(loss.detach().item())
    return losses


torch.manual_seed(0)
model = Model()
eager = train(copy.deepcopy(model), compiled=False)
ours = train(model, compiled=True)
print("loss", " ".join(f"{value:.3f}" for value in ours[::4]))
print("same as eager:", torch.allclose(torch.tensor(eager), torch.tensor(ours), rtol=1e-3))
