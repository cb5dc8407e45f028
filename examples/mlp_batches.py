"""A compiled MLP called with one batch size after another: the second size makes the compiler think again."""
import torch
from torch import nn


@torch.compile
def evaluate(model: nn.Module, batch: torch.Tensor) -> torch.Tensor:
    return model(batch).softmax(dim=-1).square().sum(dim=-1)


@torch.no_grad()
def main() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.LayerNorm(64), nn.Linear(64, 10)).eval()
    for size in (4, 4, 7, 12, 33, 1):
        batch = torch.randn(size, 32)
        result = evaluate(model, batch)
        expected = model(batch).softmax(dim=-1).square().sum(dim=-1)
        print(f"batch of {size:2}: mean {result.mean().item():.4f}, close to eager: "
              f"{torch.allclose(result, expected, atol=1e-6)}")


if __name__ == "__main__":
    main()
