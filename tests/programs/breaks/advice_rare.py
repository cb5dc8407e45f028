"""What is advised where a function loads, makes or orders what it could be given: a table of `test_advice.py`."""
from __future__ import annotations

import pickle
import tempfile
import weakref

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from .advice import Advice, X, whole

NAMES = ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l"]
WEAK: weakref.WeakValueDictionary[str, torch.Tensor] = weakref.WeakValueDictionary()


def how_many_classes(x):
    return F.one_hot((x > 0).long().sum(-1)).float().mean(0)


def five_classes(x):
    return F.one_hot((x > 0).long().sum(-1), num_classes=5).float().mean(0)


def repeats(x):
    return torch.repeat_interleave(x, (x[0] > 0).long() + 1, 1).chunk(2, 1)[0].sum()


def repeats_known(x):
    return torch.repeat_interleave(x, (x[0] > 0).long() + 1, 1, output_size=4).chunk(2, 1)[0].sum()


def ordered(x):
    rows = [x[1], x[0], x[2]]
    rows.sort(key=lambda row: row.sum())
    return torch.stack(rows)


def ordered_by_index(x):
    rows = torch.stack([x[1], x[0], x[2]])
    return rows[rows.sum(1).argsort()]


def name_of_the_largest(x):
    y = x * 2
    return y, NAMES[y.argmax()]


def name_after(compile):
    y, index = compile(lambda x: (x * 2, (x * 2).argmax()))(X)
    return y, NAMES[index]


def in_a_match(x):
    match x.argmax().item():
        case 0:
            return x
        case _:
            return x * 2


def parameter_inside(x):
    scale = nn.Buffer(torch.ones(4))
    return (x * scale).sum()


def parameter_before(compile):
    scale = nn.Buffer(torch.ones(4))
    return compile(lambda x: (x * scale).sum())(X)


def optimizer_inside(compile):
    scale = torch.ones(4, requires_grad=True)
    torch.optim.SGD([scale], lr=0.1)  # torch wraps the step of a class when its first instance is made

    def step(x):
        optimizer = torch.optim.SGD([scale], lr=0.1)
        return (x * scale).sum().detach(), len(optimizer.param_groups)

    return compile(step)(X)


def optimizer_before(compile):
    scale = torch.ones(4, requires_grad=True)
    optimizer = torch.optim.SGD([scale], lr=0.1)
    return compile(lambda x: ((x * scale).sum().detach(), len(optimizer.param_groups)))(X)


def loads(x):
    total = x * 0
    for (batch,) in DataLoader(TensorDataset(torch.ones(4, 4)), batch_size=2):
        total = total + batch.sum()
    return total


def loads_outside(compile):
    add, total = compile(lambda total, batch: total + batch.sum()), X * 0
    for (batch,) in DataLoader(TensorDataset(torch.ones(4, 4)), batch_size=2):
        total = add(total, batch)
    return total


def reads(compile):
    with tempfile.NamedTemporaryFile("w+") as file:
        file.write("2.5")
        file.flush()

        def step(x):
            with open(file.name) as opened:  # a comment behind the colon
                scale = float(opened.read())
            return torch.relu(x) * scale

        return compile(step)(X)


def reads_before(compile):
    return compile(lambda x, scale: torch.relu(x) * scale)(X, 2.5)


def weakly_kept(x):
    y = torch.relu(x)
    WEAK["y"] = y
    return y + 1


def weakly_kept_after(compile):
    y, result = compile(lambda x: (torch.relu(x), torch.relu(x) + 1))(X)
    WEAK["y"] = y
    return result


def pickled(x):
    y = torch.relu(x)
    return y, len(pickle.dumps(tuple(y.shape))) > 0


def pickled_after(compile):
    y = compile(torch.relu)(X)
    return y, len(pickle.dumps(tuple(y.shape))) > 0


def sparse(compile):
    return compile(lambda x, weights: weights @ x + 1)(X, torch.eye(3).to_sparse())


def sparse_as_dense(compile):
    return compile(lambda x, weights: weights @ x + 1)(X, torch.eye(3).to_sparse().to_dense())


RARE: dict[str, Advice] = {
    "sparse": Advice("unknown-type", "weights @ x", "x.to_dense()", sparse, (sparse_as_dense,)),
    "classes": Advice("data-dependent-shape", "F.one_hot(", "num_classes=", whole(how_many_classes),
                      (whole(five_classes),), same=False),
    "ordered by a key": Advice(
        "data-dependent-branch", "rows.sort(", "[keys.argsort()]", whole(ordered), (whole(ordered_by_index),)
    ),
    "item by a tensor": Advice(
        "subscript", "NAMES[y.argmax()]", "take the item after the call", whole(name_of_the_largest), (name_after,)
    ),
    "match": Advice(
        "data-dependent-branch", "case 0:", "torch.where(condition, a, b)", whole(in_a_match),
        (whole(lambda x: torch.where(x.argmax() == 0, x, x * 2)),),
    ),
    "parameter": Advice(
        "unknown-type", "nn.Buffer(", "make it once, in __init__ or before", whole(parameter_inside), (
            parameter_before, whole(lambda x: (x * torch.ones(4)).sum()),
        ),
    ),
    "optimizer": Advice(
        "skipped-function", "SGD([scale]", "make it once, before", optimizer_inside, (optimizer_before,)
    ),
    "repeated": Advice("data-dependent-shape", ".chunk(2, 1)", "output_size=", whole(repeats), (whole(repeats_known),)),
    "loader": Advice(
        "skipped-function", "DataLoader(", "loop over the data outside, and compile what is done with one batch",
        whole(loads), (loads_outside,),
    ),
    "opened": Advice("unsupported-builtin", "open(file.name)", "and pass on what it holds", reads, (reads_before,)),
    "weak": Advice("weak-reference", 'WEAK["y"] = y', "before or after", whole(weakly_kept), (weakly_kept_after,)),
    "pickled": Advice("unsupported-builtin", "pickle.dumps", "before or after", whole(pickled), (pickled_after,)),
}
