"""What is saved for the backward: any choice gives the same gradients, and the default one is a good one."""
from __future__ import annotations

import random
from dataclasses import replace

import ptdebug
import pytest
import torch
import torch.nn.functional as F
from ptdebug.artifacts.context import CompileContext, OverrideError
from ptdebug.artifacts.render import render
from ptdebug.cli.wiring import engine_backend
from ptdebug.engine.aot.autograd.describe import partition_record
from ptdebug.engine.aot.autograd.joint import trace_joint
from ptdebug.engine.aot.autograd.max_flow import Unbounded
from ptdebug.engine.aot.autograd.min_cut import RECOMPUTE, Prices, region, solve
from ptdebug.engine.aot.autograd.partition import partition
from ptdebug.engine.graphs.functional_graph import Constant, FromInput
from ptdebug.engine.lowering import LOWERINGS
from ptdebug.tracer.frames import dispatch
from ptdebug.tracer.fx.backend_call import CompileOptions
from torch.utils.checkpoint import checkpoint

from ..programs import Captured, Keeping, capture


def joint_of(function, *inputs):
    captured = capture(function, *inputs)
    return trace_joint(Captured(captured.module, captured.inputs, True), CompileContext(), LOWERINGS)


def run_joint(joint, inputs, tangents, seed=0):
    """All outputs of the joint graph."""
    torch.manual_seed(seed)
    return torch.fx.Interpreter(joint.module).run(*inputs, *tangents)


def run_halves(halves, inputs, tangents, seed=0):
    """The same from forward and backward."""
    torch.manual_seed(seed)
    values = torch.fx.Interpreter(halves.forward.module).run(*inputs)
    count = len(halves.joint.forward.mutations)
    given = []
    for output in halves.forward.outputs[halves.joint.forward_outputs - count :]:
        given.append(inputs[output.index] if isinstance(output, FromInput) else
                     int(output.value) if isinstance(output, Constant) else values[output.index])
    found = torch.fx.Interpreter(halves.backward.module).run(*given, *tangents)
    gradients = [None if isinstance(o, Constant) else found[o.index] for o in halves.backward.outputs]
    return [*values[: halves.joint.forward_outputs], *gradients]


def tangents_of(joint):
    return [torch.randn(n.meta["val"].shape) for n in joint.module.graph.find_nodes(op="placeholder")
            if n.name.startswith("tangent")]


def check(joint, inputs, **settings):
    """The two halves compute what the joint graph does, bit for bit; the halves."""
    context = CompileContext(**settings)
    halves = partition(joint, context)
    inputs = [x.detach() if isinstance(x, torch.Tensor) else x for x in inputs]
    tangents = tangents_of(joint)
    for expected, got in zip(run_joint(joint, inputs, tangents), run_halves(halves, inputs, tangents), strict=True):
        assert (expected is None) == (got is None)
        if expected is not None:
            torch.testing.assert_close(got, expected, rtol=0, atol=0)
    return halves


def saved(halves, *kinds):
    return {s.node for s in halves.saved if s.kind in (kinds or ("tensor", "output"))}


def held(halves):
    return sum(s.bytes for s in halves.saved if s.kind == "tensor")


# ---- any choice is right --------------------------------------------------------------------------------------------
POINTWISE = [torch.sin, torch.exp, torch.tanh, torch.sigmoid, torch.relu, F.gelu, torch.neg, lambda x: x * x,
             lambda x: x.clamp(-1, 1), lambda x: F.dropout(x.clone(memory_format=torch.contiguous_format), 0.3),
             lambda x: F.layer_norm(x, (x.shape[-1],)),
             lambda x: x.softmax(-1), lambda x: x - x.mean(0), lambda x: x.t().contiguous().t(), lambda x: x.cumsum(0),
             lambda x: torch.cat([x[:3], x[3:] * 2]), lambda x: x.reshape(-1).view(6, 6), lambda x: x / x.abs().amax()]
PAIRS = [torch.add, torch.mul, torch.mm, lambda a, b: torch.where(a > b, a, b), lambda a, b: a / (b.abs() + 1),
         lambda a, b: torch.maximum(a, b), lambda a, b: a @ b.t() + a]


def random_program(choice):
    """A program over three 6 x 6 matrices, of which the last needs no gradient."""
    steps = [(choice.choice(PAIRS), choice.random(), choice.random()) if choice.random() < 0.4 else
             (choice.choice(POINTWISE), choice.random()) for _ in range(choice.randint(3, 14))]

    def program(a, b, c):
        values = [a, b, c]
        for function, *where in steps:
            values.append(function(*(values[int(w * len(values))] for w in where)))
        return values[-1] * a, values[-2].sum(0) + b

    return program


@pytest.mark.parametrize("seed", [*range(20), *(pytest.param(n, marks=pytest.mark.slow) for n in range(20, 220))])
def test_random_graphs_with_random_cuts_have_equal_gradients(seed):
    choice = random.Random(seed)
    torch.manual_seed(seed)
    inputs = [torch.randn(6, 6, requires_grad=True), torch.randn(6, 6, requires_grad=True), torch.randn(6, 6)]
    joint = joint_of(random_program(choice), *inputs)
    check(joint, inputs)
    for _ in range(4):
        keeping = Keeping()
        partition(joint, CompileContext(recorder=keeping, recording=True))
        asked = [d for d in keeping.decisions if d.kind == "save-for-backward" and len(d.options) > 1]
        names = choice.sample(asked, choice.randint(0, len(asked)))
        overrides = {d.id: choice.choice(["save", "recompute"]) for d in names}
        halves = check(joint, inputs, overrides=overrides, memory_budget=choice.choice([1.0, 1.0, 0.5, 0.2, 0.0]))
        for name, option in overrides.items():
            assert option == "save" or name.removeprefix("save-for-backward:") not in {s.node for s in halves.saved}


def test_an_override_of_what_must_be_saved_is_refused():
    x = torch.randn(4, 4, requires_grad=True)
    joint = joint_of(lambda x: F.dropout(x, 0.5), x)
    with pytest.raises(OverrideError, match="save"):
        partition(joint, CompileContext(overrides={"save-for-backward:*": "recompute"}))


# ---- the default choice is a good one -------------------------------------------------------------------------------
def test_matrix_products_are_saved_and_cheap_operators_are_not():
    x, w, v = (torch.randn(64, 64, requires_grad=True) for _ in range(3))
    joint = joint_of(lambda x, w, v: ((x @ w * 2 + 1).square() * 3).sin() @ v, x, w, v)
    halves = check(joint, (x, w, v))
    kinds = {s.node: s.why for s in halves.saved}
    assert "a matrix product" in kinds["mm"]
    assert {r.node for r in halves.recomputed} >= {"mul", "add"}
    assert len(saved(halves)) == 2  # the product, and the argument of the next one


def test_views_are_not_saved_but_what_they_look_at():
    x, w = torch.randn(8, 16, requires_grad=True), torch.randn(16, 8, requires_grad=True)
    halves = check(joint_of(lambda x, w: (x @ w).view(4, 16).t().exp().sum(), x, w), (x, w))
    graph = halves.joint.module.graph
    views = {n.name for n in graph.nodes if str(n.target).startswith(("aten.t.", "aten.view."))}
    assert views and not views & {s.node for s in halves.saved}


def test_a_mask_is_saved_rather_than_numbers():
    x = torch.randn(64, 64, requires_grad=True)
    halves = check(joint_of(lambda x: (x.sum(1, keepdim=True) * x.detach()).relu() * 2, x), (x,))
    assert held(halves) <= 64 * 64 + 64 * 4


def test_what_the_program_may_change_is_kept_only_where_eager_keeps_it():
    # eager saves exp(x), not x: changing x before the backward is fine, and must be fine here
    x = torch.randn(8, 8, requires_grad=True)
    halves = check(joint_of(lambda x: x.exp(), x), (x,))
    assert saved(halves, "input") == set()
    assert saved(halves) == {"exp"}


def test_results_are_not_saved_in_the_place_of_what_eager_saves():
    def program(x):
        shifted = x.sin() + 1
        return shifted, shifted.exp() * 2

    x = torch.randn(8, 8, requires_grad=True)
    halves = check(joint_of(program, x), (x,))
    assert "add" not in {s.node for s in halves.saved}


def test_reductions_are_saved_when_they_are_small():
    x = torch.randn(256, 256, requires_grad=True)
    halves = check(joint_of(lambda x: x / x.square().sum(1, keepdim=True).sqrt(), x), (x,))
    assert held(halves) <= 4 * 256 * 4


def test_a_residual_stream_is_not_computed_again_from_the_start():
    def program(x, a, b, c, d, e, f, g, h):
        for w in (a, b, c, d, e, f, g, h):
            x = x + (x.tanh() @ w)
        return x

    inputs = [torch.randn(32, 32, requires_grad=True) for _ in range(9)]
    halves = check(joint_of(program, *inputs), inputs)
    additions = {r.node for r in halves.recomputed if r.node.startswith("add")}
    assert not additions


# ---- the backward in order ------------------------------------------------------------------------------------------
def test_what_is_computed_again_stands_before_its_first_use():
    x, w, v = (torch.randn(16, 16, requires_grad=True) for _ in range(3))
    joint = joint_of(lambda x, w, v: (((x @ w) * 2 + 1).sin() @ v * 3 + 1).cos(), x, w, v)
    graph = check(joint, (x, w, v)).backward.module.graph
    nodes = [n for n in graph.nodes if n.op == "call_function"]
    positions = {n: i for i, n in enumerate(nodes)}
    tangent = {n for n in graph.nodes if n.name.startswith("tangent")}
    for node in nodes:
        if any(n in tangent for n in node.all_input_nodes):
            tangent.add(node)
    again = [n for n in nodes if n not in tangent]
    assert again
    for node in again:
        first = min(positions[u] for u in node.users if u in positions)
        assert all(n in again or n.op == "placeholder" for n in nodes[positions[node] + 1 : first])


# ---- checkpoints and budgets ----------------------------------------------------------------------------------------
def test_a_checkpointed_region_saves_nothing_but_random_numbers():
    def program(x, w, v):
        h = (x @ w).tanh()
        return (F.dropout(h.exp(), 0.5) @ v).sin()

    inputs = [torch.randn(16, 16, requires_grad=True) for _ in range(3)]
    joint = joint_of(program, *inputs)
    names = {"mm", "tanh", "exp", "mm_1"}
    for node in joint.module.graph.nodes:
        if node.meta.get("phase") == "forward" and node.op == "call_function":
            node.meta["recompute"] = "always"
    halves = check(joint, inputs)
    kept = saved(halves)
    assert not kept & names
    assert {"mm", "tanh", "exp"} <= {r.node for r in halves.recomputed}
    assert kept and all("random" in s.why for s in halves.saved if s.node in kept)


def test_what_can_be_neither_saved_nor_computed_again_is_named():
    joint = joint_of(lambda x: F.dropout(x, 0.5).exp().sin(), torch.randn(4, 4, requires_grad=True))
    found = region(joint)
    (drawn,) = [n for n in found.candidates if found.costs[n].never and n.op != "placeholder"]
    found.costs[drawn] = replace(found.costs[drawn], kind="tuple")
    with pytest.raises(Unbounded, match=f"neither saved nor computed again: {drawn.name}"):
        solve(found, Prices(), {n: RECOMPUTE for n in found.candidates if n is not drawn})


def test_what_goes_from_one_checkpointed_region_to_the_next_is_kept():
    w = (torch.randn(32, 32) / 6).requires_grad_()

    def block(x):
        return (x @ w).tanh() @ w

    def program(x):
        return checkpoint(block, checkpoint(block, x, use_reentrant=False), use_reentrant=False).sin().sum()

    context = None

    def make_context(compile_id):
        nonlocal context
        context = CompileContext(compile_id, recorder=Keeping(), recording=True)
        return context

    x = torch.randn(32, 32, requires_grad=True)
    function = dispatch.optimize(program, CompileOptions(engine_backend, make_context, fullgraph=True))
    got = torch.autograd.grad(function(x), [x, w])
    for a, b in zip(got, torch.autograd.grad(program(x), [x, w])):
        torch.testing.assert_close(a, b)
    record = context.recorder.records["partition", ""]
    assert [s.bytes for s in record.saved if s.kind == "tensor"] == [32 * 32 * 4] * 2
    assert sum("checkpointed" in r.why for r in record.recomputed) == 4


@pytest.mark.parametrize("budget", [0.0, 0.25, 0.5, 0.75])
def test_a_memory_budget_is_kept_and_used(budget):
    def program(x, a, b, c, d, e, f, g, h):
        for w in (a, b, c, d, e, f, g, h):
            x = (x @ w).tanh()
        return x

    inputs = [torch.randn(32, 32, requires_grad=True) for _ in range(9)]
    joint = joint_of(program, *inputs)
    full = held(check(joint, inputs))
    halves = check(joint, inputs, memory_budget=budget)
    assert held(halves) <= budget * full
    assert held(halves) >= budget * full - 2 * 32 * 32 * 4


def test_a_budget_is_a_decision():
    x, w = torch.randn(8, 8, requires_grad=True), torch.randn(8, 8, requires_grad=True)
    joint = joint_of(lambda x, w: (x @ w).tanh().sin(), x, w)
    halves = check(joint, (x, w), overrides={"memory-budget:graph": "0.0"})
    assert held(halves) == 0 and halves.budget == 0.0


# ---- the record -----------------------------------------------------------------------------------------------------
def test_the_record_reads_as_a_table_with_reasons():
    x, w = torch.randn(64, 64, requires_grad=True), torch.randn(64, 64, requires_grad=True)
    joint = joint_of(lambda x, w: F.gelu(x @ w).sum(0) * 2, x, w)
    record = partition_record(partition(joint, CompileContext()))
    text = render(record, "partition").text
    assert "16.0 kB  mm" in text and "a matrix product" in text
    assert "saved for the backward" in text and "predicted peak" in text
    assert record.predicted["saved"] == 64 * 64 * 4
    assert record.saved[0].used_by


# ---- from the outside ------------------------------------------------------------------------------------------------
def test_the_option_of_compile_gives_equal_gradients_and_holds_less():
    w = torch.randn(32, 32, requires_grad=True)

    def program(x):
        return ((x @ w).tanh() @ w).tanh().sum()

    found = []
    for budget in (None, 0.0):
        options = {} if budget is None else {"memory_budget": budget}
        x = torch.ones(32, 32, requires_grad=True)
        held_bytes = 0

        def pack(tensor):
            nonlocal held_bytes
            held_bytes += 0 if tensor is x or tensor is w else tensor.nbytes  # noqa: B023
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
            loss = ptdebug.compile(program, options=options)(x)
        gradients = torch.autograd.grad(loss, [x, w])
        found.append((held_bytes, gradients))
    (most, expected), (least, got) = found
    assert least < most and least <= 4096
    for a, b in zip(expected, got):
        torch.testing.assert_close(a, b)


def test_a_budget_is_a_share():
    with pytest.raises(ValueError, match="between 0 and 1"):
        ptdebug.compile(torch.sin, options={"memory_budget": 2})


@pytest.mark.parametrize("budget", [1.0, 0.0])
def test_sizes_that_vary_reach_the_backward(budget):
    linear = torch.nn.Linear(8, 4)

    def program(x):
        hidden = linear(x).softmax(0) * x.shape[0]
        return hidden.sum(0).expand(x.shape[0], 4) * torch.arange(x.shape[0])[:, None]

    compiled = ptdebug.compile(program, dynamic=True, options={"memory_budget": budget})
    before = ptdebug.stats()["graphs"]
    for size in (5, 7, 3):
        x = torch.randn(size, 8, requires_grad=True)
        wanted = (x, *linear.parameters())
        got = torch.autograd.grad(compiled(x).sin().sum(), wanted)
        for a, b in zip(got, torch.autograd.grad(program(x).sin().sum(), wanted)):
            torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-4)
    assert ptdebug.stats()["graphs"] - before == 1
