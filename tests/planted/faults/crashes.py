"""Faults that do not compute anything: crashes, hangs, and internal errors, after which a graph runs in eager."""
from __future__ import annotations

from ..fault import Edit, Fault, Replace, text

CPP = "ptdebug.engine.codegen.cpp."

TANH = """
def f(x, y):
    a = x * y
    b = a.tanh()  # here
    return b + 1

def calls():
    return [(torch.randn(8, 16), torch.randn(8, 16))]
"""


def _tanh_is(text: str) -> Edit:
    """Kernels have this in the place of a tanh."""
    load = 'text = self._load(part, s) if s.op == "load" else'
    return Edit(CPP + "statements", load, f'text = {text} if s.op == "tanh" else {load.removeprefix("text = ")}')


def _in_a_kernel(name: str, shows: str, text: str) -> Fault:
    return Fault(name, ("kernels",), "lowering:tanh.*", TANH, (_tanh_is(text),), shows=shows)


FAULTS = (
    _in_a_kernel("kernel_reads_address_eight", "signal", 'f"*(volatile float*)8 + {self.value(part, s.args[0])}"'),
    _in_a_kernel("kernel_traps", "signal", 'f"(__builtin_trap(), {self.value(part, s.args[0])})"'),
    _in_a_kernel("kernel_never_ends", "hang", 'f"({{ volatile int on = 1; while (on) {{}} 0.0f; }})"'),
    Fault("search_for_fusions_never_ends", ("fusion", "schedule", "kernels"),
          "(compile:graph|frame:.*|realize:.*|lowering:.*)", """
def f(x):
    y = x * 2
    z = y.sum(1)
    return z + 1

def calls():
    return [(torch.randn(8, 16),)]
""", (Edit("ptdebug.engine.scheduler.fusion", "_, _, first, second = heapq.heappop(self._heap)",
           "_, _, first, second = self._heap[0]"),),
          shows="hang"),
    Fault("no_rule_for_erf", ("kernels",), "lowering:erf.*", """
def f(x, y):
    a = x * y
    b = a.erf()  # here
    return b + 1

def calls():
    return [(torch.randn(8, 16), torch.randn(8, 16))]
""", (Edit(CPP + "statements", "rule = OPERATORS.get(s.op)", 'rule = OPERATORS.get(s.op) if s.op != "erf" else None'),),
          shows="fallback", said="NotImplementedError"),
    Fault("lowering_raises", ("loop_ir",), "lowering:softplus.*", """
def f(x, y):
    a = x * y
    b = F.softplus(a)  # here
    return b + 1

def calls():
    return [(torch.randn(8, 16), torch.randn(8, 16))]
""", (Edit("ptdebug.engine.lowering.activations", 'scaled = e("mul", x, beta) if beta != 1 else x',
           'scaled = e("mul", x, beta) if beta != 1 else beta[0]'),),
          shows="fallback", said="TypeError"),
    Fault("cpp_does_not_compile", ("kernels",), "lowering:sign.*", """
def f(x, y):
    a = x * y
    b = a.sign()  # here
    return b + 1

def calls():
    return [(torch.randn(8, 16), torch.randn(8, 16))]
""", (Replace(CPP + "prelude", "FUNCTIONS", text("(x < T(0)))", "(x < T(0))"), "sign"),),
          shows="fallback", said="error"),
    Fault("pass_raises", ("passes",), "pass:common-subexpressions.*", """
def f(x):
    a = x.sin()
    b = x.sin()  # here
    return a * b

def calls():
    return [(torch.randn(8, 16),)]
""", (Edit("ptdebug.engine.passes.common_subexpressions", '        node.replace_all_uses_with(first)',
           '        node.replace_all_uses_with(first.name)'),),
          shows="fallback", said="Error"),
)
