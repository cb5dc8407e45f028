"""Faults of the wrapper, which allocates buffers, calls kernels and libraries, and returns."""
from __future__ import annotations

from ..fault import Edit, Fault

MODULE = "ptdebug.engine.codegen.wrapper"
WRAPPER = ("wrapper",)
WHOLE = "(compile:graph|wrapper:graph)"


def _fault(name: str, program: str, old: str, new: str, decision: str = WHOLE, module: str = MODULE,
           stages: tuple[str, ...] = WRAPPER) -> Fault:
    return Fault(name, stages, decision, program, (Edit(module, old, new),))


FAULTS = (
    _fault("result_with_turned_strides", """
def f(x, y):
    z = x * y  # here
    return z

def calls():
    return [(torch.randn(12, 12), torch.randn(12, 12))]
""", 'return f"empty_cpu({size}, {stride}, {buffer.dtype})"',
           'return f"empty_cpu({size}, {self.sizes(buffer.stride[::-1])}, {buffer.dtype})"',
           "(lowering:mul|compile:graph|wrapper:graph)"),  # ATen allocates what it computes
    _fault("results_in_reverse", """
def f(x, y):
    a = x * y
    b = x - y
    return a, b

def calls():
    return [(torch.randn(8, 8), torch.randn(8, 8))]
""", "given = [made[id(output)] for output in self.aten.outputs]",
           "given = [made[id(output)] for output in self.aten.outputs][::-1]"),
    _fault("new_value_of_an_input_not_copied", """
def f(a, b):
    t = a + 1
    a.copy_(b * 2)
    b.copy_(t)
    return t

def calls():
    return [(torch.randn(8, 8), torch.randn(8, 8))]
""", 'self.line(f"{name}.copy_({source})")', 'self.line(f"{name}.to({source}.dtype)")'),
    _fault("size_read_from_another_dimension", """
def f(x):
    y = x * 2
    return y.sum(0) + x.shape[1]

def calls():
    return [(torch.randn(4, 6),), (torch.randn(4, 7),), (torch.randn(4, 9),)]
""", '"size": f"{owner}.shape[{dimension}]"', '"size": f"{owner}.shape[{dimension} - 1]"',
           "(dynamic|compile|frame|wrapper).*"),
    _fault("offset_of_an_argument_lost", """
def f(x, w):
    y = x * 2
    z = y[3:] @ w  # here
    return z + y.sum()

def calls():
    return [(torch.randn(11, 8), torch.randn(8, 8))]
""", "{self.sizes(view.stride)}, {self.expr(view.offset)})", "{self.sizes(view.stride)}, 0)"),
    _fault("matrices_exchanged", """
def f(x, w):
    y = x * 2
    z = y @ w  # here
    return z + 1

def calls():
    return [(torch.randn(64, 64), torch.randn(64, 64))]
""", "args = [self.argument(a) for a in call.args]",
           'args = [self.argument(a) for a in (call.args[::-1] if "mm" in str(call.target) else call.args)]'),
    _fault("saved_values_exchanged", """
def f(x, y):
    z = x * y.exp()  # here
    return z

def calls():
    return [(torch.randn(8, 8, requires_grad=True), torch.randn(8, 8, requires_grad=True))]
""", "        saved: Sequence[torch.Tensor] = ctx.saved_tensors\n",
           "        saved: Sequence[torch.Tensor] = ctx.saved_tensors[::-1]\n",
           module="ptdebug.engine.aot.autograd.function", stages=("wrapper", "backward", "runtime")),
)
