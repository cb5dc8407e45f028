"""Faults between capture and lowering: decompositions, functionalization, autograd, partitioning, passes, libraries."""
from __future__ import annotations

from ..fault import Edit, Fault

AOT, PASSES = "ptdebug.engine.aot.", "ptdebug.engine.passes."
FORWARD, JOINT, PASSED = ("forward",), ("joint",), ("passes",)
WHOLE = "(compile:graph|frame:.*)"


def _fault(name: str, stages: tuple[str, ...], decision: str, program: str, module: str, old: str, new: str) -> Fault:
    return Fault(name, stages, decision, program, (Edit(module, old, new),))


DECOMPOSITIONS = (
    _fault("huber_without_its_half", FORWARD, "decompose:aten.huber.*", """
def f(x, y):
    a = x * 2
    b = F.huber_loss(a, y)  # here
    return b + 1

def calls():
    return [(torch.randn(8, 16), torch.randn(8, 16))]
""", AOT + "decompositions.composite", "0.5 * gap * gap,", "gap * gap,"),
    _fault("cross_entropy_of_ignored_classes", JOINT, "decompose:aten.nll_loss_backward.*", """
def f(x, target):
    a = x * 2
    b = F.cross_entropy(a, target, ignore_index=2)  # here
    return b

def calls():
    return [(torch.randn(6, 5, requires_grad=True), torch.tensor([0, 2, 1, 4, 2, 3]))]
""", AOT + "decompositions.composite", "(classes == wanted) & (wanted != ignore_index)",
           "(classes == wanted) & (wanted != -ignore_index)"),
    _fault("softmax_gradient_of_another_row", JOINT, "decompose:aten._softmax_backward.*", """
def f(x, y):
    a = x * y
    b = a.softmax(0)  # here
    return b * y

def calls():
    return [(torch.randn(6, 5, requires_grad=True), torch.randn(6, 5))]
""", AOT + "decompositions.composite", "(grad - (grad * result).sum(dim, keepdim=True))",
           "(grad - (grad * result).sum(-1, keepdim=True))"),
    _fault("sigmoid_gradient_without_a_factor", JOINT, "decompose:aten.sigmoid_backward.*", """
def f(x, y):
    a = x * y
    b = a.sigmoid()  # here
    return b * y

def calls():
    return [(torch.randn(6, 5, requires_grad=True), torch.randn(6, 5))]
""", AOT + "decompositions.gradients", "return grad * (1 - result) * result\n", "return grad * (1 - result) * 1.0\n"),
    _fault("angle_of_zero", FORWARD, "decompose:aten.angle.*", """
def f(x):
    a = x * 2
    b = a.angle()  # here
    return b + 1

def calls():
    return [(torch.tensor([-2.0, 0.0, 1.0, 3.0]),)]
""", AOT + "decompositions.composite", "aten.where.ScalarOther(aten.lt.Scalar(x, 0)",
           "aten.where.ScalarOther(aten.le.Scalar(x, 0)"),
    _fault("upsampling_gradient_of_the_mean", JOINT, "decompose:aten.upsample.*", """
def f(x):
    a = x.sin()
    b = F.interpolate(a, scale_factor=2)  # here
    return b * 2

def calls():
    return [(torch.randn(1, 2, 4, 4, requires_grad=True),)]
""", AOT + "decompositions.upsampling", "return aten.sum.dim_IntList(aten.reshape.default(grad, shape)",
           "return aten.mean.dim(aten.reshape.default(grad, shape)"),
    _fault("scatter_reduce_includes_itself", FORWARD, "decompose:aten.scatter_reduce.*", """
def f(x, i, s):
    a = x * 2
    b = a.scatter_reduce(0, i, s, "sum", include_self=False)  # here
    return b + 1

def calls():
    return [(torch.randn(6), torch.tensor([0, 2, 2, 5]), torch.randn(4))]
""", AOT + "decompositions.composite", 'if reduce != "sum" or not include_self:', 'if reduce != "sum":'),
    _fault("running_statistics_exchanged", FORWARD, "(decompose:aten._native_batch_norm|compile).*", """
def f(x, mean, var):
    a = x * 2
    b = F.batch_norm(a, mean, var, training=True)  # here
    return b + 1

def calls():
    return [(torch.randn(6, 3, 4, 4), torch.zeros(3), torch.ones(3))]
""", AOT + "decompositions.composite", "return (*first, mean.to(kept[0]), spread.to(kept[1]))",
           "return (*first, spread.to(kept[0]), mean.to(kept[1]))"),
    _fault("masked_assignment_of_the_rest", FORWARD, WHOLE, """
def f(x, mask):
    a = x * 2
    a[mask] = 1.0  # here
    return a + 1

def calls():
    return [(torch.randn(6, 4), torch.randn(6, 4) > 0)]
""", AOT + "decompositions.masked", "value, x))", "x, value))"),
)

FUNCTIONAL = (
    _fault("second_mutation_missed", FORWARD, WHOLE, """
def f(x, y):
    x.add_(1)
    y.mul_(2)  # here
    return x + y

def calls():
    return [(torch.randn(6, 4), torch.randn(6, 4))]
""", AOT + "output_aliasing", "            mutated.append(i)",
           "            mutated.append(i) if not mutated else None"),
    _fault("view_of_an_input_moved", ("forward", "wrapper"), WHOLE, """
def f(x):
    y = x * 2
    return y, x[2:4]

def calls():
    return [(torch.randn(8, 4),)]
""", AOT + "output_aliasing", "tuple(layout.stride()), layout.storage_offset(), layout.dtype",
           "tuple(layout.stride()), layout.storage_offset() + 1, layout.dtype"),
)

AUTOGRAD = (
    _fault("gradient_of_the_second_result_lost", JOINT, WHOLE, """
def f(x):
    a = x.sin()
    b = x.cos() * 3  # here
    return a, b

def calls():
    return [(torch.randn(6, 4, requires_grad=True),)]
""", AOT + "autograd.joint", "found = torch.autograd.grad(roots, edges, tangents, allow_unused=True)",
           "found = torch.autograd.grad(roots[:1], edges, tangents[:1], allow_unused=True)"),
    _fault("gradients_in_reverse", ("partition", "backward"), WHOLE, """
def f(x, y):
    a = x * y.exp()
    return a

def calls():
    return [(torch.randn(6, 4, requires_grad=True), torch.randn(6, 4, requires_grad=True))]
""", AOT + "autograd.extract_forward_backward", "if isinstance(g, Node) else g for g in gradients))",
           "if isinstance(g, Node) else g for g in gradients[::-1]))"),
    _fault("saved_in_another_order", ("partition", "backward", "forward"), WHOLE, """
def f(x):
    a = x.exp()
    b = a.softmax(1)
    c = b.tanh()
    return c

def calls():
    return [(torch.randn(6, 4, requires_grad=True),)]
""", AOT + "autograd.extract_forward_backward", "    for node in cut.saved:\n        if node in inputs:",
           "    for node in cut.saved[::-1]:\n        if node in inputs:"),
)

OF_PASSES = (
    _fault("times_two_is_no_op", PASSED, "pass:no-ops.*", """
def f(x, y):
    a = x.sin()
    b = a * 2  # here
    return b + y

def calls():
    return [(torch.randn(8, 16), torch.randn(8, 16))]
""", PASSES + "no_ops", "and factor == number and", "and factor in (number, 2) and"),
    _fault("common_but_for_a_keyword", PASSED, "pass:common-subexpressions.*", """
def f(x, y):
    a = x.add(y, alpha=2)
    b = x.add(y, alpha=5)  # here
    return a * b

def calls():
    return [(torch.randn(8, 16), torch.randn(8, 16))]
""", PASSES + "common_subexpressions", "_hashable(node.args), _hashable(node.kwargs))", "_hashable(node.args), ())"),
    _fault("constants_folded_without_keywords", PASSED, "pass:constant-folding.*", """
def f(x):
    c = torch.tensor([1.0, 2.0, 3.0])
    d = c.add(c, alpha=3)  # here
    return x * d

def calls():
    return [(torch.randn(8, 3),)]
""", PASSES + "constant_folding", "result = node.target(*args, **kwargs)", "result = node.target(*args)        "),
    _fault("bias_subtracted", PASSED, "unfuse-addmm:.*", """
def f(x, w, b):
    a = F.linear(x, w, b)  # here
    return a.relu()

def calls():
    return [(torch.randn(8, 16), torch.randn(24, 16), torch.randn(24))]
""", PASSES + "extern_kernels.addmm_unfusing", "nodes.call_function(aten.add.Tensor, (product, bias))",
           "nodes.call_function(aten.sub.Tensor, (product, bias))"),
    _fault("shared_matrix_turned", PASSED, "bmm-to-mm:.*", """
def f(x, w):
    a = x.transpose(0, 1)
    b = a @ w  # here
    return b + 1

def calls():
    return [(torch.randn(8, 6, 32), torch.randn(32, 32))]
""", PASSES + "extern_kernels.bmm_to_mm", "product = call(aten.mm.default, flat, matrix)",
           "product = call(aten.mm.default, flat, call(aten.t.default, matrix))"),
    _fault("last_term_of_a_small_product", PASSED, "lowering:mm.*", """
def f(x, w):
    a = x * 2
    b = a @ w  # here
    return b + 1

def calls():
    return [(torch.randn(5000, 3), torch.randn(3, 4))]
""", PASSES + "extern_kernels.small_matmul", "term, term + 1)) for term in range(terms)]",
           "term, term + 1)) for term in range(terms - 1)]"),
    _fault("cache_written_in_the_whole_row", PASSED, "in-place:.*", """
def f(cache, v):
    cache[1, 2] = v  # here
    return cache * 2

def calls():
    return [(torch.randn(4, 8, 16), torch.randn(16))]
""", PASSES + "reinplace", "for operator, numbers in write.views:", "for operator, numbers in write.views[:1]:"),
)

FAULTS = (*DECOMPOSITIONS, *FUNCTIONAL, *AUTOGRAD, *OF_PASSES)
