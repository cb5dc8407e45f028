"""Compiled graphs kept on disk: what has a key of its own, and that what comes back is what was compiled."""
from __future__ import annotations

import math
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import ptdebug
import pytest
import torch
import torch.nn.functional as F
from ptdebug.artifacts.context import CompileContext
from ptdebug.engine.compile import compile_graph
from ptdebug.engine.graph_cache import disk
from ptdebug.engine.graph_cache.cache import load_or_compile
from ptdebug.engine.graph_cache.key import key_of
from ptdebug.engine.graph_cache.values import Uncacheable
from ptdebug.tracer.frames import dispatch
from torch.autograd.function import once_differentiable

from .programs import Captured, capture, recording_context

R = torch.randn


def sine(x: torch.Tensor) -> torch.Tensor:
    return torch.sin(x)


def add(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return torch.add(x, y)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache of the test's own, switched on."""
    monkeypatch.setenv("PTDEBUG_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("PTDEBUG_GRAPH_CACHE", "1")
    return tmp_path / "graphs"


def key(function: Callable[..., Any], *inputs: Any, **settings: Any) -> str:
    return key_of(capture(function, *inputs), CompileContext(**settings))


# ---- keys ------------------------------------------------------------------------------------------------------------
PROGRAMS: list[Callable[[torch.Tensor], Any]] = [
    lambda x: x + 1, lambda x: x + 2, lambda x: x + 1.0, lambda x: x + True, lambda x: x + (1 + 0j), lambda x: 1 + x,
    lambda x: x * 0.0, lambda x: x * -0.0, lambda x: x * float("nan"), lambda x: x * float("inf"), lambda x: x * 1e-300,
    lambda x: x * 0.1, lambda x: x * math.nextafter(0.1, 1),
    lambda x: x.sum(0), lambda x: x.sum(1), lambda x: x.sum((0,)), lambda x: x.sum(dim=0), lambda x: x.sum(0, True),
    lambda x: x.sum(0, dtype=torch.float64), lambda x: x.to(torch.float64), lambda x: x.to(torch.float16),
    lambda x: x.sin(), lambda x: x.sin_(), lambda x: torch.sin(x), lambda x: (x.sin(), x.cos()),
    lambda x: (x.cos(), x.sin()), lambda x: x[0], lambda x: x[:1], lambda x: x[0:2:2], lambda x: x[..., 0],
    lambda x: F.gelu(x), lambda x: F.gelu(x, approximate="tanh"), lambda x: torch.ops.aten.gelu(x),
    lambda x: torch.ops.aten.gelu.default(x), lambda x: x - x.mean(), lambda x: x.mean() - x, lambda x: x,
    lambda x: x.clone(memory_format=torch.contiguous_format), lambda x: x.clone(memory_format=torch.preserve_format),
    lambda x: torch.maximum(x, x), lambda x: torch.minimum(x, x), lambda x: x.view(4), lambda x: x.view((4,)),
]


def test_programs_that_differ_have_keys_that_differ():
    keys = [key(program, torch.zeros(2, 2)) for program in PROGRAMS]
    assert [(i, j) for i, a in enumerate(keys) for j, b in enumerate(keys) if i < j and a == b] == []


def _shared() -> tuple[torch.Tensor, ...]:
    memory = R(9)
    return memory[:4].view(2, 2), memory[4:8].view(2, 2)


INPUTS: list[tuple[torch.Tensor, ...]] = [
    (R(2, 2), R(2, 2)), (R(2, 2).t(), R(2, 2)), (R(2, 2), R(2, 1)), (R(2, 2), R(1, 2)), (R(2, 2), R(2, 4)[:, ::2]),
    (R(2, 2), R(2)), (R(2, 2), R(1).expand(2, 2)), (R(2, 2), R(5)[1:].view(2, 2)), (R(2, 2), R(5)[:4].view(2, 2)),
    (R(2, 2).double(), R(2, 2)), (R(2, 2), R(2, 2).bfloat16()), (R(2, 2), torch.zeros(2, 2, dtype=torch.int64)),
    (R(2, 2), torch.zeros(2, 2, dtype=torch.int32)), (R(2, 2), R(2, 2).requires_grad_()),
    (R(2, 2).requires_grad_(), R(2, 2)), (R(2, 2), R(2, 2).requires_grad_() * 1), _shared(), (R(0, 2), R(0, 2)),
]


def test_inputs_that_differ_have_keys_that_differ():
    keys = [key(add, *inputs) for inputs in INPUTS]
    x = R(2, 2)
    mode = torch._subclasses.fake_tensor.FakeTensorMode()
    fake = mode.from_tensor(x)
    twice = capture(add, x, x)
    keys.append(key_of(replace(twice, inputs=(fake, fake)), CompileContext()))
    assert len(set(keys)) == len(keys)


def _set(get: Callable[[], Any], put: Callable[[Any], Any], value: Any) -> Callable[[], AbstractContextManager[None]]:
    @contextmanager
    def changed() -> Iterator[None]:
        before = get()
        put(value)
        try:
            yield
        finally:
            put(before)

    return changed


SETTINGS: dict[str, Callable[[], AbstractContextManager[Any]]] = {
    "threads": _set(torch.get_num_threads, torch.set_num_threads, torch.get_num_threads() + 1),
    "dtype": _set(torch.get_default_dtype, torch.set_default_dtype, torch.float64),
    "deterministic": _set(
        torch.are_deterministic_algorithms_enabled, torch.use_deterministic_algorithms, True),
    "precision": _set(torch.get_float32_matmul_precision, torch.set_float32_matmul_precision, "medium"),
    "no grad": torch.no_grad,
    "inference": torch.inference_mode,
    "autocast": lambda: torch.autocast("cpu", torch.bfloat16),
    "half autocast": lambda: torch.autocast("cpu", torch.float16),
    "mkldnn": lambda: torch.backends.mkldnn.flags(enabled=False),
    "math attention": lambda: torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH),
    "fast path": _set(
        torch.backends.mha.get_fastpath_enabled, torch.backends.mha.set_fastpath_enabled, False),
    "anomaly": lambda: torch.autograd.set_detect_anomaly(True, check_nan=False),
}


def test_settings_of_torch_are_in_the_key():
    captured = capture(sine, R(2))
    keys = {"": key_of(captured, CompileContext()), "budget": key_of(captured, CompileContext(memory_budget=0.5))}
    keys["grad"] = key_of(replace(captured, grad_enabled=True), CompileContext())
    for name, setting in SETTINGS.items():
        with setting():
            keys[name] = key_of(captured, CompileContext())
    assert len(set(keys.values())) == len(keys)


def test_our_own_code_and_the_machine_are_in_the_key(monkeypatch):
    from ptdebug.engine.graph_cache import state

    captured = capture(sine, R(2))
    before = key_of(captured, CompileContext())
    for name in ("cpu_features", "_sources"):
        with monkeypatch.context() as patch:
            patch.setattr(state, name, lambda: "another")
            state.of_installation.cache_clear()
            assert key_of(captured, CompileContext()) != before
    state.of_installation.cache_clear()
    assert key_of(captured, CompileContext()) == before


def test_the_line_of_the_program_is_not_in_the_key():
    assert key(lambda x: x + 1, R(2)) == key(
        lambda x: x + 1, R(2))


def test_constants_of_the_graph_are_in_the_key_by_content():
    def held(tensor: torch.Tensor) -> str:
        captured = capture(lambda x: x + 1, R(2))
        graph = captured.module.graph
        add = next(node for node in graph.nodes if node.op == "call_function")
        captured.module.held = tensor
        with graph.inserting_before(add):
            add.args = (add.args[0], graph.get_attr("held"))
        return key_of(captured, CompileContext())

    ones, zeros = torch.ones, torch.zeros
    tensors = [R(2), ones(2), ones(2).double(), zeros(2), -zeros(2), ones(1), ones(2, 1), ones(2, 3)[:1, 0]]
    assert len({held(t) for t in tensors}) == len(tensors)
    assert held(torch.ones(2)) == held(torch.ones(2))


@torch.library.custom_op("ptdebug_tests::twice", mutates_args=())
def twice(x: torch.Tensor) -> torch.Tensor:
    return x * 2


def _own(x: torch.Tensor) -> torch.Tensor:
    return x + 1


def test_what_may_change_under_its_name_is_not_kept():
    own = capture(sine, R(2))
    next(node for node in own.module.graph.nodes if node.op == "call_function").target = _own
    custom = capture(lambda x: torch.ops.ptdebug_tests.twice(x), R(2))
    module = capture(torch.nn.Sequential(torch.nn.Linear(2, 2)), R(2))
    for captured in (own, custom, module):
        with pytest.raises(Uncacheable):
            key_of(captured, CompileContext())


def test_what_is_forced_is_compiled():
    captured = capture(sine, R(2))
    for context in (CompileContext(overrides={"fuse:*": "separate"}), CompileContext(target="cuda:90")):
        with pytest.raises(Uncacheable):
            key_of(captured, context)
    context, keeping = recording_context(overrides={"fuse:*": "separate"})
    load_or_compile(captured, context, lambda: compile_graph)
    why = [d.why for d in keeping.decisions if d.kind == "cache"]
    assert why == ["graph cache off: decisions are overridden, or another target is recorded"]
    assert ("kernels", "cpp") in keeping.records


# ---- what comes back -------------------------------------------------------------------------------------------------
def never() -> Any:
    raise AssertionError("this graph is on disk")


def again(captured: Captured) -> tuple[Any, Any]:
    """`captured` compiled, and loaded."""
    context = CompileContext()
    compiled = load_or_compile(captured, context, lambda: compile_graph)
    assert (context.fallback, context.notes) == ("", [])
    return compiled, load_or_compile(captured, CompileContext(), never)


def swapped(x: torch.Tensor, y: torch.Tensor) -> Any:
    x.add_(y)
    return x.t(), x[0], y.sum(), x * y @ y


@pytest.mark.parametrize(
    "program, inputs",
    [
        (swapped, (R(2, 2), R(2, 2))),
        (lambda x: (torch.view_as_complex(x).conj(), x.sort()[0], 3, None), (R(3, 2),)),
        (lambda x: (x * (2 + 3j), torch.tensor([True, False]), torch.eye(2, dtype=torch.bfloat16)), (R(2),)),
        (lambda x, w: F.relu(F.conv2d(x, w)).mean((2, 3)).softmax(-1), (R(2, 3, 8, 8), R(4, 3, 3, 3))),
        (lambda x, i: x[i].cumsum(0), (R(5, 3), torch.tensor([4, 0]))),
    ],
)
def test_a_graph_from_disk_does_what_the_compiled_one_does(program, inputs):
    compiled, loaded = again(capture(program, *inputs))
    runs = [tuple(x.clone() for x in inputs) for _ in range(2)]
    results = [call(*run) for call, run in zip((compiled, loaded), runs)]
    expected = program(*(own := tuple(x.clone() for x in inputs)))
    flat = torch.utils._pytree.tree_leaves(expected)
    for found in results:
        for a, b in zip(found, flat, strict=True):
            if isinstance(b, torch.Tensor):
                torch.testing.assert_close(a, b)
                assert (a.stride(), a.is_conj(), a._base is None) == (b.stride(), b.is_conj(), b._base is None)
            else:
                assert a == b
    for run in runs:
        torch.testing.assert_close(run, own)


def test_an_index_out_of_range_is_named_by_a_graph_from_disk():
    _, loaded = again(capture(lambda x, i: x[i] + 1, R(3), torch.tensor([0])))
    with pytest.raises(IndexError, match="in `index`"):
        loaded(R(3), torch.tensor([3]))


def compiled_anew(function: Callable[..., Any], **options: Any) -> Any:
    """What a second process would have: nothing compiled in memory."""
    dispatch.reset()
    return ptdebug.compile(function, **options)


@pytest.fixture
def misses(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """One entry for each graph that was compiled."""
    from ptdebug.cli import wiring

    made: list[int] = []

    def counted(*args: Any) -> Any:
        made.append(1)
        return compile_graph(*args)

    monkeypatch.setattr(wiring, "_compiler", lambda: counted)
    return made


def test_a_training_graph_from_disk_has_the_same_gradients(misses):
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.BatchNorm1d(8), torch.nn.GELU(), torch.nn.Linear(8, 2))
    x = R(6, 4, requires_grad=True)

    def step(run: Any) -> tuple[torch.Tensor, ...]:
        out = run(x)
        (first,) = torch.autograd.grad(out.square().sum(), x, create_graph=True)
        return out, first, *torch.autograd.grad(first.square().sum() + out.sum(), list(model.parameters()))

    state = {k: v.clone() for k, v in model.state_dict().items()}
    found = []
    for run in (model, compiled_anew(model), compiled_anew(model)):
        model.load_state_dict(state)
        found.append((step(run), model[1].running_mean.clone()))
    assert len(misses) == 1
    torch.testing.assert_close(found[1], found[0])
    torch.testing.assert_close(found[2], found[1], rtol=0, atol=0)


def test_a_row_that_a_number_in_a_tensor_chooses_is_kept_with_its_gradient(misses):
    x, given = R(3, 4, requires_grad=True), torch.tensor(1)
    for _ in range(2):
        compiled_anew(lambda x, i: x[i] * 2, fullgraph=True)(x, given).sum().backward()
    assert len(misses) == 1
    torch.testing.assert_close(x.grad, torch.tensor([0.0, 4.0, 0.0])[:, None].expand(3, 4))


def _scaled(forward: float, backward: float, once: bool = False) -> Callable[[torch.Tensor], torch.Tensor]:
    class Scaled(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            return x * forward

        @staticmethod
        def backward(ctx: Any, *gradients: torch.Tensor) -> torch.Tensor:
            return gradients[0] * backward

    if once:
        Scaled.backward = staticmethod(once_differentiable(Scaled.backward))  # type: ignore[method-assign]
    return lambda x: Scaled.apply(x.sin())


def test_autograd_functions_are_kept_by_their_two_graphs(misses):
    for number, facts in enumerate([(2.0, 3.0), (2.0, 4.0), (1.0, 3.0), (2.0, 3.0, True), (2.0, 3.0), (2.0, 4.0)]):
        x = R(3, 4, requires_grad=True)
        y = compiled_anew(_scaled(*facts), fullgraph=True)(x)
        torch.testing.assert_close(y, x.sin() * facts[0])
        torch.testing.assert_close(torch.autograd.grad(y.sum(), x)[0], x.cos() * facts[1])
        assert len(misses) == min(number + 1, 4)


def test_operators_of_our_own_are_kept(misses, monkeypatch):
    known = {"aten": 3e-3, "ptdebug": 1e-3}
    monkeypatch.setattr("ptdebug.engine.passes.extern_kernels.attention.costs", lambda *_: known)
    q = R(1, 2, 70, 16)

    def causal(q: torch.Tensor) -> torch.Tensor:
        return F.scaled_dot_product_attention(q, q * 2, q + 1, is_causal=True)

    for _ in range(2):
        torch.testing.assert_close(compiled_anew(causal)(q), causal(q))
    assert len(misses) == 1


def test_conditions_that_compiling_adds_hold_for_a_graph_from_disk(misses):
    def program(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return torch.cat([x, y]).softmax(0)[: x.shape[0]] * 2

    def run() -> list[torch.Tensor]:
        compiled = compiled_anew(program, dynamic=True)
        return [compiled(R(n, 3).fill_(n), R(m, 3).fill_(m)) for n, m in ((4, 5), (7, 5), (1, 5), (6, 6), (0, 2))]

    first, count = run(), len(misses)
    second = run()
    assert len(misses) == count
    torch.testing.assert_close(second, first, rtol=0, atol=0)
    for result, (n, m) in zip(second, ((4, 5), (7, 5), (1, 5), (6, 6), (0, 2))):
        torch.testing.assert_close(result, program(torch.full((n, 3), float(n)), torch.full((m, 3), float(m))))


def test_answers_that_compiling_asked_for_are_asked_again(misses):
    """The layout of a pooled image of one channel depends on sizes that vary."""
    def run() -> list[torch.Tensor]:
        compiled = compiled_anew(lambda x, y: F.max_pool2d(x[None, None], 2) + y, dynamic=True)
        return [compiled(R(n, 17).fill_(n), torch.ones(())) for n in (15, 9, 4)]

    first, count = run(), len(misses)
    torch.testing.assert_close(run(), first, rtol=0, atol=0)
    assert len(misses) == count


# ---- files -----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("damage", [lambda c: c[:-5], lambda c: b"", lambda c: c[:40] + b"x" + c[41:]])
def test_a_damaged_file_is_made_again_and_said(cache, damage):
    captured = capture(sine, R(2))
    load_or_compile(captured, CompileContext(), lambda: compile_graph)
    (path,) = cache.iterdir()
    whole = path.read_bytes()
    path.write_bytes(damage(whole))
    context = CompileContext()
    x = R(2)
    torch.testing.assert_close(load_or_compile(captured, context, lambda: compile_graph)(x)[0], x.sin())
    assert "damaged" in context.notes[0]
    assert path.read_bytes() == whole


def test_a_file_of_another_form_is_made_again_and_said(cache):
    captured = capture(sine, R(2))
    disk.write(key_of(captured, CompileContext()), b"\x93\x01\x02\x03")
    context, x = CompileContext(), R(2)
    torch.testing.assert_close(load_or_compile(captured, context, lambda: compile_graph)(x)[0], x.sin())
    assert "cannot be used" in context.notes[0]
    assert again(captured)[1](x)[0].equal(x.sin())


def test_a_folder_that_cannot_be_written_costs_the_cache_only(tmp_path, monkeypatch):
    (tmp_path / "graphs").write_text("in the way")
    context, x = CompileContext(), R(2)
    torch.testing.assert_close(load_or_compile(capture(sine, x), context, lambda: compile_graph)(x)[0], x.sin())
    assert "not cached" in context.notes[0]


def test_the_files_longest_unused_go(cache, monkeypatch):
    monkeypatch.setattr(disk, "LIMIT_ENTRIES", 3)
    for k in range(3):
        disk.write(f"{k}", b"content")
        os.utime(cache / f"{k}.graph", (k, k))
    assert disk.read("0") == b"content"
    disk.write("3", b"content")
    assert sorted(p.name for p in cache.iterdir()) == ["0.graph", "2.graph", "3.graph"]
    monkeypatch.setattr(disk, "LIMIT_BYTES", 100)
    disk.write("4", b"c" * 60)
    assert [p.name for p in cache.iterdir()] == ["4.graph"]


WRITER = """
import sys
from ptdebug.engine.graph_cache import disk
disk.LIMIT_ENTRIES = 2
for k in range(40):
    disk.write(f"{k % 4}", bytes([k]) * 5000)
    content = disk.read("0")
    assert content is None or content == content[:1] * 5000
"""


def test_processes_that_write_at_once_read_whole_entries(cache):
    writers = [subprocess.Popen([sys.executable, "-c", WRITER]) for _ in range(2)]
    assert [writer.wait() for writer in writers] == [0, 0]
    assert len(list(cache.iterdir())) <= 3


SCRIPT = """
import sys, torch, ptdebug
def program(x, w):
    return torch.relu(x @ w).sum(1)
torch.manual_seed(0)
print(ptdebug.compile(program)(torch.randn(4, 5), torch.randn(5, 6)).tolist())
print("ptdebug.engine.compile" in sys.modules, "torch._dynamo" in sys.modules)
"""


def test_a_second_process_does_not_load_the_compiler(tmp_path):
    def run() -> list[str]:
        done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True)
        return done.stdout.splitlines()

    first, second = run(), run()
    assert (first[1], second) == ("True False", [first[0], "False False"])
