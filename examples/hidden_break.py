"""Trains a model whose graph breaks deep inside: `ptdebug minify --break data-dependent-branch` finds the lines."""
import torch
import torch.nn as nn


class Block(nn.Module):
    def __init__(self, d, scale):
        super().__init__()
        self.norm = nn.LayerNorm(d)
        self.up = nn.Linear(d, 4 * d)
        self.down = nn.Linear(4 * d, d)
        self.scale = scale
        self.history = []

    def forward(self, x):
        h = self.up(self.norm(x))
        h = torch.nn.functional.gelu(h)
        self.note(h)
        return x + self.scale * self.down(h)

    def note(self, h):
        if self.training:
            norm = h.norm().item()
            self.history.append(norm)
            if norm > 1e4:
                print("large activations", norm)


class Net(nn.Module):
    def __init__(self, d=32, layers=4, classes=10):
        super().__init__()
        self.embed = nn.Linear(16, d)
        self.blocks = nn.ModuleList(Block(d, 0.5) for _ in range(layers))
        self.head = nn.Linear(d, classes)

    def forward(self, x):
        x = self.embed(x)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def batches(n):
    for _ in range(n):
        yield torch.randn(8, 16), torch.randint(0, 10, (8,))


def main():
    torch.manual_seed(0)
    net = Net()
    step = torch.compile(net)
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
    for i, (x, y) in enumerate(batches(3)):
        loss = nn.functional.cross_entropy(step(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(i, round(loss.item(), 4))


main()
