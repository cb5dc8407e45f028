"""Faults of scheduling: fusion of what must not share loops, memory that is used twice, kernels in a wrong order."""
from __future__ import annotations

from ..fault import Edit, Fault

ROOM = "ptdebug.engine.scheduler."
AFTER_LOOPS = ("schedule", "fusion", "kernels", "wrapper")


def _fault(name: str, decision: str, program: str, *edits: tuple[str, ...], stages: tuple[str,
           ...] = AFTER_LOOPS) -> Fault:
    return Fault(name, stages, decision, program, tuple(
        Edit(module if "." in module else ROOM + module, *changes) for module, *changes in edits))


FAULTS = (
    _fault("fusion_ignores_a_flip", "fuse:.*", """
def f(x):
    y = (x * 2).sum(1)
    z = y.flip(0) - y  # here
    return y, z

def calls():
    return [(torch.randn(300, 400),)]
""", ("legality", "if store.form.const != load.form.const:", "if False:",
            "if left is None or right is None or left != right:", "if left is None or right is None:")),
    _fault("fusion_ignores_a_transposition", "fuse:.*", """
def f(x):
    y = (x * 2).sum(2)
    z = y.t() * y  # here
    return y, z

def calls():
    return [(torch.randn(64, 64, 50),)]
""", ("legality", "if left is None or right is None or left != right:", "if left is None or right is None:")),
    _fault("written_over_what_is_read", "in-place:.*", """
def f(x, w):
    y = x @ w
    z = y + y.flip(0)  # here
    return z

def calls():
    return [(torch.randn(64, 32), torch.randn(32, 48))]
""", ("in_place", "if any(load.form != stores[0].form for load in accesses(writer).loads.get(old, ())):", "if False:")),
    _fault("memory_reused_while_alive", "(reuse|in-place):.*", """
def f(x, w, v):
    a = x.softmax(1)
    b = a @ w
    c = b.flip(0) * 2
    d = c @ v
    return d + a  # here

def calls():
    return [(torch.randn(64, 64), torch.randn(64, 64), torch.randn(64, 64))]
""", ("memory", "            last[name] = position\n", "            last.setdefault(name, position)\n"),
           ("ptdebug.engine.codegen.wrapper", "{name} = {view}; del {old}  #", "{name} = {view}  #")),
    _fault("needed_buffer_never_stored", "(fuse|realize|lowering|compile):.*", """
def f(x, w):
    a = x.softmax(1)  # here
    b = a @ w
    return b + 1

def calls():
    return [(torch.randn(64, 64), torch.randn(64, 64))]
""", ("ptdebug.engine.scheduler", "return name in kept or bool(readers.get(name, set()) - {node.id})",
            "return name in kept")),
    _fault("strided_loops_collapsed", "(fuse|lowering|compile):.*", """
def f(x):
    y = x[:, :5] * 2  # here
    return y

def calls():
    return [(torch.randn(8, 9),)]
""", ("finalize", "if a is None or b is None or size(b * extent) != a:", "if a is None or b is None:")),
    _fault("horizontal_moves_before_its_input", "horizontal-fusion:.*", """
def f(xs, w):
    ys = [x * x.sigmoid() for x in xs]
    z = ys[0] @ w
    last = z * z.sigmoid()  # here
    return [*ys, z, last]

def calls():
    return [([torch.randn(100, 64 + k) for k in range(5)], torch.randn(64, 90))]
""", ("horizontal", "needed = [self._written.get(n, -1) for n in reads] +", "needed = []  + ")),
    _fault("column_sum_drops_a_row", "(split-reduction|column-sum):.*", """
def f(x, y):
    z = x * y
    a = z.sum(0)  # here
    b = z.sum(1)
    return a, b

def calls():
    return [(torch.randn(300, 200), torch.randn(300, 200))]
""", ("ptdebug.engine.codegen.cpp.loops", 'name}[k] = 0;")', 'name}[k] = 1;")')),
)
