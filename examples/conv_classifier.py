"""A convolutional network with random weights classifies a batch of made-up images."""
import torch
import torch.nn.functional as F
from torch import nn


class Residual(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv1, self.conv2 = (nn.Conv2d(channels, channels, 3, padding=1, bias=False) for _ in range(2))
        self.norm1, self.norm2 = nn.BatchNorm2d(channels), nn.BatchNorm2d(channels)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = F.relu(self.norm1(self.conv1(x)))
        return F.relu(x + self.norm2(self.conv2(y)))


class Classifier(nn.Module):
    def __init__(self, channels: int = 16, classes: int = 10) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, channels, 3, stride=2, padding=1), nn.BatchNorm2d(channels), nn.ReLU())
        self.body = nn.Sequential(Residual(channels), Residual(channels))
        self.pool, self.head = nn.MaxPool2d(2), nn.Linear(channels, classes)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        features = self.pool(self.body(self.stem(images)))
        return self.head(features.mean(dim=(2, 3))).log_softmax(dim=1)


@torch.no_grad()
def main() -> None:
    torch.manual_seed(0)
    model = Classifier().eval()
    images = torch.randn(8, 3, 32, 32)
    expected = model(images)
    model.compile()
    result = model(images)
    print("classes:", " ".join(str(label) for label in result.argmax(dim=1).tolist()))
    print("close to eager:", torch.allclose(result, expected, atol=1e-5))


if __name__ == "__main__":
    main()
