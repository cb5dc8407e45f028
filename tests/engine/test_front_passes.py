"""Graph passes: they remove what they should, keep what the program can see, and record what they did."""
from __future__ import annotations

import torch
import torch.fx
from ptdebug.engine import passes
from ptdebug.engine.aot.aten_graph import trace

from .programs import capture, recording_context


def optimized(program, *inputs, **settings):
    context, keeping = recording_context(**settings)
    aten = passes.run(trace(capture(program, *inputs), context), context)
    return aten, keeping


def _changed_by(keeping, name):
    """The record of the pass of that name; artifacts are numbered by its place in the table."""
    return next(found for (stage, artifact), found in keeping.records.items()
                if stage == "passes" and artifact.partition("_")[2] == name)


def targets(aten):
    return [str(n.target) for n in aten.module.graph.nodes if n.op == "call_function"]


def test_dead_code_goes_but_random_operators_stay():
    def program(x):
        x.sin()
        torch.rand_like(x)
        return x + 1

    aten, _ = optimized(program, torch.randn(3))
    assert "aten.sin.default" not in targets(aten)
    assert any("rand" in t for t in targets(aten)), "dropping it would change the generator's state"


def test_repeated_computations_become_one():
    def program(x):
        return (x.sin() * 2) + (x.sin() * 2)

    aten, keeping = optimized(program, torch.randn(3))
    assert targets(aten).count("aten.sin.default") == 1
    assert targets(aten).count("aten.mul.Tensor") == 1
    record = _changed_by(keeping, "common-subexpressions")
    assert [m.removed for m in record.matches] == [("sin_1",), ("mul_1",)]


def test_integer_and_float_arguments_are_not_the_same():
    def program(x):
        return torch.add(x, 1) * torch.add(x, 1.0) * torch.mul(x, 0.0) * torch.mul(x, -0.0)

    aten, _ = optimized(program, torch.randint(5, (3,)))
    assert targets(aten).count("aten.add.Tensor") == 2
    assert targets(aten).count("aten.mul.Tensor") == 5


def test_equal_results_stay_two_tensors():
    def program(x):
        return x.clone(), x.clone()

    aten, _ = optimized(program, torch.randn(3))
    first, second = aten.module.graph.output_node().args[0]
    assert first is not second


def test_reshapes_that_copy_stay_apart():
    def program(x):
        return x.reshape(6), x.reshape(3, 2)

    aten, _ = optimized(program, torch.randn(3, 2).t())
    assert targets(aten).count("aten.clone.default") == 2


def test_no_ops_go_and_copies_that_the_program_sees_stay():
    def program(x):
        return (x.view(2, 3) * 1).contiguous() + 1, x.clone()

    aten, keeping = optimized(program, torch.randn(2, 3))
    assert "aten.view.default" not in targets(aten)
    assert "aten.mul.Tensor" not in targets(aten)
    assert targets(aten).count("aten.clone.default") == 1
    assert _changed_by(keeping, "no-ops").matches


def test_copies_that_are_read_by_strides_stay():
    """Their memory begins with them, and not with what they are copies of."""
    def program(x):
        copy, scaled = x[1:].clone(), x[1:] * 1
        return [torch.as_strided(part, (2, 3), (3, 1), 0) + 1 for part in (copy, scaled.view(9))]

    x = torch.randn(4, 3)
    aten, _ = optimized(program, x)
    assert {"aten.clone.default", "aten.mul.Tensor"} <= set(targets(aten))
    torch.testing.assert_close(list(aten.module(x)), program(x))


def test_adding_zero_is_not_a_no_op():
    def program(x):
        return (x + 0) * 2

    aten, _ = optimized(program, torch.tensor([-0.0]))
    assert "aten.add.Tensor" in targets(aten)


def test_a_product_of_complex_numbers_with_one_is_not_a_no_op():
    """An infinity times the 0 of 1 + 0i is NaN."""
    def program(x):
        return torch.view_as_real(x * 1) + 1, torch.view_as_real(x / 1) * 2

    aten, _ = optimized(program, torch.randn(3, dtype=torch.complex64))
    assert {"aten.mul.Tensor", "aten.div.Tensor"} <= set(targets(aten))


def test_a_transposed_square_is_not_a_no_op():
    def program(x):
        return x.t() @ x

    aten, _ = optimized(program, torch.randn(3, 3))
    assert targets(aten) == ["aten.permute.default", "aten.mm.default"]  # without lowerings, transpose is permute


def test_constants_are_folded():
    graph = torch.fx.Graph()
    x = graph.placeholder("x")
    constant = graph.call_function(torch.tensor, ([1.0, 4.0],))
    root = graph.call_function(torch.sqrt, (constant,))
    graph.output((graph.call_function(torch.mul, (x, root)),))
    captured = capture(lambda x: x, torch.ones(2))
    context, keeping = recording_context()
    module = torch.fx.GraphModule({}, graph)
    aten = passes.run(trace(type(captured)(module, captured.inputs), context), context)
    assert "aten.sqrt.default" not in targets(aten)
    (result,) = torch.fx.Interpreter(aten.module).run(torch.ones(2))
    assert result.tolist() == [1.0, 2.0]
    assert _changed_by(keeping, "constant-folding").matches[0].rule == "fold"


def test_a_pass_can_be_skipped_by_an_override():
    def program(x):
        return x.sin() + x.sin()

    aten, _ = optimized(program, torch.randn(3), overrides={"pass:common-subexpressions": "skip"})
    assert targets(aten).count("aten.sin.default") == 2


def test_an_override_that_names_no_option_says_which_there_are():
    import pytest

    with pytest.raises(ValueError, match="run, skip"):
        optimized(lambda x: x.sin(), torch.randn(3), overrides={"pass:no-ops": "maybe"})
