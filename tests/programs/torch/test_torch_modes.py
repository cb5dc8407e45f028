"""Programs about the modes of torch: gradients, autocast, default dtype and device, attention, profiling."""
# mypy: ignore-errors

from __future__ import annotations

import warnings

import pytest
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from ..checking import Programs, call, check

program = Programs()


@program
def dtypes_that_do_not_mix(compile):
    """What raises in eager, and whose result nothing uses."""

    def product(x):
        torch.set_default_dtype(torch.float64)
        try:
            x @ torch.eye(3)
        finally:
            torch.set_default_dtype(torch.float32)
        return x

    def linear(x):
        F.linear(x, torch.ones(3, 3), torch.ones(3, dtype=torch.float64))
        return x

    def convolution(x):
        F.conv1d(x[None], torch.ones(2, 2, 1, dtype=torch.float64))
        return x

    def norm(x):
        F.layer_norm(x, (3,), torch.ones(3, dtype=torch.float64))
        return x

    def index(x):
        x.clone()[x > 0] = torch.ones(6, dtype=torch.float64)
        return x

    def reduced(x):
        return F.layer_norm(x.bfloat16(), (3,), torch.ones(3), torch.ones(3))

    return [call(compile(f), torch.ones(2, 3)) for f in (product, linear, convolution, norm, index, reduced)]


@program
def modes_that_are_not_bools(compile):
    def constructed(x, on):
        torch.set_grad_enabled(on)
        return x * 2

    def entered(x, on):
        with torch.autocast("cpu", enabled=on):
            return x * 2

    def tensor(x, on):
        return x.requires_grad_(on) * 2

    def named(x, on):
        return x.requires_grad_(requires_grad=on) * 2

    def deterministic(x, on):
        torch.use_deterministic_algorithms(on)
        return x * 2

    def dtype(x, on):
        torch.set_default_dtype(on)
        return x * 2

    functions = (constructed, entered, tensor, named, deterministic, dtype)
    return [call(compile(f), torch.ones(2), on) for f in functions for on in (0, None, "on")]


@program
def autocast(compile):
    lin = nn.Linear(4, 4)

    def f(x):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            a = lin(x)
            with torch.autocast("cpu", enabled=False):
                b = lin(x)
            c = a.float() @ b
            inside = torch.is_autocast_enabled("cpu"), torch.get_autocast_dtype("cpu")
        return a, b, c, lin(x), inside

    f = compile(f, fullgraph=True)
    out = [f(torch.randn(4, 4))]
    sum(part.float().sum() for part in out[0][:4]).backward()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        out.append(f(torch.randn(4, 4)))
    return out, lin.weight.grad


@program
def autocast_decorator(compile):
    @torch.autocast("cpu", dtype=torch.bfloat16)
    def inner(x):
        return x @ x

    @torch.amp.custom_fwd(device_type="cpu", cast_inputs=torch.float32)
    def plain(ctx, x):
        return x @ x

    def f(x):
        return inner(x), inner(x).dtype == torch.bfloat16

    return compile(f, fullgraph=True)(torch.ones(2, 2))


@program
def amp_alias(compile):
    def f(x):
        with torch.cpu.amp.autocast(dtype=torch.bfloat16):
            return x @ x

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return compile(f)(torch.ones(2, 2))


@program
def default_dtype_inside(compile):
    def f(x):
        torch.set_default_dtype(torch.float64)
        a = torch.ones(2) + torch.get_default_dtype().itemsize
        torch.set_default_dtype(torch.float32)
        return a, torch.ones(2) + x

    return compile(f, fullgraph=True)(torch.ones(2))


@program
def device_contexts(compile):
    def f(x):
        with torch.device("meta"):
            a = torch.empty(3)
            with torch.device("cpu"):
                b = torch.ones(3) + torch.arange(3) + torch.tensor([1.0, 2.0, 3.0])
        return a.device, a.shape, b + x, torch.zeros(2).device, torch.get_default_device()

    return compile(f, fullgraph=True)(torch.ones(3))


@program
def made_in_a_device_context(compile):
    def f(x):
        with torch.device("meta"):
            made = [torch.ones(3), torch.arange(2), torch.tensor([1.0]), torch.full((2,), x.shape[0]), torch.randn(2)]
            made += [torch.ones(2, device="cpu"), torch.nn.Linear(2, 2).weight, torch.zeros_like(x), torch.eye(2)]
        return made, torch.ones(2) + x

    return compile(f)(torch.ones(2))


@program
def a_break_in_a_device_context(compile):
    def parts():
        with torch.device("meta"):
            yield torch.ones(2)
            yield torch.ones(3)
        yield torch.ones(4)

    def f(x):
        with torch.device("meta"):
            first = torch.ones(3)
            print(first.device)
            made = [first, torch.ones(3), torch.get_default_device()]
        for part in parts():
            print(part.device)
            made.append(part * 2)
        return made, torch.ones(2) + x

    return compile(f)(torch.ones(2)), torch.ones(2), len(torch.overrides._get_current_function_mode_stack())


@program
def device_context_outside(compile):
    def f(x):
        return torch.ones(3), x + 1

    f = compile(f)
    out = [f(torch.ones(3))]
    with torch.device("meta"):
        made = f(torch.ones(3, device="cpu"))
        out.append((made[0].device, made[1]))
    torch.set_default_device("meta")
    try:
        out.append(f(torch.ones(3, device="cpu"))[0].device)
    finally:
        torch.set_default_device(None)
    out.append(f(torch.ones(3)))
    return out


@program
def deterministic(compile):
    def f(x):
        if torch.are_deterministic_algorithms_enabled():
            return x + 1
        return x - 1

    f = compile(f, fullgraph=True)
    out = [f(torch.ones(2))]
    torch.use_deterministic_algorithms(True)
    try:
        out.append(f(torch.ones(2)))
    finally:
        torch.use_deterministic_algorithms(False)
    return out


@program
def deterministic_inside(compile):
    def f(x):
        torch.use_deterministic_algorithms(True, warn_only=True)
        y = x + 1
        seen = torch.is_deterministic_algorithms_warn_only_enabled()
        torch.use_deterministic_algorithms(False)
        return y, seen

    return compile(f)(torch.ones(2)), torch.are_deterministic_algorithms_enabled()


@program
def attention_backends(compile):
    def f(q):
        with sdpa_kernel(SDPBackend.MATH):
            a = F.scaled_dot_product_attention(q, q, q)
        with sdpa_kernel([SDPBackend.FLASH_ATTENTION, SDPBackend.MATH]):
            b = F.scaled_dot_product_attention(q, q, q, is_causal=True)
        return a, b

    return compile(f, fullgraph=True)(torch.randn(1, 2, 4, 8)), torch.backends.cuda.flash_sdp_enabled()


@program
def record_function(compile):
    def f(x):
        with torch.autograd.profiler.record_function("first"):
            y = x + 1
        with torch.profiler.record_function("second"):
            return y * 2

    return compile(f, fullgraph=True)(torch.ones(2))


@program
def profiler_around(compile):
    def f(x):
        return x.sin() + 1

    f = compile(f, fullgraph=True)
    with torch.autograd.profiler.profile():
        a = f(torch.ones(3))
    return a, f(torch.ones(3))


@program
def warning_once(compile):
    def f(x):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            warnings.warn("never seen", stacklevel=1)
            y = x + 1
        warnings.warn("seen", UserWarning, stacklevel=1)
        return y * 2

    f = compile(f)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        out = f(torch.ones(2)), f(torch.ones(2))
    return out, [(str(w.message), w.category.__name__) for w in seen]


@program
def modes_after_an_error(compile):
    def f(x, i):
        with torch.no_grad():
            y = x * 2
            return y[i] + torch.ones(3).index_select(0, i)

    f = compile(f)
    out = [f(torch.ones(3, requires_grad=True), torch.tensor([1]))]
    try:
        f(torch.ones(3, requires_grad=True), torch.tensor([7]))
    except IndexError as error:
        out.append(str(error))
    return out, torch.is_grad_enabled()


@program
def autocast_after_an_error(compile):
    def f(x, i):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return torch.index_select(x @ x, 0, i)

    f = compile(f)
    out = [f(torch.ones(3, 3), torch.tensor([1]))]
    try:
        f(torch.ones(3, 3), torch.tensor([7]))
    except IndexError as error:
        out.append(str(error))
    layer = nn.Linear(2, 2, bias=False)
    with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):  # where it keeps no cast of an earlier block
        layer.weight.fill_(1.0)
        layer(torch.ones(1, 2))
    layer.weight.data.fill_(2.0)
    with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
        out.append(layer(torch.ones(1, 2)))
    return out, torch.is_autocast_enabled("cpu"), torch.ones(2, 2) @ torch.ones(2, 2)


@program
def mode_objects_kept(compile):
    quiet = torch.no_grad()
    cast = torch.autocast("cpu", dtype=torch.bfloat16)

    def f(x):
        with quiet:
            a = x * 2
        with cast:
            b = x @ x
        with quiet:
            c = x * 3
        return a, b, c

    f = compile(f, fullgraph=True)
    return f(torch.ones(2, 2, requires_grad=True)), f(torch.ones(2, 2))


@program
def autocast_of_a_decorator_that_eager_has_used(compile):
    cast = torch.autocast("cpu", dtype=torch.bfloat16)

    @cast
    def product(x):
        return x @ x

    x = torch.ones(2, 2)
    product(x)
    f = compile(lambda x: product(x) + product(x + 1), fullgraph=True)
    found, g = [f(x), f(x)], compile(lambda x: product(x + 2))
    with torch.autocast("cpu", dtype=torch.float16):
        found += [g(x), product(x)]
    with cast:  # entered again inside, it goes back to itself
        found += [g(x)]
    found += [torch.is_autocast_enabled("cpu"), torch.get_autocast_dtype("cpu"), g(x)]
    torch.set_autocast_enabled("cpu", False)
    torch.set_autocast_dtype("cpu", torch.bfloat16)
    return found, g(x)


@program
def modes_entered_by_an_exit_stack(compile):
    import contextlib

    def f(x, fast, fail):
        with contextlib.ExitStack() as stack:
            stack.enter_context(torch.no_grad())
            if fast:
                stack.enter_context(torch.autocast("cpu", dtype=torch.bfloat16))
            stack.callback(lambda: None)
            y = x @ x
            if fail:
                raise ValueError("inside")
        return y, x * 3, torch.is_grad_enabled()

    f = compile(f, fullgraph=False)
    x = torch.ones(2, 2, requires_grad=True)
    return [call(f, x, fast, fail) for fast in (False, True) for fail in (False, True)]


@program
def a_break_inside_of_an_exit_stack(compile):
    import contextlib

    def f(x):
        with contextlib.ExitStack() as stack:
            stack.enter_context(torch.no_grad())
            y = x * 2
            print(torch.is_grad_enabled())
            z = y + x
        return z, (x * 3).requires_grad

    return compile(f)(torch.ones(2, requires_grad=True))


@program
def whether_other_processes_take_part(compile):
    """Metrics and losses ask before they exchange results."""

    def alone():
        return not (torch.distributed.is_available() and torch.distributed.is_initialized())

    def f(x):
        return x * 2 if alone() else x * torch.distributed.get_world_size()

    out = [compile(f, fullgraph=True)(torch.ones(3))]
    f = compile(f)
    out.append(f(torch.ones(3)))
    torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
    try:
        out.append(f(torch.ones(3)))
    finally:
        torch.distributed.destroy_process_group()
    return out, f(torch.ones(3))


@pytest.mark.parametrize("name", program)
def test_a_program_with_modes_is_the_program(name: str) -> None:
    check(program[name])
