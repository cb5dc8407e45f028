"""A classifier that is exported for any batch: `ptdebug export examples/export_classifier.py:model --dynamic
input:0=batch -o model.ptd`; then `ptdebug.load("model.ptd")(images)`, in a process without this file."""
import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(
    nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(16, 32, 3, padding=1),
    nn.GELU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 10),
).eval()

with torch.no_grad():
    print(model(torch.rand(4, 3, 32, 32)).argmax(1))
