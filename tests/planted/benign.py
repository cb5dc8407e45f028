"""Right programs: 60 whose results differ from eager's by rounding alone, and 15 with arguments of every kind.

None may be called a bug. Each is a function; several go into one script and one recording.
"""
from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from . import driver

_BODIES = {
    "sum": "x.sum(1) * y.sum(0).mean()",
    "mean": "(x * y).mean(0)",
    "variance": "x.var(1) + y.std(0).mean()",
    "softmax": "(x * y).softmax(-1)",
    "log_softmax": "F.log_softmax(x + y, -1)",
    "layer_norm": "F.layer_norm(x * y, (48,))",
    "gelu": "F.gelu(x) * y",
    "silu": "F.silu(x * 3) * y",
    "chain": "((x * y + x) * y - x) / (1 + y.abs())",
    "addcmul": "torch.addcmul(x, y, x, value=0.3) * y",
    "lerp": "torch.lerp(x, y, 0.37) * x",
    "norm": "x / x.norm(dim=1, keepdim=True) + y",
    "logsumexp": "(x * y).logsumexp(1)",
    "cumsum": "(x * y).cumsum(1)",
    "tanh": "(x.exp() - y).tanh()",
    "power": "(x.abs() + 0.1) ** 1.7 - y",
    "rms": "x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-5) * y",
    "attention": "((x @ y.t()) / 7).softmax(-1) @ y",
    "cancel": "(x + 100.0) * (y + 100.0) - x * y - 10000.0",
    "group_norm": "F.group_norm((x * y).view(4, 8, -1), 4)",
    "cosine": "F.cosine_similarity(x, y, 1)",
    "exponentials": "x.exp().sum(0) * y",
    "binary": "F.binary_cross_entropy_with_logits(x, y.sigmoid())",
    "mish": "F.mish(x) * y",
    "distance": "(x - y).pow(2).sum(1).sqrt()",
    "cross_entropy": "F.cross_entropy(x * y, torch.arange(24))",
}
_DTYPES = ("float32", "bfloat16", "float16")


def _benign() -> dict[str, str]:
    """Each in each dtype; every other one is differentiated too."""
    found = {}
    for number, (name, body) in enumerate(_BODIES.items()):
        for dtype in _DTYPES:
            training = number % 2 == 1
            made = f"torch.randn(24, 48, dtype=torch.{dtype}{', requires_grad=True' if training else ''})"
            found[f"{name}_{dtype}{'_trained' if training else ''}"] = (
                f"def f(x, y):\n    return {body}\n\ndef calls():\n    return [({made}, {made})]\n")
    return found


BENIGN = _benign()

RIGHT: dict[str, str] = {
    "function_as_argument": """
def f(x, function):
    return function(x) + 1

def calls():
    x = torch.randn(8)
    return [(x, torch.sin), (x, torch.cos)]
""",
    "flags": """
def f(x, double=False):
    return x * 2 if double else x * 3

def calls():
    x = torch.randn(8)
    return [(x, True), (x, False)]
""",
    "equal_tensors_in_several_calls": """
def f(x, y):
    return x.sin() + y

def calls():
    x = torch.randn(8)
    return [(x, x), (x.clone(), x + 1), (x, x)]
""",
    "module": """
NET = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 4))

def f(x):
    return NET(x).softmax(1)

def calls():
    return [(torch.randn(6, 8),)]
""",
    "dropout": """
def f(x):
    return F.dropout(x, 0.5) * 2

def calls():
    return [(torch.randn(40, 8, requires_grad=True),)]
""",
    "data_dependent_size": """
def f(x):
    return x[x > 0] * 2

def calls():
    torch._dynamo.config.capture_dynamic_output_shape_ops = True
    return [(torch.randn(40),)]
""",
    "cond": """
def f(x):
    return torch.cond(x.sum() > 0, lambda x: x.sin(), lambda x: x.cos(), (x,))

def calls():
    return [(torch.randn(8),)]
""",
    "lstm": """
NET = torch.nn.LSTM(8, 6, 2)

def f(x):
    return NET(x)[0]

def calls():
    return [(torch.randn(5, 3, 8),)]
""",
    "checkpoint": """
from torch.utils.checkpoint import checkpoint

def f(x, w):
    return checkpoint(lambda x, w: (x @ w).sin().cos(), x, w, use_reentrant=False)

def calls():
    return [(torch.randn(6, 8, requires_grad=True), torch.randn(8, 4, requires_grad=True))]
""",
    "autograd_function": """
class Cube(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x * x

    @staticmethod
    def backward(ctx, gradient):
        (x,) = ctx.saved_tensors
        return gradient * 3 * x * x

def f(x):
    return Cube.apply(x.sin()) * 2

def calls():
    return [(torch.randn(8, requires_grad=True),)]
""",
    "written_input_that_overlaps": """
def f(a, b):
    a.add_(1)
    return b * 2

def calls():
    a = torch.randn(4, 6)
    return [(a, a.view(-1)), (a, a.t())]
""",
    "weight_norm": """
NET = torch.nn.utils.parametrizations.weight_norm(torch.nn.Conv1d(4, 6, 1))

def f(x):
    return NET(x)

def calls():
    return [(torch.randn(2, 4, 9),)]
""",
    "under_autocast": """
NET = torch.nn.Linear(8, 4)

def f(x):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return NET(x).relu()

def calls():
    return [(torch.randn(6, 8),)]
""",
    "after_a_graph_break": """
def f(x):
    y = x * 2
    torch._dynamo.graph_break()
    return y.sin() + x

def calls():
    return [(torch.randn(8),)]
""",
    "sizes_that_vary": """
def f(x):
    return x.softmax(1) * x.shape[1]

def calls():
    return [(torch.randn(4, n),) for n in (6, 7, 9)]
""",
}


@dataclass(frozen=True)
class Judged:
    """What replay said of one program: the verdict, and why where it is no good one."""

    name: str
    verdict: str
    why: str = ""

    @property
    def alarm(self) -> bool:
        """Whether a right program was accused, or could not be replayed."""
        return self.verdict not in ("equal", "rounding")


def judge(programs: Mapping[str, str], folder: Path) -> Iterator[Judged]:
    """Record each program, and replay it."""
    for name, program in programs.items():
        place = folder / name
        ran = driver.record(None, program, place)
        driver.forget_program(place)
        ended = driver.command(None, place, "replay", "r", "--json")
        found = driver.document(ended)
        if not found:
            yield Judged(name, "failed", f"{ran.errors.strip()[-200:]} | {ended.errors.strip()[-300:]}")
            continue
        rungs = [r for r in found["rungs"] if r["verdict"] == "different"]
        wrong = [f"{r.get('compile', '')} {r['stage']}: {r['why']}" for r in rungs]
        yield Judged(name, found["verdict"], "; ".join(wrong)[:300])


def as_text(judged: list[Judged]) -> str:
    """The alarms, and the totals."""
    lines = [f"{j.name}: {j.verdict}: {j.why}" for j in judged if j.alarm]
    counts = Counter(j.verdict for j in judged)
    told = ", ".join(f"{count} {verdict}" for verdict, count in counts.items())
    return "\n".join([*lines, f"{len(judged)} right programs: {told}; alarms: {len(lines)}"])


__all__ = ["BENIGN", "RIGHT", "Judged", "as_text", "judge"]
