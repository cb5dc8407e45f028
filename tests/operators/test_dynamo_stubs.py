"""Fake tensors and guards without TorchDynamo; and TorchDynamo unharmed when it is used after all."""
from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from tests.warm_process import in_copy

FAKES = """
    import sys, torch
    from ptdebug.operators.dynamo_stubs import without_dynamo
    from ptdebug.tracer.shapes.dynamic_policy import DynamicPolicy
    from ptdebug.tracer.shapes.frame_shapes import FrameShapes
    from ptdebug.tracer.sources.roots import LocalSource

    def fake_something(dynamic):
        with without_dynamo():
            shapes = FrameShapes(DynamicPolicy({}, dynamic))
            x = shapes.fakify(torch.randn(5, 4, requires_grad=True), LocalSource("x"))
            i = shapes.fakify(torch.tensor(3), LocalSource("i"))
            with shapes.fake_mode:
                y = torch.nn.functional.layer_norm(torch.relu(x) @ x.t(), x.shape[:1])
                z = torch.nn.functional.gelu(y).reshape(-1).softmax(0) * i
                if z.shape[0] > 3:
                    z = z + 1
                try:
                    int(i.item())
                except torch.fx.experimental.symbolic_shapes.GuardOnDataDependentSymNode:
                    pass
                else:
                    raise AssertionError
            return list(shapes.conditions())
"""


def run(script: str) -> str:
    program = textwrap.dedent(FAKES) + textwrap.dedent(script)
    done = in_copy("-c", program, cwd=Path.cwd())
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_torchdynamo_is_not_loaded():
    assert run("""
        fake_something(False)
        fake_something(True)
        for name in ("torch._dynamo", "torch._inductor", "torch._functorch.aot_autograd"):
            print(name in sys.modules)
        print("_dynamo" in torch.__dict__)
    """).split() == ["False"] * 4


@pytest.mark.parametrize("before", ["", "fake_something(True)", "import torch._dynamo; fake_something(True)"])
def test_stock_compile_works_in_the_same_process(before):
    out = run(f"""
        {before}
        import torch._C._dynamo.guards as cpp
        with without_dynamo():
            root = cpp.RootGuardManager()
            from ptdebug.operators.dynamo_stubs import guard_manager_type
            root.framelocals_manager(key=("x", 0), source="x", example_value=1,
                                     guard_manager_enum=guard_manager_type().GUARD_MANAGER)
        compiled = torch.compile(lambda x: x.sin() + 1, backend="eager", fullgraph=True)
        print(torch.equal(compiled(torch.ones(3)), torch.ones(3).sin() + 1), compiled(torch.ones(4)).shape[0])
        import torch._dynamo
        print(torch._dynamo.utils.counters["stats"]["unique_graphs"])
        print(len(fake_something(True)) > 0)
    """)
    assert out.split() == ["True", "4", "2", "True"]


def test_a_branch_of_cond_with_gradients_traces_its_backward():
    """torch marks a function there with `torch._dynamo.disable(...)`, called with options only."""
    assert run("""
        import ptdebug
        f = ptdebug.compile(lambda x: torch.cond(x.sum() > 0, torch.sin, torch.cos, (x,)) * 2, fullgraph=True)
        x = torch.ones(3, requires_grad=True)
        f(x).sum().backward()
        print(torch.allclose(x.grad, 2 * torch.ones(3).cos()))
    """).split() == ["True"]


def test_the_real_thing_is_there_for_who_asks():
    out = run("""
        with without_dynamo():
            import torch._dynamo.variables.builder
            from torch._dynamo.guards import CheckFunctionManager
            print(torch._dynamo.config.verbose)
        import torch._dynamo.guards as guards
        print(guards.CheckFunctionManager is CheckFunctionManager, torch._dynamo.guards is guards)
    """)
    assert out.split() == ["False", "True", "True"]


def test_uses_by_threads_at_once():
    out = run("""
        import threading
        inside, leave = threading.Event(), threading.Event()
        def other():
            with without_dynamo():
                inside.set()
                leave.wait(20)
                fake_something(True)
        thread = threading.Thread(target=other)
        with without_dynamo():
            thread.start()
            inside.wait(20)
        leave.set()
        thread.join()
        print("torch._dynamo" in sys.modules)
    """)
    assert out.split() == ["False"]


@pytest.mark.parametrize("shape", ["once", "again"])
def test_a_thread_that_ends_leaves_the_devices_guarded(shape):
    """torch's guard would be the first thread's, which frees it; what lies there afterwards is called."""
    out = run(f"""
        import threading
        for _ in range(2 if {shape!r} == "again" else 1):
            thread = threading.Thread(target=fake_something, args=(False,))
            thread.start()
            thread.join()
        junk = [bytes([255] * n) for n in range(1, 200) for _ in range(50)]
        fake_something(True)
        print(threading.active_count(), threading.Thread().name)
    """)
    assert out.split() == ["1", "Thread-2" if shape == "once" else "Thread-3"]
