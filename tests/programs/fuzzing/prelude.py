"""What random programs share: what each begins with, and the arguments that it is called with."""
from __future__ import annotations

import random

from .prelude_classes import CLASSES
from .prelude_functions import FUNCTIONS
from .prelude_models import MODEL_FUNCTIONS, MODELS
from .prelude_rare import RARE_CLASSES, RARE_FUNCTIONS
from .prelude_rare_torch import RARE_MODULES
from .prelude_torch import MODULES

MARK = "# ---- the program"
"""The line between what all programs share and the program itself."""

PRELUDE = CLASSES + RARE_CLASSES + FUNCTIONS + RARE_FUNCTIONS + MODEL_FUNCTIONS + MODULES + RARE_MODULES + MODELS

_CALLS = '''
def make_calls():
    def t(a, b):
        return (torch.arange(6.0).reshape(2, 3) - a) * b

    made = []
    shared = {made_object}
    for i in range({count}):
        x = t({a} + {grow} * i, 0.5)
        xs = [t(j, 0.25 * (i + 1)) for j in range({length} + {longer} * (i == 2))]
        {alias}
        ns = [{ints}][: {ints_kept} + (i > 1)] + [i]
        dn = {{"a": {n} + i, "b": 2, "cc": -i}}
        dt = {{"a": x{view}, "b": t(1, 2.0)}}
        o = shared if {share} else {made_object_again}
        r = torch.arange(3.0 * ({rows} + {more_rows} * i)).view(-1, 3) - {a}
        {link}
        made.append((x, y, {n} + {n_step} * i, {k} + (i == 2), i % 2 == {parity}, {words}[i % 2], xs, ns, dn, dt, o,
                     {v} + i * {v_step}, r))
    return made


OPTIONS = {options}
'''

_OBJECTS = (
    "Base(t(1, 1.0), {n})", "Child(t(2, 1.0), {n})", "Child(t(2, 1.0), {n}, bias=4)", "Guarded(t(0, 1.0), {n})",
    "Slotted(t(1, 2.0), {n})", "Record(t(3, 1.0), {n})",
)  # fmt: skip


_ALIASES = (
    *["y = t(i, 1.0)"] * 10, *["y = x"] * 3, *["y = xs[0]"] * 3, "y = x.view(2, 3)", "y = x.detach()",
    "xs = [x] * 2; y = x",
    "both = torch.arange(9.0).view(3, 3) - i; x, y = both[:2], both[1:]", "x = t(i, 1.0).view(3, 2).t(); y = x[:]",
    "both = t(i, 1.0).repeat(1, 2); x, y = both[:, :3], both[:, 3:]", "y = t(i, 1.0)[:1].expand(2, 3)",
    "xs = [x, x.view(2, 3), x[:]]; y = xs[2]", "y = t(i, 1.0); xs = [y, y, x]",
)  # fmt: skip
"""How the tensors of a call share memory."""

_LINKS = (
    *["pass"] * 20, "o.tags = ns", "o.t = x", "dt['b'] = xs[0]", "TABLE['l'] = ns", "LOG.append(ns)", "TABLE['ab'] = x",
    "o.items = xs", "r = x.view(-1, 3)", "r = xs[-1]", "r.requires_grad_()", "torch._dynamo.maybe_mark_dynamic(r, 0)",
    "torch._dynamo.mark_static(r, 0)", "torch._dynamo.mark_static(x)", "torch._dynamo.mark_dynamic(r, 0)",
    "elsewhere.PARTS = ns",
)  # fmt: skip
"""What else holds an argument of the call, and what it is marked with."""

_OPTIONS = (*["{}"] * 18, "{'dynamic': True}", "{'dynamic': False}")
"""What the function is compiled with."""


def make_calls(rng: random.Random) -> str:
    """`make_calls()`: the arguments of two or three calls, which differ in values, numbers and lengths."""
    n = rng.randint(0, 5)
    made = rng.choice(_OBJECTS).format(n=rng.randint(0, 4))
    return _CALLS.format(
        count=rng.choice([2, 3, 3]), a=rng.randint(0, 5), grow=rng.randint(0, 2), length=rng.randint(1, 3),
        longer=rng.randint(0, 1), alias=rng.choice(_ALIASES), link=rng.choice(_LINKS), options=rng.choice(_OPTIONS),
        ints=", ".join(str(rng.randint(-3, 9)) for _ in range(5)), ints_kept=rng.randint(0, 4),
        n=n, n_step=rng.choice([0, 0, 1, 2]), k=rng.randint(0, 4), parity=rng.randint(0, 1),
        view=rng.choice(["", ".view(2, 3)", " + 1"]), share=rng.choice(["True", "False", "i < 2"]), made_object=made,
        made_object_again=made, v=rng.choice(["0.5", "2.0", "-1.25"]), v_step=rng.choice(["0", "0", "0.5"]),
        rows=rng.randint(1, 4), more_rows=rng.choice([0, 0, 1, 2]),
        words=repr(rng.choice([("ab", "ab"), ("Hello", "wörld"), ("", "x y z"), ("key", "name")])),
    ).rstrip()  # fmt: skip
