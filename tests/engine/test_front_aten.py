"""Functionalization and decomposition: the ATen graph means what the program meant."""
from __future__ import annotations

import pytest
import torch
import torch.fx
import torch.nn.functional as F
from ptdebug.artifacts.context import CompileContext
from ptdebug.engine.aot import decompositions
from ptdebug.engine.aot.aten_graph import needs_gradients, trace
from ptdebug.engine.graphs.functional_graph import Constant, FromGraph, FromInput, ViewOfInput
from ptdebug.engine.unsupported import EngineUnsupported

from .programs import Captured, capture, recording_context


def nodes(aten):
    return [str(n.target) for n in aten.module.graph.nodes if n.op == "call_function"]


def test_in_place_operators_disappear_and_inputs_are_listed_as_mutated():
    def program(x, y):
        x.mul_(2)
        x[0].add_(y[0])
        return x + 1

    x, y = torch.randn(4, 3), torch.randn(4, 3)
    aten = trace(capture(program, x, y), CompileContext())
    assert aten.mutations == {0: 0}
    assert not any(t._schema.is_mutable for t in _overloads(aten))
    new_x, result = torch.fx.Interpreter(aten.module).run(x.clone(), y)
    expected = x.clone()
    expected_result = program(expected, y)
    torch.testing.assert_close(new_x, expected, rtol=0, atol=0)
    torch.testing.assert_close(result, expected_result, rtol=0, atol=0)


def _overloads(aten):
    return [n.target for n in aten.module.graph.nodes if isinstance(n.target, torch._ops.OpOverload)]


def test_results_know_whether_they_are_inputs_views_or_new():
    def program(x, y):
        return x, x.t(), y[1:], x + y, 7

    aten = trace(capture(program, torch.randn(3, 3), torch.randn(3, 3)), CompileContext())
    assert aten.outputs == (
        FromInput(0), ViewOfInput(0, (3, 3), (1, 3), 0, torch.float32),
        ViewOfInput(1, (2, 3), (3, 1), 3, torch.float32), FromGraph(0), Constant(7),
    )


def test_a_view_of_a_mutated_input_is_a_view_of_that_input():
    def program(x):
        v = x.view(-1)
        v.add_(1)
        return v

    aten = trace(capture(program, torch.randn(2, 3)), CompileContext())
    assert aten.outputs == (ViewOfInput(0, (6,), (1,), 0, torch.float32),)
    assert aten.mutations == {0: 0}


def test_the_same_tensor_returned_twice_is_one_output():
    def program(x):
        y = x.sin()
        return y, y

    aten = trace(capture(program, torch.randn(2)), CompileContext())
    assert aten.outputs == (FromGraph(0), FromGraph(0))


def test_nodes_know_the_captured_node_they_come_from():
    def program(x, w):
        return F.layer_norm(F.linear(x, w), (4,))

    captured = capture(program, torch.randn(2, 4), torch.randn(4, 4))
    aten = trace(captured, CompileContext())
    origins = {o for n in aten.module.graph.nodes for o in n.meta.get("origins", ())}
    assert origins == {"linear", "layer_norm"}


def test_operators_with_a_lowering_are_kept_and_others_decomposed():
    def program(x):
        return F.hardswish(x)

    captured = capture(program, torch.randn(3))
    assert "aten.hardswish.default" not in nodes(trace(captured, CompileContext()))
    kept = trace(captured, CompileContext(), {torch.ops.aten.hardswish.default})
    assert nodes(kept) == ["aten.hardswish.default"]


def test_a_decomposition_is_a_decision_that_can_be_refused():
    captured = capture(lambda x: F.hardswish(x), torch.randn(3))
    context, keeping = recording_context(overrides={"decompose:aten.hardswish.default@*": "keep"})
    aten = trace(captured, context)
    assert nodes(aten) == ["aten.hardswish.default"]
    assert [(d.chosen, d.forced) for d in keeping.decisions] == [("keep", True)]


def test_constants_made_in_the_program_are_kept_with_their_values():
    def program(x):
        return x * torch.tensor([1.0, 2.0, 3.0])

    aten = trace(Captured(_with_tensor_call(), capture(program, torch.ones(3)).inputs), CompileContext())
    (result,) = torch.fx.Interpreter(aten.module).run(torch.ones(3))
    torch.testing.assert_close(result, torch.tensor([1.0, 2.0, 3.0]))


def _with_tensor_call() -> torch.fx.GraphModule:
    graph = torch.fx.Graph()
    x = graph.placeholder("x")
    constant = graph.call_function(torch.tensor, ([1.0, 2.0, 3.0],))
    graph.output((graph.call_function(torch.mul, (x, constant)),))
    return torch.fx.GraphModule({}, graph)


def test_a_metadata_mutation_is_refused_with_a_reason():
    def program(x):
        x.t_()
        return x + 1

    with pytest.raises(EngineUnsupported, match="shape or strides"):
        trace(capture(program, torch.randn(2, 3)), CompileContext())


def test_a_result_that_needs_gradients_is_seen():
    captured = capture(lambda x: x * 2, torch.randn(3))
    assert not needs_gradients(captured)
    for node in captured.module.graph.nodes:
        if node.op == "call_function":
            node.meta["val"] = torch.randn(3, requires_grad=True)
    assert needs_gradients(captured)


def test_the_grad_mode_of_the_process_is_untouched():
    def program(x):
        return x.sin()

    before = torch.is_grad_enabled()
    trace(capture(program, torch.randn(2)), CompileContext())
    assert torch.is_grad_enabled() == before


def test_the_decision_of_a_rule_names_the_rule_and_the_nodes_it_made():
    captured = capture(lambda x: F.hardshrink(x), torch.randn(3))
    context, keeping = recording_context()
    aten = trace(captured, context)
    made = [n.name for n in aten.module.graph.nodes if n.op == "call_function"]
    (decision,) = [d for d in keeping.decisions if d.kind == "decompose"]
    assert decision.subject == "aten.hardshrink.default@hardshrink"
    assert "torch._refs.nn.functional.hardshrink" in decision.why and "it has no lowering" in decision.why
    assert decision.origins == ("capture#hardshrink", *[f"forward#{name}" for name in made])


def test_a_rule_that_goes_before_a_lowering_says_so():
    context, keeping = recording_context()
    absolute = torch.ops.aten.abs.default
    trace(capture(lambda x: x.abs(), torch.randn(3, dtype=torch.complex64)), context, {absolute})
    (decision,) = [d for d in keeping.decisions if d.subject.startswith(f"{absolute}@")]
    assert "before its lowering sees it" in decision.why and "no lowering" not in decision.why


def test_a_division_of_numbers_has_no_tensors_among_its_arguments():
    captured = capture(lambda x: x * x.new_ones(()), torch.ones(3))
    made = next(node for node in captured.module.graph.nodes if node.target == "new_ones")
    made.op, made.target, made.args, made.kwargs = "call_function", torch.div, (256, 32), {"rounding_mode": "trunc"}
    aten = trace(captured, CompileContext())
    assert torch.fx.Interpreter(aten.module).run(torch.ones(3))[0].tolist() == [8.0] * 3


def test_running_statistics_and_one_hot_are_expressed_by_torchs_python_rules():
    def program(x, mean, variance, index):
        return F.batch_norm(x, mean, variance, None, None, True), F.one_hot(index, 4)

    tensors = torch.randn(5, 3), torch.zeros(3), torch.ones(3), torch.tensor([0, 3, 1])
    assert sorted(trace(capture(program, *tensors), CompileContext()).mutations.values()) == [1, 2]


def test_a_rule_that_cannot_be_traced_leaves_its_operator_to_aten(monkeypatch):
    def writes(x, *rest):
        y = x.clone()
        return y.mul_(2)

    monkeypatch.setitem(decompositions.OWN, torch.ops.aten.hardshrink.default, writes)
    context, keeping = recording_context()
    aten = trace(capture(lambda x: F.hardshrink(x) + 1, torch.randn(3)), context)
    assert nodes(aten) == ["aten.hardshrink.default", "aten.add.Tensor"]
    (decision,) = [d for d in keeping.decisions if d.kind == "decompose"]
    assert decision.chosen == "keep" and "mul_" in decision.why


@pytest.mark.parametrize("values", ([0, 5], [-1, 0]))
def test_one_hot_raises_for_its_data_when_the_graph_runs(values):
    captured = capture(lambda x: F.one_hot(x, 5), torch.tensor([0, 4]))
    module = trace(captured, CompileContext()).module
    assert torch.equal(module(torch.tensor([0, 4]))[0], F.one_hot(torch.tensor([0, 4]), 5))
    with pytest.raises(RuntimeError, match="Class values must be"):
        module(torch.tensor(values))
