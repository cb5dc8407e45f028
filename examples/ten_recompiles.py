"""Ten ways to have a function compiled again. `ptdebug recompiles` says of each what changed and what avoids it."""
import torch
import torch.nn.functional as F
from torch import nn


def sizes(x):
    return torch.tanh(x) * x.shape[0]


def dtypes(x):
    return torch.tanh(x) + 1


def strides(x):
    return torch.tanh(x).sum(1)


def flags(x, training):
    return F.dropout(torch.tanh(x), 0.5, training)


def names(x, mode):
    return torch.tanh(x) if mode == "tanh" else torch.relu(x)


def functions(x, act):
    return act(x) + 1


def lengths(xs):
    return torch.stack(xs).sum(0)


def settings(x):
    return torch.tanh(x) * 2


def gradients(x):
    return torch.tanh(x) * 3


class Counter(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 4)
        self.mode = "train"

    def forward(self, x):
        y = self.layer(x)
        return y * 2 if self.mode == "train" else y


def main() -> None:
    x = torch.rand(6, 4)
    f = torch.compile(sizes)
    f(x), f(torch.rand(9, 4)), f(torch.rand(1, 4))  # one more size; then 1, which is never dynamic
    f = torch.compile(dtypes)
    f(x), f(x.double())
    f = torch.compile(strides, dynamic=False)
    f(x), f(torch.rand(4, 6).t())
    f = torch.compile(flags)
    f(x, True), f(x, False)
    f = torch.compile(names)
    f(x, "tanh"), f(x, "relu")
    f = torch.compile(functions)
    f(x, torch.relu), f(x, torch.tanh), f(x, lambda t: t * 2)
    f = torch.compile(lengths)
    f([x, x + 1]), f([x, x + 1, x + 2])
    f = torch.compile(settings)
    f(x)
    with torch.no_grad():
        f(x)
    with torch.autocast("cpu"):
        f(x)
    torch.use_deterministic_algorithms(True)
    f(x)
    torch.use_deterministic_algorithms(False)
    f = torch.compile(gradients)
    f(x), f(x.clone().requires_grad_())
    model = Counter()
    f = torch.compile(model)
    f(x)
    model.mode = "eval"
    f(x)
    print("all ran")


if __name__ == "__main__":
    main()
