"""What `compile` is asked for and cannot do is refused as stock refuses it; its errors are caught as stock's are."""
from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import ptdebug
import pytest
import torch
from ptdebug.artifacts.recording import Recording
from ptdebug.cli import api
from ptdebug.cli.compile_options import inductor_options

from tests.warm_process import in_copy

Command = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    api.reset()
    yield


def plus_one(x: torch.Tensor) -> torch.Tensor:
    return x + 1


def fails(_graph: torch.fx.GraphModule, _inputs: list[Any]) -> Callable[..., Any]:
    raise ValueError("not in the mood")


def isolated(program: str, folder: Path) -> str:
    """What a program prints in a process of its own, where torch is loaded, and Dynamo is not."""
    done = in_copy("-c", program, cwd=folder)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("wish", [
    {"mode": "nosuch"}, {"options": {"nosuch": 1}}, {"options": {"max_autotune": "yes"}},
    {"options": {"cpp.nosuch": True}}, {"options": {"freezing": 1}}, {"mode": "default", "options": {}},
    {"mode": "nosuch", "backend": "inductor"},
])
def test_wrong_modes_and_options_are_refused_as_in_stock(wish: dict[str, Any]) -> None:
    with pytest.raises(RuntimeError) as stock:
        torch.compile(plus_one, **wish)
    with pytest.raises(RuntimeError) as ours:
        ptdebug.compile(plus_one, **wish)
    assert str(ours.value).split()[:3] == str(stock.value).split()[:3]


@pytest.mark.parametrize("wish", [
    {"mode": "reduce-overhead"}, {"mode": "default"}, {"options": {"max-autotune": True, "triton.cudagraphs": False}},
    {"options": {"memory_budget": 0.5}}, {"backend": "eager", "mode": "any"}, {"backend": "aot_eager"},
])
def test_right_ones_are_taken(wish: dict[str, Any]) -> None:
    assert ptdebug.compile(plus_one, **wish)(torch.ones(1)).item() == 2


def test_options_are_those_of_inductor() -> None:
    import torch._inductor.config as config

    known, stock = inductor_options(), config.get_config_copy()
    assert set(stock) - set(known) <= {"TYPE_CHECKING"}
    for name, kind in known.items():
        assert kind is None or name not in stock or config.get_type(name) is kind, name


def test_an_unknown_backend_names_the_known_ones() -> None:
    for model in (plus_one, torch.nn.Linear(1, 1)):
        with pytest.raises(torch._dynamo.exc.InvalidBackend, match=r"'nosuch'; there are: .*aot_eager, .*inductor"):
            ptdebug.compile(model, backend="nosuch")
    with pytest.raises(torch._dynamo.exc.InvalidBackend):
        ptdebug.explain(plus_one, backend="nosuch")


def test_values_of_another_type_are_refused_as_in_stock() -> None:
    for wish, error in (({"backend": ""}, torch._dynamo.exc.InvalidBackend), ({"dynamic": "yes"}, AssertionError),
                        ({"options": ["freezing"]}, AttributeError)):
        for compiler in (torch.compile, api.torch_compile):
            with pytest.raises(error):
                compiler(plus_one, **wish)
    with pytest.raises(torch._dynamo.exc.BackendCompilerFailed, match="backend='3' raised:\nTypeError"):
        ptdebug.compile(plus_one, backend=3)(torch.ones(1))  # type: ignore[arg-type]
    assert api.load_cache_artifacts(3) is None  # type: ignore[arg-type]


@pytest.mark.skipif(not hasattr(torch.compiler, "set_default_backend"), reason="this torch has no default backend")
def test_the_default_backend_of_the_program_is_taken() -> None:
    seen = []

    def backend(graph: torch.fx.GraphModule, inputs: list[Any]) -> Callable[..., Any]:
        seen.append(graph)
        return graph.forward

    torch.compiler.set_default_backend(backend)
    try:
        assert api.torch_compile(plus_one)(torch.ones(1)).item() == 2 and len(seen) == 1
    finally:
        torch.compiler.set_default_backend(None)
    assert api.torch_compile(lambda x: x + 2)(torch.ones(1)).item() == 3 and len(seen) == 1


def test_a_backend_that_the_program_registers_is_called() -> None:
    seen = []

    def of_the_test(graph: torch.fx.GraphModule, inputs: list[Any]) -> Callable[..., Any]:
        seen.append(graph)
        return graph.forward

    torch._dynamo.register_backend(of_the_test, name="of_the_test")
    try:
        assert ptdebug.compile(plus_one, backend="of_the_test")(torch.ones(1)).item() == 2 and seen
    finally:
        del torch._dynamo.backends.registry._COMPILER_FNS["of_the_test"]
        del torch._dynamo.backends.registry._BACKENDS["of_the_test"]


def test_a_backend_gets_mode_and_options() -> None:
    seen = []

    def backend(graph: torch.fx.GraphModule, inputs: list[Any], **keywords: Any) -> Callable[..., Any]:
        seen.append(keywords)
        return graph.forward

    ptdebug.compile(plus_one, backend=backend, options={"a": 1})(torch.ones(1))
    ptdebug.compile(plus_one, backend=backend, mode="fast")(torch.ones(1))
    ptdebug.compile(plus_one, backend=backend, mode="default")(torch.ones(1))
    assert seen == [{"options": {"a": 1}}, {"mode": "fast"}, {}]


def test_what_a_backend_raises_reaches_the_program(tmp_path: Path) -> None:
    with ptdebug.record("failing", out=str(tmp_path)) as recording:
        compiled = ptdebug.compile(plus_one, backend=fails)
        for _ in range(2):  # each call tries again
            with pytest.raises(torch._dynamo.exc.BackendCompilerFailed, match="backend='fails' raised:\nValueError: not"
                               ) as error:
                compiled(torch.ones(1))
    assert isinstance(error.value.inner_exception, ValueError) and error.value.backend_name == "fails"
    assert [info.status for info in Recording.open(recording.path).compiles()] == ["failed", "failed"]
    with pytest.raises(torch._dynamo.exc.BackendCompilerFailed, match="returned int, not a callable"):
        ptdebug.compile(plus_one, backend=lambda graph, inputs: 3)(torch.ones(1))


def test_suppressed_errors_and_skipped_frames_stay_in_eager(tmp_path: Path) -> None:
    def skips(_graph: torch.fx.GraphModule, _inputs: list[Any]) -> Callable[..., Any]:
        raise torch._dynamo.exc.SkipFrame("not this one")

    with ptdebug.record("eager", out=str(tmp_path)) as recording:
        assert ptdebug.compile(plus_one, backend=skips)(torch.ones(1)).item() == 2
        with torch._dynamo.config.patch(suppress_errors=True):
            assert ptdebug.compile(plus_one, backend=fails)(torch.ones(1)).item() == 2
    reasons = [info.reason for info in Recording.open(recording.path).compiles() if info.status == "eager"]
    assert "SkipFrame" in reasons[0] and "suppress_errors" in reasons[1]


def test_the_errors_of_fullgraph_are_caught_as_dynamos(tmp_path: Path) -> None:
    """Dynamo is not loaded until the program names its class."""
    assert isolated("""
import sys, torch, ptdebug
def breaks(x):
    print(end="")
    return x + 1
def long(x, text):
    return x + len(text)
try:
    assert "torch._dynamo" not in sys.modules
    ptdebug.compile(breaks, fullgraph=True)(torch.ones(1))
except torch._dynamo.exc.Unsupported as error:
    print("print()" in error.msg, isinstance(error, RuntimeError))
limited = ptdebug.compile(long, fullgraph=True, recompile_limit=2)
try:
    for n in range(4):
        limited(torch.ones(1), "a" * n)
except torch._dynamo.exc.FailOnRecompileLimitHit as error:
    print(n, "2 times" in str(error))
""", tmp_path) == "True True\n2 True\n"


def test_errors_raised_before_dynamo_is_loaded_are_its_too(tmp_path: Path) -> None:
    assert isolated("""
import sys, torch, ptdebug
def fails(graph, inputs):
    raise ValueError("no")
try:
    ptdebug.compile(lambda x: x + 1, backend=fails)(torch.ones(1))
except RuntimeError as error:
    assert "torch._dynamo" not in sys.modules
    print(isinstance(error, torch._dynamo.exc.BackendCompilerFailed), str(error))
""", tmp_path) == "True backend='fails' raised:\nValueError: no\n"


@pytest.mark.parametrize("set_stance", [torch.compiler.set_stance, api.set_stance])
def test_stances(set_stance: Callable[..., Any]) -> None:
    compiled = ptdebug.compile(plus_one)
    with set_stance("fail_on_recompile"), pytest.raises(RuntimeError, match="stance is 'fail_on_recompile'"):
        compiled(torch.ones(1))
    compiled(torch.ones(3))
    with set_stance("fail_on_recompile"):
        assert compiled(torch.ones(3)).sum().item() == 6  # there is code for it
        with pytest.raises(RuntimeError, match=r"function name: 'plus_one'[\s\S]*guard failure[\s\S]*L\['x'\]"):
            compiled(torch.ones(3, 3))
    with set_stance("eager_on_recompile"):
        assert compiled(torch.ones(3, 3)).sum().item() == 18
    assert api.stats()["graphs"] == 1
    compiled(torch.ones(3, 3))
    assert api.stats()["graphs"] == 2


@pytest.mark.parametrize("set_stance", [torch.compiler.set_stance, api.set_stance])
def test_stances_that_leave_the_first_call(set_stance: Callable[..., Any]) -> None:
    """To eager, or to its ATen graph; what differs at the second call is dynamic."""
    for stance, first in (("eager_then_compile", 0), ("aot_eager_then_compile", 1)):
        api.reset()
        compiled, before = ptdebug.compile(lambda x: x * 2 + 1), api.stats()["graphs"]
        with set_stance(stance):
            for size, graphs in ((3, first), (4, first + 1), (9, first + 1)):
                assert compiled(torch.ones(size)).tolist() == [3] * size
                assert api.stats()["graphs"] - before == graphs


def test_the_first_call_that_is_left_to_eager_is_not_watched(caplog: pytest.LogCaptureFixture) -> None:
    """The program's `__torch_function__` sees its own operators only, and tensors without sizes are no error."""
    seen = []

    class Watching(torch.Tensor):
        @classmethod
        def __torch_function__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            seen.append(function.__name__)
            return super().__torch_function__(function, types, args, kwargs or {})

    with torch.compiler.set_stance("eager_then_compile"):
        ptdebug.compile(plus_one)(torch.ones(2).as_subclass(Watching))
        ptdebug.compile(lambda x: x + 2)(torch.nested.nested_tensor([torch.ones(2), torch.ones(3)]))
    assert seen == ["add"]
    assert not [record for record in caplog.records if record.name == "ptdebug"]


def test_a_limit_that_raises_says_nothing_of_eager(caplog: pytest.LogCaptureFixture) -> None:
    compiled = ptdebug.compile(lambda x, a: x * a, dynamic=False)
    with torch._dynamo.config.patch(recompile_limit=1, fail_on_recompile_limit_hit=True):
        compiled(torch.ones(2), 1)
        with pytest.raises(torch._dynamo.exc.FailOnRecompileLimitHit, match="fail_on_recompile_limit_hit"):
            compiled(torch.ones(2), 2)
    assert not [record for record in caplog.records if record.name == "ptdebug"]


@pytest.mark.parametrize("set_stance", [torch.compiler.set_stance, api.set_stance])
def test_a_stance_forces_a_backend(set_stance: Callable[..., Any]) -> None:
    seen = []

    def backend(graph: torch.fx.GraphModule, _inputs: list[Any]) -> Callable[..., Any]:
        seen.append(graph)
        return graph.forward

    compiled = ptdebug.compile(plus_one)
    compiled(torch.ones(2))
    with set_stance(force_backend=backend):
        assert compiled(torch.ones(2)).tolist() == [2, 2] and len(seen) == 1
    assert compiled(torch.ones(2)).tolist() == [2, 2] and len(seen) == 1
    with pytest.raises(RuntimeError, match="non-default stance cannot have force_backend set"):
        set_stance("force_eager", force_backend="eager")


def test_no_stance_is_set_in_what_is_compiled() -> None:
    @ptdebug.compile
    def sets(x: torch.Tensor) -> torch.Tensor:
        api.set_stance("force_eager")
        return x + 1

    with pytest.raises(RuntimeError, match=r"attempted to set_stance in a torch\.compile region"):
        sets(torch.ones(1))


def graphs_of_calls(compile: Callable[..., Any], count: Callable[[], int]) -> tuple[int, str]:
    """How many graphs some calls take, and the error that ends them."""
    compiled, before = compile(lambda x, n=2: x * 2 + n), count()
    try:
        for number in (2, 3, 4, 5):
            compiled(torch.ones(number), 2.5)
        for dtype in (torch.float64, torch.int32, torch.int64):
            compiled(torch.ones(3, dtype=dtype), 2.5)
    except Exception as error:
        kinds = ("RecompileError", "FailOnRecompileLimitHit")
        return count() - before, next(k for k in kinds if isinstance(error, getattr(torch._dynamo.exc, k)))
    return count() - before, ""


@pytest.mark.parametrize("settings", [
    {}, {"error_on_recompile": True}, {"automatic_dynamic_shapes": False}, {"assume_static_by_default": False},
    {"disable": True}, {"recompile_limit": 2}, {"recompile_limit": 3, "fail_on_recompile_limit_hit": True},
])
def test_settings_of_dynamo_are_honoured(settings: dict[str, Any]) -> None:
    torch._dynamo.reset()
    counters = torch._dynamo.utils.counters
    with torch._dynamo.config.patch(settings):
        ours = graphs_of_calls(ptdebug.compile, lambda: api.stats()["graphs"])
        stock = graphs_of_calls(lambda f: torch.compile(f, backend="eager"), lambda: counters["stats"]["unique_graphs"])
    assert ours == stock


SCALE = 1


class Scaled(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner, self.factor = torch.nn.Dropout(0.0), 2

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(x) * self.factor + SCALE


@pytest.mark.parametrize("name", [
    "skip_all_guards_unsafe", "keep_tensor_guards_unsafe", "skip_guard_on_globals_unsafe",
    "skip_guard_on_all_nn_modules_unsafe", "skip_guard_on_inbuilt_nn_modules_unsafe", "keep_portable_guards_unsafe",
])
def test_the_program_chooses_guards(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What differs from call to call without a guard on it keeps its old value, as in stock."""
    torch._dynamo.reset()
    found = []
    for compile in (ptdebug.compile, torch.compile):
        model, x = Scaled(), torch.ones(3)
        monkeypatch.setitem(globals(), "SCALE", 1)
        options = {"guard_filter_fn": getattr(torch.compiler, name)}
        backend = {} if compile is ptdebug.compile else {"backend": "eager"}
        compiled = compile(model, options=options, **backend)
        results = [compiled(x)]
        monkeypatch.setitem(globals(), "SCALE", 5)
        results.append(compiled(x))
        model.factor = 7
        results.append(compiled(x))
        model.inner.p = 1.0
        results.append(compiled(x))
        if name != "skip_all_guards_unsafe":  # a kernel for floats would read doubles
            results.append(compiled(x.double()))
        found.append([result[0].item() for result in results])
    assert found[0] == found[1]


def test_a_recompilation_names_the_guard_that_failed_among_those_kept() -> None:
    def keep(entries: Any) -> list[bool]:
        return ["'x'" not in entry.name for entry in entries]

    compiled = ptdebug.compile(lambda x, a, b: x * a + b, dynamic=False, options={"guard_filter_fn": keep})
    for numbers in ((1, 2), (5, 2), (5, 7)):
        compiled(torch.ones(2), *numbers)
    said = [reason for reason in api.stats()["reasons"] if reason.startswith("recompile: ")]
    assert said == ["recompile: L['a'] == 1, got 5", "recompile: L['b'] == 2, got 7"]


def test_what_has_no_meaning_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    from ptdebug.cli import compile_options, torch_settings

    compile_options.say_once.cache_clear()
    for _ in range(2):
        ptdebug.compile(plus_one, options={"triton.cudagraph_trees": True, "triton.cudagraphs": True})
        ptdebug.compile(plus_one, mode="max-autotune-no-cudagraphs")
        with torch._inductor.config.patch(pattern_matcher=False), torch._dynamo.config.patch(allow_rnn=True):
            ptdebug.compile(plus_one)
    said = [record.getMessage() for record in caplog.records if record.name == "ptdebug"]
    assert [text.partition(": ")[0] for text in said] == [
        "the option triton.cudagraph_trees has no effect", "mode='max-autotune-no-cudagraphs'",
        "torch._inductor.config.pattern_matcher has no effect", "torch._dynamo.config.allow_rnn has no effect"]
    unknown = [name for name in torch._inductor.config.get_config_copy()
               if torch_settings.why_unused(name) == "ptdebug does not know it"]
    assert not unknown


@pytest.mark.parametrize("settings, wanted", [
    ({"emulate_precision_casts": True}, ("intermediate-precision", "eager")),
    ({"disable_cpp_codegen": True}, ("compile", "aten")), ({"fx_graph_cache": False}, ("cache", "compile")),
    ({"cpp_wrapper": True}, ("wrapper", "cpp")),
])
def test_settings_of_inductor_are_decisions(settings: dict[str, Any], wanted: tuple[str, str], tmp_path: Path) -> None:
    def chain(x: torch.Tensor) -> torch.Tensor:
        h = (x * 2 + 1).relu() @ x
        for _ in range(3):
            h = (h.sigmoid() * 3 + 1).tanh() @ x
        return h

    x, made = torch.rand(16, 16).bfloat16(), []
    for given in ({"options": settings}, {}):
        api.reset()
        with ptdebug.record("settings", out=str(tmp_path)) as recording, torch._inductor.config.patch(
                {} if given else settings):
            torch.testing.assert_close(ptdebug.compile(chain, **given)(x), chain(x))
        made.append({(d.kind, d.chosen) for _, d in recording.decisions() if d.kind == wanted[0]})
    assert made == [{wanted}, {wanted}]


@pytest.mark.parametrize("disable", [torch.compiler.disable, api.disable])
def test_the_reason_of_a_disabled_function_is_told(disable: Callable[..., Any]) -> None:
    @disable(reason="it asks a database")
    def asks(x: torch.Tensor) -> torch.Tensor:
        return x + 1

    found = ptdebug.explain(lambda x: asks(x * 2) * 3)(torch.ones(2))
    assert [each.message for each in found.graph_breaks] == [
        "asks (it asks a database) is marked as not to be compiled"]


def test_an_unknown_stance_is_refused() -> None:
    with pytest.raises(RuntimeError, match=r"invalid torch\.compile stance 'nosuch'"):
        api.set_stance("nosuch")


def test_dynamo_tells_of_our_work_under_run(warm: Command, tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text("""
import torch
def f(x):
    x = x.sin()
    print(end="")
    return x.cos() + 1
fast = torch.compile(f)
fast(torch.ones(3))
from torch._dynamo.utils import counters
assert counters["stats"] == {"calls_captured": 3, "unique_graphs": 2}, counters
assert counters["frames"] == {"total": 2, "ok": 2} and sum(counters["graph_break"].values()) == 1, counters
counters.clear()
for subject in (f, fast):
    found = torch._dynamo.explain(subject)(torch.ones(3))
    assert (found.graph_count, found.graph_break_count, found.op_count) == (2, 1, 3), found
    assert "print()" in found.break_reasons[0].reason and found.break_reasons[0].user_stack[-1].lineno == 5
    assert len(found.out_guards) > 1 and "x" in str(found)
fast(torch.ones(4))
assert counters["stats"]["unique_graphs"] > 2
""")
    done = warm("run", "program.py")
    assert done.returncode == 0, done.stderr
