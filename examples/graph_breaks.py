"""A module that a graph cannot hold: a print, a branch on data and an .item() in its forward."""
import torch
from torch import nn


class Gate(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(16, 16), nn.Linear(16, 16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.relu(self.first(x))
        print("activations:", tuple(x.shape))
        if x.sum() > 20:
            x = self.second(x) * 2
        else:
            x = x - 1
        largest = x.abs().max().item()
        return torch.tanh(x / largest) + largest


@torch.no_grad()
def main() -> None:
    torch.manual_seed(0)
    model = Gate().eval()
    compiled = torch.compile(model)
    for scale in (0.1, 3.0):
        x = torch.randn(8, 16) * scale
        result = compiled(x)
        close = torch.allclose(result, model(x), atol=1e-5)
        print(f"scale {scale}: sum {result.sum().item():.3f}, close to eager: {close}")


if __name__ == "__main__":
    main()
