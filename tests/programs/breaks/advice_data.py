"""What is advised where values of tensors, or random numbers, decide what is done: a table of `test_advice.py`."""
from __future__ import annotations

import dataclasses
import random
import statistics

import torch
import torch.nn.functional as F

from .advice import Advice, X, whole

OF_TEXTS = "make strings of what the compiled function returns, or leave it out while compiling"


def branch(x):
    if x.sum() > 0:
        return x.sin()
    return x.cos()


def halve(x):
    y = x * 2
    while y.norm() > 1:
        y = y / 2
    return y


def halve_six_times(x):
    y = x * 2
    for _ in range(6):
        y = torch.where(y.norm() > 1, y / 2, y)
    return y


def add_by_data(x):
    y = x
    for _ in range(int(x.sum())):
        y = y + x
    return y


def add_twelve_times(x):
    y = x
    for i in range(12):
        y = torch.where(i < x.sum().int(), y + x, y)
    return y


def add_in_a_while_loop(x):
    count, start = x.sum().int(), torch.zeros((), dtype=torch.int32)
    return torch.while_loop(lambda i, y: i < count, lambda i, y: (i + 1, y + x), (start, x.clone()))[1]


def picks_a_row(x):
    i = int(x.argmax())
    return x[i // 4] * 2


def picks_a_row_by_index(x):
    i = x.argmax() // 4
    return x[i.view(1)].squeeze(0) * 2


@dataclasses.dataclass(order=True)
class Scored:
    score: float


def orders_scored(x):
    found = [Scored(score) for score in x[0].tolist()]
    return sorted(found, reverse=True)[0].score * torch.tensor(2.0)


TARGETS = torch.tensor([[1]])


def inverted_inside(x):
    return torch.istft(torch.complex(x, x), 4, 2, window=torch.ones(4)) + 1


def inverted_after(compile):
    made = compile(lambda x: torch.complex(x, x))(X)
    return torch.istft(made, 4, 2, window=torch.ones(4)) + 1


def averaged_inside(compile):
    """A branch in a function of torch that is called."""
    model = torch.nn.Linear(4, 4)
    torch.nn.init.eye_(model.weight)
    average = torch.optim.swa_utils.AveragedModel(model)

    def step(x):
        loss = model(x).sum()
        average.update_parameters(model)
        return loss

    compile(step)(X)
    return average.module.weight


def averaged_after(compile):
    model = torch.nn.Linear(4, 4)
    torch.nn.init.eye_(model.weight)
    average = torch.optim.swa_utils.AveragedModel(model)
    compile(lambda x: model(x).sum())(X)
    average.update_parameters(model)
    return average.module.weight


def how_many(x):
    kept = x[x > 0.5]
    return kept.sum() * 2 if kept.shape[0] > 3 else kept.sum()


def how_many_of_known_size(x):
    total = torch.where(x > 0.5, x, 0).sum()
    return torch.where((x > 0.5).sum() > 3, total * 2, total)


def texts_after(compile):
    y, row = compile(lambda x: (x * 2, x[0].int()))(X)
    return y, [str(value) for value in row.tolist()]


def mean_after(compile):
    y, mean = compile(lambda x: (x * 2, x.mean()))(X)
    return y, f"{mean}"


DATA: dict[str, Advice] = {
    "branch": Advice(
        "data-dependent-branch", "x.sum() > 0", "torch.where(condition, a, b), or use torch.cond; or test before",
        whole(branch), (
            whole(lambda x: torch.where(x.sum() > 0, x.sin(), x.cos())),
            whole(lambda x: torch.cond(x.sum() > 0, torch.sin, torch.cos, (x,))),
            lambda compile: compile(lambda x, more: x.sin() if more else x.cos())(X, bool(X.sum() > 0)),
        ),
    ),
    "while": Advice(
        "data-dependent-branch", "y.norm() > 1", "loop a fixed number of times and mask with torch.where",
        whole(halve), (
            whole(halve_six_times),
            whole(lambda x: torch.while_loop(lambda y: y.norm() > 1, lambda y: (y / 2,), (x * 2,))[0]),
        ),
    ),
    "turns": Advice(
        "data-dependent-value", "range(int(x.sum()))", "or use torch.while_loop",
        whole(add_by_data), (whole(add_twelve_times), whole(add_in_a_while_loop)),
    ),
    "item of a list": Advice(
        "data-dependent-value", "[x, x * 2][int(x.argmax()) % 2]", "torch.stack(items)[i.view(1)].squeeze(0)",
        whole(lambda x: [x, x * 2][int(x.argmax()) % 2] + 1),
        (whole(lambda x: torch.stack([x, x * 2])[(x.argmax() % 2).view(1)].squeeze(0) + 1),),
    ),
    "function of a list": Advice(
        "data-dependent-value", "[torch.sin, torch.cos][int(x.argmax()) % 2]", "of functions or modules, what each",
        whole(lambda x: [torch.sin, torch.cos][int(x.argmax()) % 2](x)),
        (whole(lambda x: torch.stack([x.sin(), x.cos()])[(x.argmax() % 2).view(1)].squeeze(0)),),
    ),
    "row": Advice(
        "data-dependent-shape", "x[i // 4]", "`x[i.view(1)].squeeze(0)` instead of `x[i]`), or use torch.gather",
        whole(picks_a_row), (
            whole(picks_a_row_by_index),
            whole(lambda x: torch.gather(x, 0, (x.argmax() // 4).expand(1, 4)).squeeze(0) * 2),
        ),
    ),
    "how many": Advice(
        "data-dependent-branch", "kept.shape[0] > 3", "torch.where(mask, x, 0) instead of x[mask]",
        whole(how_many), (whole(how_many_of_known_size),), same=False,
    ),
    "size": Advice(
        "data-dependent-shape", "x[x > 0.5].chunk(2)", "torch.where(mask, x, 0) instead of x[mask]",
        whole(lambda x: sum(part.amax() for part in x[x > 0.5].chunk(2))),
        (whole(lambda x: sum(part.amax() for part in torch.where(x > 0.5, x, 0).view(-1).chunk(2))),), same=False,
    ),
    "row drawn": Advice(
        "random-value", "x[random.randint(0, 2)]", "sample it before the compiled function's call",
        whole(lambda x: x[random.randint(0, 2)] * 2),
        (lambda compile: compile(lambda x, i: x[i] * 2)(X, random.randint(0, 2)),), same=False,
    ),
    "rounded": Advice(
        "data-dependent-value", "round(float(x.max()))", "keep it a tensor (0-dimensional tensors work in arithmetic)",
        whole(lambda x: x * round(float(x.max()))), (whole(lambda x: x * x.max().round()),),
    ),
    "texts": Advice(
        "data-dependent-value", "str(value)", "or read it after the compiled function returned",
        whole(lambda x: (x * 2, [str(value) for value in x[0].int().tolist()])), (texts_after,),
    ),
    "text of a tensor": Advice(
        "data-dependent-value", 'f"{x.mean()}"', OF_TEXTS, whole(lambda x: (x * 2, f"{x.mean()}")), (mean_after,),
    ),
    "formatted": Advice(
        "data-dependent-value", '"%s" % x.mean().item()', OF_TEXTS,
        whole(lambda x: (x * 2, "%s" % x.mean().item())),  # noqa: UP031
        (lambda compile: (lambda y, mean: (y, f"{mean.item()}"))(*compile(lambda x: (x * 2, x.mean()))(X)),),
    ),
    "equal": Advice(
        "data-dependent-value", "x.equal(x.abs())", "(a == b).all()",
        whole(lambda x: x * x.equal(x.abs())), (whole(lambda x: x * (x == x.abs()).all()),),
    ),
    "fold": Advice(
        "data-dependent-branch", "max(x[0])", "x.max()",
        whole(lambda x: x * max(x[0])), (whole(lambda x: x * x[0].max()),),
    ),
    "lengths": Advice(
        "data-dependent-shape", "F.ctc_loss(", "compute the loss on what the compiled function returns",
        whole(lambda x: F.ctc_loss(x.log_softmax(-1)[:, None], TARGETS, (2,), (1,))),
        (lambda compile: F.ctc_loss(compile(lambda x: x.log_softmax(-1)[:, None])(X), TARGETS, (2,), (1,)),),
    ),
    "a number that an operator needs": Advice(
        "data-dependent-value", "F.dropout(", "before or after the compiled function",
        whole(lambda x: F.dropout(x, x[0, 0].abs().item() / 9, False)),
        (lambda compile: F.dropout(*compile(lambda x: (x * 1, x[0, 0].abs() / 9))(X), False),),
    ),
    "what looks first": Advice(
        "data-dependent-value", "torch.istft(", "before or after the compiled function", whole(inverted_inside),
        (inverted_after,),
    ),
    "median": Advice(
        "data-dependent-branch", "statistics.median(x[:, 0].tolist())", "x.median()",
        whole(lambda x: x - statistics.median(x[:, 0].tolist())), (whole(lambda x: x - x[:, 0].median()),),
    ),
    "order of dataclasses": Advice(
        "data-dependent-branch", "sorted(found", "use the tensor's own function, which makes one tensor",
        whole(orders_scored), (whole(lambda x: x[0].max() * 2),),
    ),
    "branch of torch's": Advice(
        "data-dependent-branch", "average.update_parameters(model)", "before or after the compiled function",
        averaged_inside, (averaged_after,),
    ),
    "random branch": Advice(
        "random-value", "random.random() > 0.5", "pass it as an argument, or use torch.rand and torch.where",
        whole(lambda x: x.sin() if random.random() > 0.5 else x.cos()), (
            lambda compile: compile(lambda x, more: x.sin() if more else x.cos())(X, random.random() > 0.5),
            whole(lambda x: torch.where(torch.rand(()) > 0.5, x.sin(), x.cos())),
        ), same=False,
    ),
    "random branch on a whole number": Advice(
        "random-value", "random.randint(0, 1) > 0", "pass it as an argument, or use torch.rand and torch.where",
        whole(lambda x: x.sin() if random.randint(0, 1) > 0 else x.cos()), (
            lambda compile: compile(lambda x, more: x.sin() if more else x.cos())(X, random.randint(0, 1) > 0),
        ), same=False,
    ),
}
