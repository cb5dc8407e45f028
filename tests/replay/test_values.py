"""The first wrong value, inside fused kernels too; classes of differences; where NaNs are born; coverage."""
# mypy: ignore-errors

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import ptdebug
import pytest
import torch
from ptdebug.engine.codegen.cpp.operators import OPERATORS
from ptdebug.engine.ir import interpreter
from ptdebug.replay.ladder import ladder, regenerate, steps
from ptdebug.replay.ladder.arena import Arena
from ptdebug.replay.ladder.options import Options
from ptdebug.replay.ladder.replay import replay
from ptdebug.replay.program.program import ProgramAbsent
from ptdebug.replay.verdicts import classes
from ptdebug.replay.verdicts.compare import Comparison, compare, judge
from ptdebug.replay.verdicts.nonfinite import kind_of


def fused(x, w):
    y = torch.relu(x @ w)
    z = torch.sigmoid(y) * 3 + x
    return torch.softmax(z, -1).sum(0), y.exp()


def halves(x):
    y = (x * 1.01 + x) * 3 - x
    return y.sin() * 100 > 2.5, y.round()


def masked(x, n):
    k = n.item()
    kept = x[x > 0].tanh() * 3
    return kept, kept.sum() + k, torch.zeros(k + 1) + 1


def undefined(x):
    return torch.log(x - 1) * 2, (x * 0).sum() / (x - x).sum()


def unwritten(x):
    y = torch.empty(64)
    y[::2] = 1
    return y * 2, x.sin() @ x


def lstm():
    layer = torch.nn.LSTM(4, 5, batch_first=True)
    return lambda x: layer(x)[0].sin().sum()


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    torch.manual_seed(0)
    with ptdebug.record(out=str(tmp_path_factory.mktemp("home"))) as recording:
        ptdebug.compile(fused)(torch.randn(8, 16), torch.randn(16, 16))
        ptdebug.compile(halves)(torch.randn(4096, dtype=torch.bfloat16) * 3)
        ptdebug.compile(masked)(torch.randn(64), torch.tensor(3))
        ptdebug.compile(undefined)(torch.tensor([0.5, 2.0, 3.0]))
        ptdebug.compile(lstm())(torch.randn(2, 3, 4)).backward()
        ptdebug.compile(unwritten)(torch.randn(64, 64))
    return recording


class NoProgram:
    """A test is no program that can be run again."""

    def ask(self, _):
        raise ProgramAbsent("a test recorded it")


def replayed(recording, number, **options):
    return replay(recording, recording.compiles()[number].id, runs=NoProgram(), options=Options(**options))


def line_of(first):
    return Path(first.location.file).read_text().splitlines()[first.location.line - 1]


def verdicts(report):
    return {rung.stage: rung.verdict for rung in report.rungs}


@pytest.mark.parametrize("operation, source", [("mul", "sigmoid(y) * 3"), ("exp", "softmax")])
def test_a_wrong_operation_in_a_fused_kernel_is_named(recorded, monkeypatch, operation, source):
    rule = OPERATORS[operation]
    monkeypatch.setitem(OPERATORS, operation, lambda a, kind: f"({rule(a, kind)}) * 1.25f + 0.0625f")
    report = replayed(recorded, 0)
    found = verdicts(report)
    assert found["loop_ir"] != "different" and found["kernels"] == "different" and "kernels" in report.drift
    assert report.first.stage == "kernels" and source in line_of(report.first)
    assert "1.25f" in report.first.inside, "the line of the kernel"
    assert report.first.at["value"] == pytest.approx(report.first.at["expected"] * 1.25 + 0.0625, rel=1e-4)
    assert report.rungs[-2].kernels[0].comparison.verdict == "different", "alone, too"


def test_a_wrong_operation_of_the_loop_ir_is_named(recorded, monkeypatch):
    monkeypatch.setitem(interpreter.ELEMENTWISE, "sigmoid", lambda a: torch.sigmoid(a) * 1.01)
    report = replayed(recorded, 0)
    assert report.first.stage == "loop_ir" and report.first.node == "sigmoid"
    assert "torch.sigmoid(y)" in line_of(report.first)


def test_all_stages_of_right_programs_agree(recorded):
    for number in (0, 1, 2, 4):
        report = replayed(recorded, number, each_pass=True)
        assert report.verdict != "different" and report.drift == (), report
        assert not [v for rung in report.rungs for v in rung.values if v.comparison.verdict == "different"]


def test_what_a_verdict_covers(recorded, monkeypatch):
    assert replayed(recorded, 2).coverage == (5, 6), "no program can be run: a test recorded it"

    def refuse(*_):
        raise RuntimeError("not today")

    monkeypatch.setattr(regenerate, "made", refuse)
    report = replayed(recorded, 0)
    assert report.summary == "equal as far as run: 1 of 7 rungs"
    assert {rung.why for rung in report.rungs[2:]} == {"RuntimeError: not today"}


def test_a_rung_that_raises_does_not_end_the_replay(recorded, monkeypatch):
    def raising(*_):
        raise RuntimeError("out of luck")

    monkeypatch.setattr(steps, "run_loops", raising)
    report = replayed(recorded, 0)
    found = {rung.stage: rung for rung in report.rungs}
    assert found["loop_ir"].verdict == "different" and "out of luck" in found["loop_ir"].comparison.why
    assert found["kernels"].verdict != "different"


def test_every_gradient_is_reported(recorded):
    report = replayed(recorded, 4)
    assert set(verdicts(report).values()) - {"absent"} <= {"equal", "rounding"}
    document = report.document()["rungs"][-1]
    assert len(document["gradients"]) == 4 and all("weight" in g["name"] or "bias" in g["name"]
                                                   for g in document["gradients"])
    nodes = {value.name for rung in report.rungs if rung.stage == "backward" for value in rung.values}
    assert any(name.startswith("backward.") for name in nodes)


def test_where_a_nan_is_born(recorded):
    report = replayed(recorded, 3)
    assert report.verdict == "equal"
    first, *others = report.births
    assert (first.node, first.kind, first.index, first.count) == ("log", "NaN", (0,), 1)
    assert first.operands[0].value == "-0.5" and "torch.log" in line_of(first)
    assert [birth.kind for birth in others] == ["NaN"] and "born in log" in first.text


@pytest.mark.parametrize("drawn", [True, False])
def test_elided_rounding_is_named(recorded, monkeypatch, drawn):
    """Also if no draw of eager had shown that rounding decides the comparison."""
    if not drawn:
        monkeypatch.setattr("ptdebug.replay.ladder.reference.judge", lambda found, *_: found)
    report = replayed(recorded, 1)
    kernels = next(rung for rung in report.rungs if rung.stage == "kernels")
    assert (kernels.verdict, kernels.comparison.kind) == ("rounding", classes.ELIDED)
    assert "intermediate-precision" in kernels.comparison.explanation and report.verdict == "rounding"


# ---- memory, chance --------------------------------------------------------------------------------------------------
def tampered(monkeypatch, change):
    """The kernels run as they are, then `change(buffers of the kernel, memory)`."""
    run = steps.run_group

    def group(step, kernels, signatures, memory, symbols):
        run(step, kernels, signatures, memory, symbols)
        change([memory[name] for name in signatures[step.kernel].buffers])

    monkeypatch.setattr(steps, "run_group", group)


def kernels_of(report):
    return next(rung for rung in report.rungs if rung.stage == "kernels").comparison


@pytest.mark.parametrize("number", [0, 5], ids=["fused", "unwritten"])
def test_a_write_outside_of_a_buffer_is_out_of_bounds(recorded, monkeypatch, number):
    def overrun(buffers):
        buffer = buffers[-1]
        if buffer.untyped_storage().nbytes() > 8192 and buffer.storage_offset():  # between guard zones
            buffer.as_strided((1,), (1,), buffer.storage_offset() + buffer.numel()).fill_(0.0)

    tampered(monkeypatch, overrun)
    found = kernels_of(replayed(recorded, number))
    assert (found.verdict, found.kind) == ("different", classes.OUT_OF_BOUNDS)
    assert "writes outside of" in found.explanation


@pytest.mark.parametrize("runs, kind", [(range(100), classes.UNINITIALIZED), ((1, 4), classes.NONDETERMINISM)])
def test_what_depends_on_memory_is_uninitialized(recorded, monkeypatch, runs, kind):
    """Or a race, where some of the runs read it too early. Memory that nobody fills happens to be right."""
    allocate = Arena.guarded
    left, arenas = {}, []

    def guarded(self, name, value, fresh=False):
        made = allocate(self, name, value, fresh)
        if not any(arena is self for arena in arenas):
            arenas.append(self)  # whose memory is nobody else's from now on
        if fresh:
            left[made.data_ptr()] = made.flatten()[0].item()
        return made

    def read(buffers):
        if len(arenas) in runs:
            buffers[-1].flatten()[0] += left.get(buffers[-1].data_ptr(), 0.0)

    monkeypatch.setattr(Arena, "guarded", guarded)
    tampered(monkeypatch, read)
    found = kernels_of(replayed(recorded, 0))
    assert (found.verdict, found.kind) == ("different", kind)


def test_what_differs_from_run_to_run_is_nondeterminism(recorded, monkeypatch):
    count = iter(range(1000))
    tampered(monkeypatch, lambda buffers: buffers[-1].flatten()[:1].mul_(1 + 1e-7 * next(count)))
    assert kernels_of(replayed(recorded, 0, repeat=3)).kind == classes.NONDETERMINISM


@pytest.mark.parametrize("step, verdict", [(1e-7, "rounding"), (1e-2, "different")])
def test_results_that_vary_are_judged_as_compared(recorded, monkeypatch, step, verdict):
    """As those of atomic additions do, without --repeat as well."""
    count = iter(range(1000))
    tampered(monkeypatch, lambda buffers: buffers[-1].flatten()[:1].mul_(1 + step * (next(count) % 5)))
    found = kernels_of(replayed(recorded, 0))
    assert (found.verdict, found.kind) == (verdict, classes.NONDETERMINISM)


def long_sums(x, w):
    return (x @ w) * 2


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_a_long_sum_excuses_no_wrong_factor(tmp_path, monkeypatch, dtype):
    """Its terms are far larger than it, but halves are added up in float32."""
    torch.manual_seed(0)
    with torch.no_grad(), ptdebug.record(out=str(tmp_path)) as recording:
        ptdebug.compile(long_sums)(torch.randn(16, 2048, dtype=dtype), torch.randn(2048, 16, dtype=dtype))
    tampered(monkeypatch, lambda buffers: buffers[-1].mul_(1.1))
    assert kernels_of(replayed(recording, 0)).verdict == "different"


def test_terms_that_overflow_excuse_no_nan(tmp_path, monkeypatch):
    x = torch.cat([torch.full((4, 1024), 100.0), torch.full((4, 1024), -100.0)], 1).half()
    with torch.no_grad(), ptdebug.record(out=str(tmp_path)) as recording:
        ptdebug.compile(long_sums)(x, torch.ones(2048, 8).half())
    tampered(monkeypatch, lambda buffers: buffers[-1][0, 0].fill_(torch.nan))
    assert kernels_of(replayed(recording, 0)).verdict == "different"


def test_other_random_numbers_are_named(tmp_path, monkeypatch):
    with ptdebug.record(out=str(tmp_path)) as recording:
        ptdebug.compile(lambda x: torch.nn.functional.dropout(x.sin(), 0.5).exp() * 2)(torch.randn(64))
    call = steps._call

    def drawing_once_more(*arguments):
        torch.rand(1)
        call(*arguments)

    monkeypatch.setattr(steps, "_call", drawing_once_more)
    report = replayed(recording, 0)
    assert kernels_of(report).kind == classes.RANDOM and report.classified == classes.RANDOM


# ---- statistics ------------------------------------------------------------------------------------------------------
def test_one_draw_of_eager_is_no_measure():
    """All elements of a deep graph's gradient move together: eager's own distance may be tiny by luck."""
    torch.manual_seed(0)
    exact = torch.rand(1000, dtype=torch.float64)
    eager, value = (exact + 1e-8).float(), (exact * (1 + 3e-6)).float()
    found = compare(value, eager, exact)
    assert found.verdict == "different"
    draws = [(exact * (1 + 1e-6 * torch.randn(()).item())).float() for _ in range(8)]
    assert judge(found, value, eager, exact, draws).verdict == "rounding"
    far = (exact * 1.0001).float()
    assert judge(compare(far, eager, exact), far, eager, exact, draws).verdict == "different"


def test_jumps_are_rounding_only_where_rounding_decides():
    eager = torch.tensor([True, False, True, True])
    flipped, draws = eager.clone(), [eager.clone() for _ in range(8)]
    flipped[1] = True
    found = compare(flipped, eager)
    assert judge(found, flipped, eager, None, draws).verdict == "different"
    draws[3][1] = True
    assert judge(found, flipped, eager, None, draws).verdict == "rounding"


def test_one_jump_excuses_no_other_element():
    torch.manual_seed(0)
    exact = torch.rand(100, dtype=torch.float64)
    eager = exact.float()
    value, draws = eager.clone(), [(exact * (1 + 1e-7 * torch.randn(100))).float() for _ in range(8)]
    value[3] = draws[2][3] = float("inf")
    found = compare(value, eager, exact)
    assert judge(found, value, eager, exact, draws).verdict == "rounding"
    close, far = value * (1 + 4e-7), value * 1.01
    assert judge(compare(close, eager, exact), close, eager, exact, draws).verdict == "rounding"
    assert judge(compare(far, eager, exact), far, eager, exact, draws).verdict == "different"
    far = torch.where(value.isinf(), value, 2 * value)
    far[0] = eager[0]
    assert judge(compare(far, eager, exact), far, eager, exact, draws).verdict == "different"


def test_a_reference_outside_of_where_a_function_is_defined():
    """acos of 1 in float32, and of a little more in float64."""
    exact = torch.tensor([float("nan"), *torch.rand(99, dtype=torch.float64).tolist()], dtype=torch.float64)
    eager = exact.float().nan_to_num()
    value = torch.nextafter(eager, torch.ones(100))
    assert compare(value, eager, exact).verdict == "rounding"
    value[0] = 0.1
    found = compare(value, eager, exact)
    assert judge(found, value, eager, exact, [exact.float().nan_to_num()] * 8).verdict == "different"


def test_8_bits_are_judged_as_well():
    """Of which torch has neither isfinite nor isinf."""
    x = torch.tensor([1.0, 2.0, float("nan")]).to(torch.float8_e4m3fn)
    y = torch.tensor([1.0, 8.0, float("nan")]).to(torch.float8_e4m3fn)
    assert kind_of(x) == "NaN" and kind_of(x[:2]) == ""
    assert judge(compare(y, x), y, x, None, [x] * 8).verdict == "different"


def test_16_bits_without_a_reference_are_not_compared_in_units_in_the_last_place():
    x = torch.full((8,), 2.0, dtype=torch.bfloat16)
    assert compare(x * 1.5, x).verdict == "different"
    assert replace(Comparison("different"), kind="").classified == "bug"


def test_buffers_that_must_not_share_memory(recorded, monkeypatch):
    """As if the plan let a result take the memory of a value that is still needed."""
    real = ladder.lowered

    def planned(stage, work, *arguments):
        if stage == "wrapper" or arguments[2]:
            names = [item.kernel for item in work.plan.items if hasattr(item, "kernel")]
            values = real("kernels", work, *arguments[:2], False, *arguments[3:])
            spoiled = {**values.values, names[0]: None}
            values.outputs[0].mul_(2)
            return replace(values, values=spoiled)
        return real(stage, work, *arguments)

    monkeypatch.setattr(ladder, "lowered", lambda stage, work, inputs, arena=None, shared=False, random=None: planned(
        stage, work, inputs, arena, shared, random))
    report = replayed(recorded, 0)
    assert report.rungs[-1].verdict == "different" and kernels_of(report).verdict != "different"
    assert report.classified == report.first.comparison.kind == classes.MEMORY_PLAN
