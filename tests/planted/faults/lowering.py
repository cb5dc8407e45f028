"""Faults of lowering: the loop IR computes something else than the ATen graph does."""
from __future__ import annotations

from ..fault import Edit, Fault

ROOM = "ptdebug.engine.lowering."
LOOPS = ("loop_ir",)


def _fault(name: str, decision: str, program: str, module: str, old: str, new: str, more: tuple[Edit,
           ...] = ()) -> Fault:
    return Fault(name, LOOPS, decision, program, (Edit(ROOM + module, old, new), *more))


FAULTS = (
    _fault("flip_wraps_early", "lowering:flip.*", """
def f(x):
    y = x + 1
    z = y.flip(1)  # here
    return z * 2

def calls():
    return [(torch.randn(8, 16),)]
""", "views", "constant(size(x.size[d] - 1)) - i if d in turned else i",
           "(constant(size(x.size[d] - 1)) - i) % size(x.size[d] - 1) if d in turned else i"),
    _fault("leaky_relu_slope", "lowering:leaky_relu.*", """
def f(x, y):
    a = x * y
    b = F.leaky_relu(a, 0.1)  # here
    return b + y

def calls():
    return [(torch.randn(8, 16), torch.randn(8, 16))]
""", "activations", 'x, e("mul", x, negative_slope))', 'x, e("mul", x, -negative_slope))'),
    _fault("gelu_cube", "lowering:gelu.*", """
def f(x, y):
    a = x.sin() * 3
    b = F.gelu(a, approximate="tanh")  # here
    return b - y

def calls():
    return [(torch.randn(8, 16), torch.randn(8, 16))]
""", "activations", 'e("mul", cube, 0.044715)', 'e("mul", cube, 0.44715)'),
    _fault("permute_inverse", "(lowering|compile):.*", """
def f(x, y):
    z = x.permute(1, 2, 0) * y  # here
    return z + 1

def calls():
    return [(torch.randn(6, 6, 6), torch.randn(6, 6, 6))]
""", "views", "back = [order.index(d) for d in range(rank)]", "back = [order[d] for d in range(rank)]"),
    _fault("slice_start_by_step", "(lowering|compile):.*", """
def f(x, y):
    z = x[:, 1:7:2] * y  # here
    return z.relu()

def calls():
    return [(torch.randn(8, 16), torch.randn(8, 3))]
""", "views", "index[at] * step + begin,)", "index[at] * step + begin * step,)"),
    _fault("repeat_spreads", "lowering:repeat.*", """
def f(x):
    y = x.sin()
    z = y.repeat(2, 1)  # here
    return z + 1

def calls():
    return [(torch.randn(8, 4),)]
""", "views", "tuple([i % s for i, s in zip(index[extra:], x.size)])",
           "tuple([i // 2 if s > 4 else i % s for i, s in zip(index[extra:], x.size)])"),
    _fault("cat_end_off_by_one", "(concat|lowering):cat.*", """
def f(x, y):
    a = torch.cat([x, y], 1)  # here
    return a * 3

def calls():
    return [(torch.randn(8, 5), torch.randn(8, 6))]
""", "concat", "starts[n] if n else None, starts[n + 1])", "starts[n] if n else None, size(starts[n + 1] - 1))"),
    _fault("where_swapped_makes_nan", "lowering:where.*", """
def f(x):
    mask = x > 0
    logs = x.log()
    y = torch.where(mask, logs, 0.0)  # here
    return y * 2

def calls():
    return [(torch.linspace(-2, 2, 40).view(5, 8),)]
""", "activations", 'return e("where", c, x, y)', 'return e("where", c, y, x)'),
    _fault("pad_shifted", "lowering:constant_pad.*", """
def f(x):
    y = F.pad(x, (2, 1), value=7.0)  # here
    return y + 0.5

def calls():
    return [(torch.randn(4, 9),)]
""", "concat", "moved = tuple([i - before[d] if d in before else i for d, i in enumerate(index)])",
           "moved = tuple([i - before[d] // 2 if d in before else i for d, i in enumerate(index)])"),
    _fault("mean_counts_one_more", "lowering:mean.*", """
def f(x):
    y = x * 2
    m = y.mean(1, keepdim=True)  # here
    return y - m

def calls():
    return [(torch.randn(8, 16),)]
""", "reductions", "    count = product(x.size[d] for d in over)\n\n    wide",
           "    count = size(product(x.size[d] for d in over) + 1)\n\n    wide"),
    _fault("sum_in_narrow_dtype", "lowering:sum.*", """
def f(x):
    y = x * 2
    z = y.sum(1)  # here
    return z + 1

def calls():
    return [(torch.full((4, 8), 2**29, dtype=torch.int32),)]
""", "reductions", '_simple("sum", lambda source, result: result)', '_simple("sum", lambda source, result: source)'),
    _fault("comparison_not_promoted", "lowering:ge.*", """
def f(n, x):
    m = n >= 0.5  # here
    return torch.where(m, x, -x)

def calls():
    return [(torch.arange(-8, 8).view(4, 4), torch.randn(4, 4))]
""", "pointwise", 'promoted(operands) if dtype == "promoted" else fake.dtype',
           'operands[0].dtype if dtype == "promoted" else fake.dtype'),
    _fault("layer_norm_without_eps_is_nan", "(lowering:native_layer_norm|variance).*", """
def f(x, w):
    a = x * 0 + 3
    y = F.layer_norm(a, (16,), w)  # here
    return y * 2

def calls():
    return [(torch.randn(8, 16), torch.randn(16))]
""", "normalization", 'e("add", e("truediv", squares, _count(e, count, wide)), eps))',
           'e("add", e("truediv", squares, _count(e, count, wide)), 0.0))'),
    _fault("roll_other_way", "lowering:roll.*", """
def f(x):
    y = x + 1
    z = y.roll(3, 0)  # here
    return z * 2

def calls():
    return [(torch.randn(8, 4),)]
""", "views", "back: Size = -shift % extent", "back: Size = +shift % extent"),
    _fault("diagonal_of_the_other_side", "(lowering|compile):.*", """
def f(x):
    d = x.diagonal(2) * 3  # here
    return d + 1

def calls():
    return [(torch.randn(6, 6),)]
""", "views", "index[-1] + max(-shift, 0), index[-1] + max(shift, 0)",
           "index[-1] + max(shift, 0), index[-1] + max(-shift, 0)"),
    _fault("select_from_the_end", "(lowering|compile):.*", """
def f(x, y):
    z = x[-1] * y  # here
    return z.cos()

def calls():
    return [(torch.randn(6, 6), torch.randn(6))]
""", "views", "position if position >= 0 else size(extent + position)\n    if position.is_nonnegative",
           "position if position >= 0 else size(extent + position - 1)\n    if position.is_nonnegative"),
    _fault("avg_pool_padding_uncounted", "lowering:avg_pool.*", """
def f(x):
    y = x.relu()
    z = F.avg_pool2d(y, 3, 2, 1)  # here
    return z * 2

def calls():
    return [(torch.randn(2, 3, 7, 7),)]
""", "pooling", "first + k, None, given + p if with_padding else given)",
           "first + k, None, given if with_padding else given + p)"),
    _fault("index_in_the_first_dimension", "lowering:index.*", """
def f(x, i):
    y = x[:, i]  # here
    return y * 2

def calls():
    return [(torch.randn(6, 6), torch.tensor([5, 0, 2, 2, 1, 3]))]
""", "indexing", "first = dims[0] if dims and dims == list(range(dims[0], dims[-1] + 1)) else 0", "first = 0"),
    _fault("embedding_gradient_of_padding", "lowering:(backward.)?embedding_dense_backward.*", """
def f(w, i):
    e = F.embedding(i, w, padding_idx=0)  # here
    return e * 2

def calls():
    return [(torch.randn(10, 4, requires_grad=True), torch.tensor([3, 0, 0, 7, 9]))]
""", "scatter", "if padding < 0:", "if padding < 1:"),
    _fault("as_strided_turned", "(lowering|compile):.*", """
def f(x):
    y = x * 2
    z = y.as_strided((3, 5), (2, 4)) + 1  # here
    return z

def calls():
    return [(torch.randn(6, 6),)]
""", "views", "place = offset(index, stride) + begin", "place = offset(index, stride[::-1]) + begin"),
    _fault("softplus_above_threshold", "lowering:softplus.*", """
def f(x):
    y = x * 10
    z = F.softplus(y, threshold=5)  # here
    return z - 1

def calls():
    return [(torch.randn(8, 16),)]
""", "activations", 'e("gt", scaled, threshold), x,', 'e("lt", scaled, threshold), x,'),
    _fault("max_pool_ignores_dilation", "lowering:max_pool.*", """
def f(x):
    y = x.cos()
    z = F.max_pool2d(y, 2, 1, 0, 2)  # here
    return z * 2

def calls():
    return [(torch.randn(1, 2, 8, 8),)]
""", "pooling", "[o * s + (at * d - p) for o", "[o * s + (at - p) for o"),
)
