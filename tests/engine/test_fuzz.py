"""The differential fuzz: a few dozen programs with fresh seeds in each run of CI, and the fuzz itself on known faults.

    python tests/engine/fuzz_graphs.py --count 50000 --jobs 16 --seed 1

is the long run. A failure here prints the program; `python tests/engine/fuzz_graphs.py --show SEED` runs it again.
"""
from __future__ import annotations

import math
import random
import warnings

import pytest
import torch

from . import fuzz_graphs
from .fuzz_compare import difference, excused, execute, said
from .fuzz_exact import extended
from .fuzz_graphs import Failure, build, check, shrink
from .fuzz_programs import Call, Input, Program, Ref

FIRST = random.randrange(10**9)


@pytest.mark.parametrize("batch", range(3))
def test_random_programs_give_eagers_results(batch):
    failures: list[Failure] = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fuzz_graphs.fuzz(FIRST + 8 * batch, 8, lambda start, done, found: failures.extend(found))
    assert not failures, "\n".join(f"{f.program}\n# {dict(f.overrides)} {f.what}" for f in failures)


def test_a_seed_gives_one_program():
    assert str(build(7)) == str(build(7)) != str(build(8))


def _program(*calls: Call) -> Program:
    source = Input("a0", (3, 4), (4, 1), 0, torch.float32, "normal", 1)
    return Program(0, (source,), calls, (calls[-1].name,))


def test_a_wrong_value_a_wrong_layout_and_shared_memory_are_found():
    program = _program(Call("v0", "torch.sin", (Ref("a0"),)))
    inputs = program.tensors()
    (right,) = execute(program, inputs)
    assert difference(program, [right], inputs) == ""
    assert "eager" in difference(program, [right + 1e-3], inputs)
    assert "strides" in difference(program, [right.t().contiguous().t()], inputs)
    assert "a0" in difference(program, [right], [inputs[0] + 1])
    assert "shares memory" in difference(program, [right], [_over(right, inputs[0])])


def _over(memory: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    """The values in memory that belongs to something else, which is no longer what it was."""
    both = torch.cat([memory.flatten(), values.flatten()])
    memory.set_(both.untyped_storage(), 0, memory.shape, memory.stride())
    return both[12:].view(3, 4)


def test_only_what_roundings_change_is_excused():
    other = torch.tensor([1.0, 2.0, float("inf")])
    nudged = [other * (1 + 1e-6)]
    assert excused(torch.tensor([1.000002, 2.1, float("inf")]), other, nudged).tolist() == [True, False, True]
    assert not excused(torch.tensor([1]), torch.tensor([2]), [torch.tensor([2])]).any()


def test_a_value_beside_a_pole_may_be_the_pole():
    """What is a rounding away from -2 may be -2, of which lgamma is infinite; of -2.1 it is not."""
    for near, allowed in ((-2.0000000000000004, True), (-2.1, False)):
        data = torch.tensor([near / 3] * 3, dtype=torch.float64)
        source = Input("a0", (3,), (1,), 0, torch.float64, "", 0, data=data)
        calls = (Call("v0", "torch.mul", (Ref("a0"), 3)), Call("v1", "torch.lgamma", (Ref("v0"),)))
        program = Program(0, (source,), calls, ("v1",))
        infinite = [torch.full((3,), math.inf, dtype=torch.float64)]
        assert (difference(program, infinite, program.tensors()) == "") is allowed


def test_an_error_that_is_a_rounding_away_from_eager_is_excused():
    """A row whose squares overflow is NaN in eager's layer norm if it is short, else 0, by which nothing is divided."""
    for far, allowed in ((1e30, True), (2.0, False)):
        row = Input("a0", (2,), (1,), 0, torch.float32, "", 0, data=torch.tensor([1.0, far]))
        whole = Input("a1", (), (), 0, torch.int8, "small", 1)
        calls = (Call("v0", "F.layer_norm", (Ref("a0"), (2,))), Call("v1", "torch.any", (Ref("v0"),)),
                 Call("v2", "torch.fmod", (Ref("a1"), Ref("v1"))))
        assert ("ZeroDivisionError" in said(Program(0, (row, whole), calls, ("v2",)))) is allowed


def test_an_error_that_random_numbers_lead_to_is_eagers_too():
    calls = (Call("v0", "torch.randint", (0, 1, (4,))), Call("v1", "torch.floor_divide", (Ref("v0"), Ref("v0"))))
    program = Program(0, (), calls, ("v1",))
    fine = _program(Call("v0", "torch.sin", (Ref("a0"),)))
    assert not check([program], {})
    assert not check([fine, program], {})


def test_nothing_may_be_left_of_what_is_a_rounding_away_from_a_multiple():
    """xlogy of 0 is 0, also where the logarithm is NaN."""
    for whole, allowed in ((1.6015625, True), (2.0, False)):
        inputs = [Input(name, (1,), (1,), 0, torch.bfloat16, "", 0, data=torch.tensor([-x], dtype=torch.bfloat16))
                  for name, x in (("a0", whole), ("a1", 0.796875))]
        calls = (Call("v0", "torch.fmod", (Ref("a0"), Ref("a1"))), Call("v1", "torch.xlogy", (Ref("v0"), Ref("a1"))))
        program = Program(0, tuple(inputs), calls, ("v1",))
        assert (difference(program, [torch.zeros(1, dtype=torch.bfloat16)], program.tensors()) == "") is allowed


def test_a_mean_of_windows_may_be_nothing_where_the_order_of_its_sum_decides():
    for large, allowed in ((3e8, True), (2.0, False)):
        source = Input("a0", (1, 1, 4), (4, 4, 1), 0, torch.float32, "", 0, data=torch.tensor([large, -large, 1e-3, 0]))
        calls = (Call("v0", "F.adaptive_avg_pool1d", (Ref("a0"), 1)), Call("v1", "torch.logical_not", (Ref("v0"),)))
        program = Program(0, (source,), calls, ("v1",))
        assert (difference(program, [torch.ones(1, 1, 1, dtype=torch.bool)], program.tensors()) == "") is allowed


def test_a_score_that_overflows_on_the_way_may_be_anything():
    """One processor finds inf - inf where another, whose product and sum are one instruction, finds inf."""
    for large, allowed in ((3e38, True), (2.0, False)):
        query, key, value = [Input(name, (1, 1, 1, 2), (2, 2, 2, 1), 0, torch.float32, "", 0, data=torch.tensor(data))
                             for name, data in (("a0", [2.5, 2.5]), ("a1", [large, -large]), ("a2", [1.0, 1.0]))]
        calls = (Call("v0", "F.scaled_dot_product_attention", (Ref("a0"), Ref("a1"), Ref("a2"))),)
        program = Program(0, (query, key, value), calls, ("v0",))
        assert (difference(program, [torch.full((1, 1, 1, 2), math.nan)], program.tensors()) == "") is allowed


def test_running_statistics_are_compared():
    data = torch.tensor([[1.0, 2.0], [-1.0, 3.0]])
    given = (data, torch.tensor([3.0, 5.0]), torch.ones(2))
    inputs = [Input(f"a{i}", tuple(t.shape), t.stride(), 0, t.dtype, "", 0, data=t.flatten())
              for i, t in enumerate(given)]
    call = Call("v0", "F.batch_norm", (Ref("a0"), Ref("a1"), Ref("a2"), None, None, True))
    program = Program(0, tuple(inputs), (call,), ("v0",))
    memory = program.tensors()
    results = execute(program, memory)
    assert difference(program, results, memory) == ""
    memory[1][1] *= 1 + 1e-7
    assert difference(program, results, memory) == ""
    memory[1][1] = 5.0  # as it was
    assert "a1" in difference(program, results, memory)


def test_statistics_that_share_memory_do_not_stop_the_runs_with_changed_roundings():
    rows = Input("a0", (4, 3), (3, 1), 0, torch.float32, "normal", 1)
    inputs = [rows, *[Input(name, (3,), (0,), 0, torch.float32, "index", 1, 5) for name in ("a1", "a2")]]
    call = Call("v0", "F.batch_norm", (Ref("a0"), Ref("a1"), Ref("a2"), None, None, False))
    program = Program(0, tuple(inputs), (call,), ("v0",))
    memory = program.tensors()
    (right,) = execute(program, memory)
    assert difference(program, [right * (1 + 1e-7)], memory) == ""


def test_a_failing_program_shrinks_to_the_call_that_is_wrong(monkeypatch):
    calls = (
        Call("v0", "torch.exp", (Ref("a0"),)),
        Call("v1", "torch.neg", (Ref("v0"),)),
        Call("v2", "torch.floor", (Ref("v1"),)),
        Call("v3", "torch.cos", (Ref("v2"),)),
    )
    wrong = lambda programs, overrides, dynamic: [
        Failure(p, "kernels: wrong") for p in programs if any(c.function == "torch.floor" for c in p.calls)]
    monkeypatch.setattr(fuzz_graphs, "check", wrong)
    program = Program(0, _program(calls[0]).inputs, calls, ("v3", "v2", "v1"))
    small = shrink(Failure(program, "kernels: wrong")).program
    assert [c.function for c in small.calls] == ["torch.floor"]


@pytest.mark.parametrize("function", ("torch.var", "torch.std", "torch.cumsum"))
def test_doubles_are_judged_by_more_digits(function):
    """Eager's variance of these is 4e-14 off the exact one, as no float32 tells."""
    data = torch.randint(-5, 6, (3584,), generator=torch.Generator().manual_seed(3)).double()
    if function == "torch.cumsum":  # of whole numbers nothing is off
        data += 0.1
    source = Input("a0", (3584,), (1,), 0, torch.float64, "", 0, data=data)
    program = Program(0, (source,), (Call("v0", function, (Ref("a0"), 0)),), ("v0",))
    inputs = program.tensors()
    (right,) = execute(program, inputs)
    (exact,) = extended(function, inputs[0], 0)
    assert not torch.equal(right, exact)
    assert difference(program, [exact], inputs) == ""
    assert "eager" in difference(program, [exact * (1 + 1e-12)], inputs)


def test_running_statistics_that_share_memory_are_compared_where_nothing_is_written():
    shapes = {"a0": ((1, 3, 0), (3, 1, 1)), "a1": ((3,), (0,)), "a2": ((3,), (1,))}
    inputs = [Input(name, shape, stride, 0, torch.float32, "index", 1, 5) for name, (shape, stride) in shapes.items()]
    inputs.append(Input("a3", (4,), (1,), 0, torch.float32, "normal", 1))
    calls = (Call("v0", "F.batch_norm", (Ref("a0"), Ref("a1"), Ref("a2"), None, None, True)),
             Call("v1", "torch.sum", (Ref("a3"),)))
    program = Program(0, tuple(inputs), calls, ("v0", "v1"))
    memory = program.tensors()
    nothing, total = execute(program, memory)
    assert difference(program, [nothing, total * (1 + 1e-7)], memory) == ""


def test_which_bits_a_nan_has_is_nobodys():
    data = torch.tensor([-3.0] * 16, dtype=torch.bfloat16)
    source = Input("a0", (16,), (1,), 0, torch.bfloat16, "", 0, data=data)
    calls = (Call("v0", "torch.acosh", (Ref("a0"),)), Call("v1", "torch.Tensor.view", (Ref("v0"), torch.int16)),
             Call("v2", "torch.square", (Ref("v1"),)))
    program = Program(0, (source,), calls, ("v2",))
    for bits, square in ((0x7FC0, 4096), (-1, 1)):
        assert torch.tensor(bits, dtype=torch.int16).square().item() == square
        assert difference(program, [torch.full((16,), square, dtype=torch.int16)], program.tensors()) == ""
