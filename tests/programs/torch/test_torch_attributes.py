"""Attributes that programs set of tensors (`p.data`, `p.grad`) and of OrderedDicts (`state_dict()._metadata`), the
methods that all objects have, gradients clipped together, and tensors that are quantized."""
# mypy: ignore-errors

from __future__ import annotations

import copy
from collections import OrderedDict

import pytest
import torch
from torch import nn

from ..checking import Programs, call, check, check_whole

WHOLE, PROGRAMS = Programs(), Programs()


def _ones(*shape: int) -> nn.Parameter:
    return nn.Parameter(torch.ones(shape))


def _linear() -> nn.Linear:
    layer = nn.Linear(3, 3)
    with torch.no_grad():
        layer.weight.copy_(torch.arange(9.0).view(3, 3) / 9)
        layer.bias.fill_(0.5)
    return layer


@PROGRAMS
def a_parameter_whose_gradient_has_another_dtype(compile):
    """Where its data were replaced: torch would refuse to set that gradient."""
    parameter = _ones(3)
    (parameter * 2).sum().backward()
    parameter.data = parameter.data.bfloat16()

    def fn(x):
        return x * parameter, parameter.grad * 2

    def replaced(x):
        parameter.data = x
        return parameter * 3, parameter.grad

    return compile(fn)(torch.ones(3)), compile(replaced)(torch.ones(3).double()), parameter.dtype, parameter.grad.dtype


@PROGRAMS
def a_parameter_whose_data_is_of_inference_mode(compile):
    """It needs gradients, and may not be told so outside of the mode."""

    def fn(x, parameter):
        parameter.requires_grad_(len(x) > 2)
        with torch.inference_mode():
            parameter.data = torch.arange(3.0)
        return x + 1

    fn, given = compile(fn), [_ones(3), _ones(3)]
    results = [call(fn, torch.ones(n), p) for n, p in ((3, given[0]), (3, given[0]), (2, given[1]), (2, given[1]))]
    return results, [(p.requires_grad, p.is_inference()) for p in given]


@PROGRAMS
def an_input_with_other_data_gets_a_gradient(compile):
    """Its own, of autograd, and that of a view: `x.data = value` would not give it one."""

    def written(x, layer):
        x.data = x + 1
        x.add_(layer(x))

    def item(x, layer):
        x.data = x * 2
        x[0] = layer(x)[1]

    def view(x, layer):
        with torch.no_grad():
            x.data = x[:1]
            part = x.view(-1)
        return part._base is x, layer(x)

    given, layer = [torch.arange(6.0).view(2, 3) for _ in range(3)], _linear()
    results = [compile(fn)(x, layer) for fn, x in zip((written, item, view), given)]
    return results, given, [(x.requires_grad, x.is_leaf) for x in given]


class Rounded(torch.autograd.Function):
    @staticmethod
    def forward(ctx, a):
        return a.round() * 3

    @staticmethod
    def backward(ctx, gradient):
        return gradient * 2


@PROGRAMS
def a_function_of_a_parameter_with_other_data(compile):
    @compile
    def fn(x, y):
        w = torch.nn.Parameter(x.clone())
        w.data = y
        Rounded.apply(w).sin().sum().backward()
        return Rounded.apply(w), w.grad

    return fn(torch.ones(3), torch.arange(3.0))


@WHOLE
def the_data_of_an_input(compile):
    def fn(x):
        part = x[1:]
        x.data = x * 0
        part.add_(1)
        x.add_(5)
        return part, x

    x = torch.ones(4)
    view = x.view(2, 2)
    return compile(fn)(x), x, view


@WHOLE
def the_data_of_a_parameter_that_is_used_after(compile):
    w = _ones(3)

    @torch.no_grad()
    def fn(x):
        w.data = w + x
        w.mul_(2)
        return w * 3, w.requires_grad, w.is_leaf, w.shape, w.data, w.grad

    fast = compile(fn)
    return fast(torch.ones(3)), fast(torch.ones(3)), w


@WHOLE
def data_that_is_replaced_again(compile):
    w, v = _ones(3), _ones(3)

    def fn(x):
        y = x * 2
        w.data = y
        y.data = x * 5
        v.data = y
        v.data = w.data * 3
        y.add_(1)
        return y, w.data is v.data

    return compile(fn)(torch.ones(3)), w, v


@WHOLE
def data_that_changes_places(compile):
    w, v = _ones(3), nn.Parameter(torch.zeros(3))

    def fn():
        kept = w.data
        w.data = v.data
        v.data = kept
        return kept + 1

    return compile(fn)(), w, v


@WHOLE
def averages_of_weights(compile):
    ours, average = _linear(), copy.deepcopy(_linear())

    def fn(x):
        for p, q in zip(average.parameters(), ours.parameters()):
            p.data.mul_(0.9).add_(q.data, alpha=0.1)
            p.data = 0.5 * p.data + 0.5 * q.data * x.mean()
        return x * 2

    return compile(fn)(torch.ones(3)), list(average.parameters())


@PROGRAMS
def data_that_autograd_would_record(compile):
    w = _ones(3)

    def fn(x):
        w.data = w.data * 2
        return (w * x).sum()

    out = compile(fn)(torch.ones(3))
    out.backward()
    return out, w, w.grad


@PROGRAMS
def data_that_autograd_has_saved(compile):
    w, x = _ones(3), torch.ones(3, requires_grad=True)

    def fn(x):
        y = (w * x).sum()
        w.data = w.data * 2
        return y

    out = compile(fn)(x)
    out.backward()
    return out, w, w.grad, x.grad


@PROGRAMS
def what_torch_refuses(compile):
    w = _ones(3)

    def no_tensor(x):
        w.data = 3
        return x * 2

    def of_another_size(x):
        w.grad = torch.zeros(4)
        return x * 2

    def itself(x):
        w.grad = w
        return x * 2

    def of_another_type(x):
        w.data = w.data.double()
        return w.dtype

    return [call(compile(f), torch.ones(3)) for f in (no_tensor, of_another_size, itself, of_another_type)], w, w.grad


@WHOLE
def gradients_that_are_set(compile):
    w = _ones(3)
    w.grad = torch.ones(3)

    def fn(x):
        before = w.grad
        w.grad = None
        none = w.grad
        w.grad = x * 2
        tripled = w.grad * 3
        w.grad.add_(1)
        return before, none, tripled, w.grad

    found = compile(fn)(torch.ones(3))
    return found, w.grad, found[3] is w.grad


@WHOLE
def gradients_that_are_taken_away(compile):
    layer = _linear()
    layer(torch.ones(2, 3)).sum().backward()

    def fn(x):
        before = [p.grad.sum() for p in layer.parameters()]
        layer.zero_grad()
        return before, layer(x).sum()

    before, out = compile(fn)(torch.ones(2, 3))
    none = layer.weight.grad
    out.backward()
    return before, out, none, layer.weight.grad


@WHOLE
def a_gradient_that_is_deleted(compile):
    w = _ones(3)
    w.grad = torch.ones(3)

    def fn(x):
        del w.grad
        return w.grad, x * 2

    return compile(fn)(torch.ones(3)), w.grad


@WHOLE
def gradients_that_are_clipped(compile):
    layer = _linear()
    layer(torch.ones(2, 3)).pow(2).sum().backward()

    def fn():
        norm = nn.utils.clip_grad_norm_(layer.parameters(), 1.0)
        nn.utils.clip_grad_value_(layer.parameters(), 0.2)
        return norm

    return compile(fn)(), [p.grad for p in layer.parameters()]


@WHOLE
def the_state_of_a_module(compile):
    layer, other = _linear(), nn.Linear(3, 3)

    def fn(x):
        state = layer.state_dict()
        state["bias"] = state["bias"] * 2
        loaded = other.load_state_dict(state)
        return other(x), loaded, list(state), state._metadata

    return compile(fn)(torch.ones(2, 3)), other.weight, other.bias


@WHOLE
def attributes_of_ordered_dicts(compile):
    def fn(x, given):
        made = OrderedDict(a=x)
        made.note = 3
        made["b"] = [made, x * 2]
        given.more = 4
        return made, made.note, hasattr(made, "none"), OrderedDict(made), given.note, getattr(given, "none", 0)

    given = OrderedDict(k=1)
    given.note = 1
    found = compile(fn)(torch.ones(3), given)
    made, *others = found
    return made["a"], made["b"][0] is made, vars(made), vars(others[2]), others[:2], others[3:], vars(given)


@PROGRAMS
def copies_of_ordered_dicts_with_attributes(compile):
    def fn(given, x):
        return copy.copy(given), copy.deepcopy(given), x * 2

    fast, given = compile(fn), OrderedDict(a=1)
    plain = fast(given, torch.ones(2))
    given.note = 2
    noted = fast(given, torch.ones(2))
    return [vars(found) for found in (*plain[:2], *noted[:2])]


@PROGRAMS
def methods_of_all_objects(compile):
    def fn(x):
        return x.__repr__(), x.__str__(), x.__format__(""), "data" in x.__dir__(), x.__hash__() == hash(x), x * 2

    return compile(fn)(torch.ones(3))


@PROGRAMS
def what_is_negated_when_it_is_read(compile):
    """At sizes that vary, too. And of plain tensors what only others have, sizes without a place, and an empty one."""

    def fn(x):
        return x.is_neg(), x.resolve_neg() is x, x * 2

    fast = compile(fn)
    negated = [torch.ones(n, 2, dtype=torch.cfloat).conj().imag for n in (2, 3, 4)]
    refused = (lambda x: x.is_coalesced(), lambda x: x.size("rows"), lambda x: x.dense_dim(1), lambda x: x.new().shape)
    return [fast(x) for x in (torch.ones(1, 2), *negated)], [call(compile(f), torch.ones(2))[:2] for f in refused]


@PROGRAMS
def gradients_that_are_clipped_where_there_are_none(compile):
    layer = _linear()

    def fn(x):
        try:
            nn.utils.clip_grad_value_(layer.parameters(), 0.2)
        except RuntimeError as error:
            return x * 2, str(error)
        return x * 3

    return compile(fn)(torch.ones(2))


@PROGRAMS
def quantized_tensors(compile):
    def fn(x):
        q = torch.quantize_per_tensor(x, 0.1, 3, torch.quint8)
        return q.dequantize(), q.int_repr(), q.q_scale(), q.dtype

    return compile(fn)(torch.ones(3))


@pytest.mark.parametrize("name", WHOLE)
def test_is_captured_whole(name):
    check_whole(WHOLE[name])


@pytest.mark.parametrize("name", PROGRAMS)
def test_is_as_eager(name):
    check(PROGRAMS[name])
