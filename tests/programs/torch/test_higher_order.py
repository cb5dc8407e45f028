"""Operators of torch.ops.higher_order that programs call by name: part of the graph, nodes with graphs of their own, or
a break."""
# mypy: ignore-errors
from __future__ import annotations

import ptdebug
import pytest
import torch
import torch._higher_order_ops as operators
from ptdebug.tracer.variables.torch.higher_order.operator_table import OPERATORS
from torch._higher_order_ops.flat_apply import to_graphable
from torch._higher_order_ops.foreach_map import foreach_map
from torch._higher_order_ops.strict_mode import strict_mode
from torch._higher_order_ops.wrap import wrap

from ..checking import Programs, check, check_whole

NAMED = torch.ops.higher_order
WHOLE = Programs()
NO_GRADIENTS = Programs()
BROKEN = Programs()
GRAPH = torch.fx.symbolic_trace(lambda a, b: (a.sin() + b,))
ONE = torch.fx.symbolic_trace(lambda a, b: a.sin() + b)


def body(a, b=None, *, k=2.0):
    return (a * k).sin() + (0 if b is None else b)


def trained(compile, fn):
    """What `fn(x, y)` gives, without gradients and with them, and the gradients."""
    found = []
    for wanted in (False, True):
        f = compile(fn)
        x, y = (torch.linspace(start, 2.0, 9).view(3, 3).requires_grad_(wanted) for start in (-1.0, 0.5))
        out = f(x, y)
        if wanted and out.requires_grad:
            out.sum().backward()
        found += [out, out.requires_grad, x.grad, y.grad]
    return found


def whole(fn):
    WHOLE[fn.__name__] = lambda compile: trained(compile, fn)
    return fn


@whole
def wrap_of_a_function(x, y):
    return wrap(body, x, y, k=3.0)


@whole
def wrap_of_structures(x, y):
    out = wrap(lambda d, n: {"a": d["x"] + n, "b": (d["y"], 3)}, {"x": x, "y": y}, n=4)
    return out["a"] * out["b"][0] + out["b"][1]


@whole
def wrap_in_wrap_of_what_is_around(x, y):
    return wrap(lambda a: wrap(lambda b: b + y, a) * 2, x)


@whole
def wrap_that_changes_what_is_around(x, y):
    log, z = [], x * 1
    out = wrap(lambda a: (log.append(a.shape[0]), z.add_(1), a * y)[2], x)
    return out * z + log[0]


@whole
def a_wrapper_of_a_function(x, y):
    return NAMED.dynamo_bypassing_wrapper(lambda f: lambda *a, **k: f(*a, **k) * 2, body, x, y, k=5.0)


@whole
def with_gradients_off(x, y):
    return NAMED.wrap_with_set_grad_enabled(False, body, x, y) + x


@whole
def with_gradients_on(x, y):
    with torch.no_grad():
        return NAMED.wrap_with_set_grad_enabled(True, body, x, y, k=1.5)


@whole
def with_autocast(x, y):
    return NAMED.wrap_with_autocast("cpu", torch.bfloat16, True, None, lambda a, b: a @ b, x, y.t()).float()


@whole
def with_autocast_by_keywords(x, y):
    words = {"device_type": "cpu", "dtype": torch.bfloat16, "enabled": True, "cache_enabled": True}
    return NAMED.wrap_with_autocast(wrapped_func=lambda: x @ y.t(), **words).float()


@whole
def a_tagged_checkpoint(x, y):
    return NAMED.tag_activation_checkpoint(ONE, x, y) * 2


@whole
def a_wrapped_checkpoint(x, y):
    return NAMED.wrap_activation_checkpoint(ONE, x, y) * 2


@whole
def cond_by_keywords(x, y):
    branches = {"true_fn": lambda a: (a + 1,), "false_fn": lambda a: (a * 2,)}
    return NAMED.cond(pred=x.sum() > 0, operands=(x,), **branches)[0] + torch.cond(
        pred=y.sum() > 0, true_fn=lambda: y + 1, false_fn=lambda: y * 2
    )


@whole
def a_quantized_function(x, y):
    return NAMED.invoke_quant(GRAPH, x, y, scheme="nf4")[0] + operators.InvokeQuant()(body, x, y, scheme="nf4")


@whole
def an_operator_of_flat_arguments(x, y):
    return NAMED.flat_apply(torch.ops.aten.add.Tensor, SPEC, x, y)


SPEC = to_graphable(((torch.ones(1), torch.ones(1)), {}))[1]


@whole
def a_map_by_position(x, y):
    return NAMED.map_impl(lambda a, b: (a + b,), (x,), (y[0],))[0]


@whole
def loops_by_position(x, y):
    start = (torch.tensor(0), x.detach())
    functions = (lambda i, a: i < 3, lambda i, a: (i + 1, a.sin()))
    last, every = NAMED.while_loop(*functions, start, ()), NAMED.while_loop_stack_output(*functions, start, ())
    return last[1] + every[1].sum(0)


@whole
def prints(x, y):
    operators.print("before {} {y}", x.shape[0], y=y.sum() > 3)
    z = x * y
    operators.print("after {}", z[0, 0] > 3)
    return z


@WHOLE
def a_hook_of_more_than_the_gradient(compile):
    register_hook_op = pytest.importorskip("torch._higher_order_ops.register_hook").register_hook_op

    def fn(x, y):
        return register_hook_op(x.sin(), lambda grad, factor: grad * factor, y.detach()) * 2

    x = torch.arange(3.0, requires_grad=True)
    compile(fn)(x, x + 1).sum().backward()
    return x.grad


def untracked(fn):
    NO_GRADIENTS[fn.__name__] = fn
    return fn


@untracked
def hints(x, y):
    return NAMED.hints_wrapper(lambda a, b: a.sin() + b, (x, y), {}, hints={"n": 1})


@untracked
def strict(x, y):
    return strict_mode(lambda a, b: a.sin() + b, (x, y))


@untracked
def another_dtype(x, y):
    product = NAMED.out_dtype(torch.ops.aten.mm.default, torch.float64, x, y.t())
    return product + NAMED.out_dtype(torch.ops.aten.mul.Tensor, torch.int32, x.to(torch.int8), y.to(torch.int8))


@untracked
def constants(x, y):
    return NAMED.run_const_graph(GRAPH, (x, y))[0]


@untracked
def for_each(x, y):
    return foreach_map(torch.add, [x, y], [y, x])[0] * foreach_map(lambda a, b: a.sin() * b, [x, y], 2.0)[1]


@untracked
def subgraph(x, y):
    return NAMED.invoke_subgraph(lambda a, b: (a + b,), "name", x, y)[0]


@BROKEN
def an_operator_of_the_compiler(compile):
    def fn(x):
        return NAMED.auto_functionalized(torch.ops.aten.add.Tensor) if x.shape[0] == 7 else (
            NAMED.run_with_rng_state(STATE, torch.ops.aten.rand.default, [2], device=torch.device("cpu")) + x
        )

    return compile(fn)(torch.ones(2))


STATE = torch.get_rng_state()


@BROKEN
def arguments_that_do_not_fit(compile):
    def fn(x):
        try:
            return NAMED.hints_wrapper(body, (x,), {"k": 3}, hints={})
        except (RuntimeError, TypeError) as error:
            return str(error)

    return compile(fn)(torch.ones(2))


@pytest.mark.parametrize("name", WHOLE)
def test_operators_that_take_functions_are_captured_whole(name):
    check_whole(WHOLE[name])


@pytest.mark.parametrize("name", NO_GRADIENTS)
def test_operators_without_gradients_are_captured_whole_where_there_are_none(name):
    def program(compile):
        return compile(NO_GRADIENTS[name])(torch.arange(9.0).view(3, 3), torch.ones(3, 3))

    check_whole(program)


@pytest.mark.parametrize("name", ("hints", "strict", "another_dtype", "constants"))
def test_a_backward_through_an_operator_without_gradients_raises_as_in_eager(name):
    x, y = torch.arange(9.0, requires_grad=True), torch.ones(9)
    x, y = x.view(3, 3), y.view(3, 3)
    with pytest.raises(RuntimeError, match="Autograd not implemented"):
        ptdebug.compile(NO_GRADIENTS[name])(x, y).sum().backward()


@pytest.mark.parametrize("name", BROKEN)
def test_other_operators_are_left_to_eager(name):
    check(BROKEN[name])


def test_the_table_has_every_operator_that_torch_has():
    own = {op.name() for op in torch._ops._higher_order_ops.values() if type(op).__module__.startswith("torch.")}
    assert own - {"trace_wrapped"} <= set(OPERATORS)


def test_a_graph_that_has_printed_does_not_run_again(capsys):
    def fn(table, place):
        operators.print("looked up {}", 1)
        return table[place] * 2

    with pytest.raises(IndexError):
        ptdebug.compile(fn, fullgraph=True)(torch.arange(3.0), torch.tensor([7]))
    assert capsys.readouterr().out == "looked up 1\n"


def test_a_reason_names_the_operator_and_why():
    def fn(x):
        return NAMED.run_with_rng_state(STATE, torch.ops.aten.rand.default, [2], device=torch.device("cpu")) + x

    with pytest.raises(Exception, match="run_with_rng_state, which only torch's own compiler puts into graphs"):
        ptdebug.compile(fn, fullgraph=True)(torch.ones(2))


