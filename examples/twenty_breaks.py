"""Twenty functions, each with one line that a graph cannot hold. `ptdebug breaks` says of each what to do about it."""
import copy
import io
import logging
import sys
import threading
import time
import warnings

import torch
from torch import nn

log = logging.getLogger("model")
log.addHandler(logging.NullHandler())
log.propagate = False
lock = threading.Lock()


def prints(x):
    y = torch.relu(x)
    print("mean before the tanh is computed", file=OUT)
    return torch.tanh(y)


def branches_on_data(x):
    if x.sum() > 0:
        return torch.sin(x)
    return torch.cos(x)


def picks_by_data(x):
    i = int(x.argmax())
    return [torch.sin, torch.cos][i % 2](x)


def loops_on_data(x):
    y = x * 2
    while y.norm() > 1:
        y = y / 2
    return torch.tanh(y)


def reads_a_number(x):
    scale = float(x.abs().max())
    if scale > 3.0:
        x = x / scale
    return torch.tanh(x)


def makes_a_list(x):
    rows = [str(value) for value in x[0].tolist()]
    return torch.tanh(x) * len(rows)


def goes_through_numpy(x):
    y = torch.relu(x)
    total = y.numpy().tobytes()
    return torch.tanh(y) + len(total)


def reads_the_clock(x):
    start = time.perf_counter()
    y = torch.tanh(x)
    return y, time.perf_counter() - start


def logs(x):
    y = torch.relu(x)
    log.error("shape %s", y.shape)
    return torch.tanh(y)


def warns(x):
    y = torch.relu(x)
    warnings.warn("deprecated", stacklevel=2)
    return torch.tanh(y)


def writes_a_file(x):
    y = torch.relu(x)
    torch.save(y, FILE)
    return torch.tanh(y)


def seeds(x):
    y = torch.relu(x)
    torch.manual_seed(0)
    return y + torch.rand(4)


def takes_a_lock(x):
    y = torch.relu(x)
    with lock:
        y = y + 1
    return torch.tanh(y)


def copies_a_module(x):
    layer = copy.deepcopy(LAYER)
    return layer(torch.relu(x))


@torch.compiler.disable
def postprocess(x):
    return x.clamp(0, 1)


def calls_what_is_disabled(x):
    return postprocess(torch.relu(x)) * 2


def asks_for_a_break(x):
    y = torch.relu(x)
    torch._dynamo.graph_break()
    return torch.tanh(y)


def differentiates(x):
    w = torch.ones(4, requires_grad=True)
    loss = (x * w).sum()
    loss.backward()
    return w.grad


def asks_for_memory(x):
    y = torch.relu(x)
    address = y.data_ptr()
    return torch.tanh(y), address % 1


def runs_text(x):
    y = torch.relu(x)
    exec("z = 1")
    return torch.tanh(y)


def looks_at_frames(x):
    y = torch.relu(x)
    caller = sys._getframe(0).f_code.co_name
    return torch.tanh(y), caller


OUT, FILE = io.StringIO(), io.BytesIO()
LAYER = nn.Linear(4, 4)
BREAKS = [
    prints, branches_on_data, picks_by_data, loops_on_data, reads_a_number, makes_a_list, goes_through_numpy,
    reads_the_clock, logs, warns, writes_a_file, seeds, takes_a_lock, copies_a_module, calls_what_is_disabled,
    asks_for_a_break, differentiates, asks_for_memory, runs_text, looks_at_frames,
]


def main() -> None:
    warnings.simplefilter("ignore")
    for function in BREAKS:
        compiled = torch.compile(function)
        for seed in range(2):
            torch.manual_seed(seed)
            compiled(torch.rand(2, 4))
    print(f"{len(BREAKS)} functions ran")


if __name__ == "__main__":
    main()
