"""The part of a script that compares compiled with eager. What follows the marker is pasted into each script, which
defines the names above it; it needs only torch."""
from __future__ import annotations

import argparse
import ctypes
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves, tree_map

COMPILER = "ptdebug"
TRAINING = False  # whether gradients are compared, too
COPIED = False  # whether inputs that require gradients are written to, and so are copies
REFERENCE = True  # whether float64 can tell how much of a difference is rounding
OPTIONS: dict[str, Any] = {}  # of the compiler
FORCED: dict[str, str] = {}  # decisions of ptdebug, by id


def make() -> tuple[Callable[..., Any], list[Any]]:
    """The function, and its arguments, new for each run."""
    raise NotImplementedError


# ---- the check: compiled and in eager, compared by a float64 reference -----------------------------------------------
SMALL = (torch.float32, torch.float16, torch.bfloat16)


def is_tensor(value: Any) -> bool:
    """Whether it is a tensor."""
    return isinstance(value, torch.Tensor)


def widened(value: Any) -> Any:
    """A float tensor or dtype as float64; anything else as it is."""
    if is_tensor(value) and value.dtype in SMALL:
        return value.detach().double().requires_grad_(value.requires_grad) if value.is_leaf else value.double()
    return torch.float64 if isinstance(value, torch.dtype) and value in SMALL else value


class Float64(TorchFunctionMode):
    """Computes in float64 what the program computes in a smaller float."""

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if function in (torch.Tensor.float, torch.Tensor.half, torch.Tensor.bfloat16):
            function = torch.Tensor.double
        args, kwargs = tree_map(widened, (args, kwargs or {}))
        return tree_map(widened, function(*args, **kwargs))


def compiled_by(compiler: str, function: Any) -> Any:
    """`function`, compiled."""
    if compiler == "eager":
        return function
    if compiler == "ptdebug":
        import ptdebug

        return ptdebug.compile(function, **OPTIONS)
    backend = compiler.partition(":")[2] or "inductor"
    options = OPTIONS.get("options") if backend == "inductor" and COMPILER != "ptdebug" else None
    return torch.compile(function, backend=backend, dynamic=OPTIONS.get("dynamic"), options=options)


def forcing(compiler: str) -> Any:
    """The context in which ptdebug takes the forced decisions."""
    if compiler != "ptdebug" or not FORCED:
        return nullcontext()
    import ptdebug

    return ptdebug.record(out=tempfile.mkdtemp(), overrides=FORCED)


def fill_memory(pattern: int) -> None:
    """Memory that nobody has written reads as the same numbers from now on (glibc): a read of it shows each time."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None and sys.platform == "linux":
        mallopt(-6, pattern)


def internal_error(compiler: str) -> str:
    """The error in the compiler for which a graph runs in eager; "" where there was none."""
    if compiler != "ptdebug":
        return ""
    import ptdebug

    errors = [text.partition(": ")[2] for text in ptdebug.stats()["fallbacks"] if text.startswith("internal error")]
    return errors[0] if errors else ""


def written(value: Any, eager: Any, again: Any) -> Any:
    """`value` without the elements that eager gives otherwise where other numbers are in unwritten memory."""
    tensors = is_tensor(value) and is_tensor(eager) and value.shape == eager.shape
    if not tensors or eager.layout is not torch.strided or torch.equal(eager, again):
        return value
    if eager.dtype in SMALL:
        return value[torch.isclose(eager, again, rtol=0.01, equal_nan=True)]
    return value[(eager == again) | ((eager != eager) & (again != again))]


def started() -> Any:
    """The function and its arguments. Random numbers start from one seed, or where `make` lets them."""
    torch.manual_seed(0)
    return make()


def run(compiler: str = "eager", wide: bool = False) -> dict[str, Any]:
    """What one call shows: its results, its arguments afterwards, and the gradients of what requires them."""
    function, arguments = started()
    owner = function if isinstance(function, torch.nn.Module) else getattr(function, "__self__", None)
    module = owner if isinstance(owner, torch.nn.Module) else torch.nn.Module()
    if wide:
        arguments = tree_map(widened, arguments)
        module.double()
    leaves = [v for v in (*tree_leaves(arguments), *module.parameters()) if is_tensor(v) and v.requires_grad]
    if COPIED:
        arguments = tree_map(lambda v: v.clone() if is_tensor(v) and v.requires_grad else v, arguments)
    called = compiled_by(compiler, function)
    with torch.set_grad_enabled(TRAINING), Float64() if wide else forcing(compiler):
        results = [torch.as_tensor(v) if type(v).__module__ == "numpy" else v for v in tree_leaves(called(*arguments))]
        seen = {f"result {number}": value for number, value in enumerate(results)}
        after = [value for value in tree_leaves(arguments) if is_tensor(value)]
        seen |= {f"argument {number} afterwards": value for number, value in enumerate(after)}
        seen |= {f"{name} afterwards": value for name, value in module.named_buffers()}
        roots = [v for v in results if is_tensor(v) and v.grad_fn is not None]
        if TRAINING and roots and leaves:
            random = torch.Generator().manual_seed(0)
            tangents = [torch.randn(root.shape, generator=random, device="cpu").to(root) for root in roots]
            gradients = torch.autograd.grad(roots, leaves, tangents, allow_unused=True)
            seen |= {f"gradient {number}": value for number, value in enumerate(gradients)}
    return {name: value.detach().clone() if is_tensor(value) else value for name, value in seen.items()}


def is_near(exact: Any, eager: Any) -> bool:
    """Whether a random float64 run can be a reference: it may have drawn other numbers than eager."""
    if not is_tensor(eager) or eager.dtype not in SMALL or not eager.numel():
        return True
    limit = min(4096 * torch.finfo(eager.dtype).eps, 0.25) * eager.abs().max().double()
    return bool((exact - eager.double()).abs().max() <= limit)


def difference(value: Any, eager: Any, exact: Any) -> str:
    """What is wrong with a value, "" for nothing. It may be twice as far from float64 as eager's (four times, of few
    elements), and a few units in the last place in any case."""
    if not is_tensor(eager) or not is_tensor(value):
        same = type(value) is type(eager) and (
            not isinstance(value, (bool, int, float, complex, str)) or value == eager or (
                value != value and eager != eager))
        return "" if same else f"{str(value)[:60]} is not {str(eager)[:60]}"
    if value.dtype != eager.dtype or value.shape != eager.shape:
        return f"{value.dtype}{list(value.shape)} is not {eager.dtype}{list(eager.shape)}"
    if value.layout is torch.strided and value.numel() > 1 and value.stride() != eager.stride():
        if [s for s, n in zip(value.stride(), value.shape) if n > 1] != [
            s for s, n in zip(eager.stride(), eager.shape) if n > 1
        ]:
            return f"strides {value.stride()} are not {eager.stride()}"
    if value.numel() == 0 or torch.equal(value, eager):
        return ""
    if not (eager.is_floating_point() or eager.is_complex()):
        return f"{int((value != eager).sum())} of {eager.numel()} elements differ"
    kind = torch.complex128 if eager.is_complex() else torch.float64
    v, e = value.to(kind), eager.to(kind)
    if not torch.equal(v.isnan(), e.isnan()):
        more = "NaN" if bool((~v.isfinite() & e.isfinite()).any()) else "nan"
        return f"{more} in {int(v.isnan().sum())} places, in {int(e.isnan().sum())} of eager's"
    finite = e.isfinite()
    if not torch.equal(v.isfinite(), finite) or not torch.equal(v[~finite].nan_to_num(), e[~finite].nan_to_num()):
        return "NaN or infinity" if bool((~v.isfinite() & finite).any()) else "infinities are in other places"
    v, e, eps = v[finite], e[finite], torch.finfo(eager.dtype).eps
    if v.numel() == 0:
        return ""
    top = e.abs().max().item()
    x, by, slack = e, "eager", min(1000 * eps, max(0.05, 4 * eps)) * top
    if is_tensor(exact) and exact.shape == eager.shape and eager.dtype in SMALL:
        x, by = exact.to(kind)[finite], "float64"
        slack = max((2 if e.numel() >= 64 else 4) * (e - x).abs().max().item(), 4 * eps * top)
    away = (v - x).abs().max().item()
    if away <= slack:
        return ""
    return f"max abs {(v - e).abs().max().item():.3g} from eager; {away:.3g} from {by}, allowed {slack:.3g}"


def outcome(kind: str, detail: str = "", node: str = "") -> None:
    """Print the last line, which says what happened, and end."""
    text = kind + (f" ({node})" if node else "") + (f": {detail}" if detail else "")
    print(f"outcome: {text}", flush=True)
    sys.exit(0 if kind == "passed" else 2 if kind == "invalid" else 1)


def main() -> None:
    """Compare and print the verdict. Exit code 1: the failure shows."""
    options = argparse.ArgumentParser(description="Runs compiled, and compares with eager.")
    options.add_argument("--compiler", default=COMPILER, help=f"ptdebug, torch, torch:BACKEND, eager ({COMPILER})")
    compiler = options.parse_args().compiler
    fill_memory(0x80)
    try:
        eager = run()
    except Exception as error:
        traceback.print_exc()
        outcome("invalid", f"eager raises {type(error).__name__}")
    after = torch.get_rng_state()
    started()
    drew = not torch.equal(after, torch.get_rng_state())
    exact: dict[str, Any] = {}
    try:
        exact = run(wide=True) if REFERENCE else {}
        exact = {name: value for name, value in exact.items() if not drew or is_near(value, eager[name])}
    except Exception as error:  # an operator without float64: then distances to eager count
        print(f"no float64 reference: {type(error).__name__}: {str(error)[:80]}")
    start = time.perf_counter()
    try:
        found = run(compiler)
    except Exception as error:
        traceback.print_exc()
        outcome("exception", f"{type(error).__name__}: {str(error).partition(chr(10))[0]}")
    failure = internal_error(compiler)
    if failure:
        outcome("exception", failure)
    wrong = {name: difference(found.get(name), value, exact.get(name)) for name, value in eager.items()}
    if any(wrong.values()):
        fill_memory(0x40)
        again = run()
        found, exact, eager = ({name: written(value, eager.get(name), again.get(name)) for name, value in one.items()}
                               for one in (found, exact, eager))
        wrong = {name: difference(found.get(name), value, exact.get(name)) for name, value in eager.items()}
    wrong |= {name: "eager has no such value" for name in found if name not in eager}
    wrong = {name: text for name, text in wrong.items() if text}
    for name, text in wrong.items():
        print(f"{name}: {text}")
    seconds = time.perf_counter() - start
    print(f"{compiler}: {len(wrong)} of {len(eager)} values are wrong ({seconds:.2f} s with compilation)")
    for name, text in wrong.items():
        outcome("nan" if text.startswith("NaN") else "values", text, name)
    outcome("passed")


if __name__ == "__main__":
    main()
