"""What is fused and what is not, with the reasons; and that results are right when every fusion is forced off."""
from __future__ import annotations

import torch
import torch.nn.functional as F
from ptdebug.artifacts.context import CompileContext
from ptdebug.artifacts.records import Fusion, Schedule
from ptdebug.engine.scheduler import describe, fusion

from .cpp_checking import Built, built, check
from .loops_checking import lowered
from .programs import recording_context


def block(x, w, b, g):
    y = F.gelu(F.linear(x, w, b))
    z = F.layer_norm(x + y, (64,), g, b)
    return torch.softmax(z * 0.5, -1), z.sum(0), (z - 1).amax(1)


def block_inputs():
    return torch.randn(32, 64), torch.randn(64, 64), torch.randn(64), torch.randn(64)


def recorded(function, *inputs, **settings) -> tuple[Built, Fusion, Schedule, object]:
    _, keeping = recording_context(**settings)
    made = built(function, *inputs, recorder=keeping, recording=True, **settings)
    records = {stage: record for stage, _, record in describe(made.plan)}
    return made, records["fusion"], records["schedule"], keeping


def test_softmax_and_layer_norm_are_one_kernel_each():
    x = torch.randn(16, 100)
    check(lambda x: torch.softmax(x, -1), x, kernels=1)
    check(lambda x: F.layer_norm(x * 2, (100,)), x, kernels=1, slack=3.0)
    made = check(lambda x: torch.softmax(F.layer_norm(x, (100,)), -1), x, kernels=1, slack=3.0)
    group = made.groups[0]
    assert len(group.axes) == 1 and len(group.internal) >= 3


def test_results_are_right_with_every_fusion_forced_off():
    inputs = block_inputs()
    fused = check(block, *inputs, slack=3.0)
    separate = check(block, *inputs, slack=3.0, overrides={"fuse:*": "separate"})
    assert all(len(g.bodies) == 1 for g in separate.groups)
    assert len(separate.groups) > len(fused.groups)


def test_each_candidate_has_a_verdict_and_a_reason():
    program = lambda x: (torch.softmax(x, -1), x.t().contiguous().sum(1))
    _, fusion, _, keeping = recorded(program, torch.randn(200, 300))
    assert fusion.candidates and all(c.why for c in fusion.candidates)
    refused = [c for c in fusion.candidates if not c.fused]
    assert all(c.enabled_by for c in refused)
    decisions = {d.id: d for d in keeping.decisions if d.kind == "fuse"}
    taken = [c for c in fusion.candidates if c.fused]
    assert taken and all(decisions[c.decision].chosen == "fuse" for c in taken)
    assert {o.name for o in decisions[taken[0].decision].options} == {"fuse", "separate"}


def test_one_forced_separation_is_recorded_and_obeyed():
    program = lambda x: torch.softmax(x, -1)
    x = torch.randn(16, 100)
    _, fusion, _, _ = recorded(program, x)
    subject = next(c.id for c in fusion.candidates if c.fused)
    made, again, _, _ = recorded(program, x, overrides={f"fuse:{subject}": "separate"})
    verdict = next(c for c in again.candidates if c.id == subject)
    assert not verdict.fused and "override" in verdict.why
    assert len(made.groups) == 2
    assert torch.allclose(made(x)[0], program(x))


def test_siblings_that_read_the_same_large_input_share_a_kernel():
    x = torch.randn(300, 200)
    check(lambda x: (x.sum(1), x.amax(1), x * 2), x, kernels=1)


def test_pairs_of_many_pieces_cost_no_look_at_all_of_them(monkeypatch):
    """The users of a buffer are steps that are still there, so that two of them are told from more by their number."""
    program = lowered(lambda x: torch.stack([row * i for i, row in enumerate(x)]), torch.randn(90, 5))
    search = fusion.Fusion(program, CompileContext())
    sizes = []
    monkeypatch.setattr(fusion, "hinted", lambda size: sizes.append(size) or 1)
    nodes = search.run()
    assert len(nodes) > 1 and len(sizes) <= len(program.buffers)
    left = {node.id for node in nodes}
    assert all(users <= left for users in search._users.values())


def test_unrelated_work_is_not_fused():
    x, y = torch.randn(300, 200), torch.randn(300, 200)
    check(lambda x, y: (x * 2, y + 1), x, y, kernels=2)


def test_no_cycle_through_a_library_call():
    def program(x, w):
        a = x + 1
        return a * (a @ w).sum(1, keepdim=True)
    check(program, torch.randn(30, 30), torch.randn(30, 30), slack=4.0)


def test_a_pointwise_body_turns_its_loops_to_meet_a_reduction():
    check(lambda x: torch.softmax(x, 0), torch.randn(64, 1000), kernels=1, slack=3.0)
    turned = lambda x: torch.softmax(x.permute(0, 2, 1), -1).permute(0, 2, 1) + x
    check(turned, torch.randn(3, 64, 500), kernels=1, slack=3.0)


def test_siblings_that_read_rows_and_columns_stay_apart():
    _, fusion, _, _ = recorded(lambda x: (x.amax(0), x.amax(1)), torch.randn(300, 300))
    verdict, = fusion.candidates
    assert not verdict.fused and "direction" in verdict.why and verdict.enabled_by


def test_flattened_loops_are_split_to_meet_others():
    x = torch.randn(4, 8, 32)
    program = lambda x: torch.softmax((x + 1).view(32, 32), -1).view(4, 8, 32) * 2
    check(program, x, kernels=1)


def test_contiguous_loops_become_one():
    made = built(lambda x: x * 2, torch.randn(4, 8, 32))
    assert [int(a.extent) for a in made.groups[0].axes] == [1024]
    made = built(lambda x, y: x + y, torch.randn(4, 8, 32), torch.randn(8, 32))
    assert [int(a.extent) for a in made.groups[0].axes] == [4, 256]


def test_dead_memory_is_taken_over_and_the_peak_is_known():
    def program(x, w):
        for _ in range(4):
            x = F.relu(x @ w) + 1
        return x
    inputs = torch.randn(64, 64), torch.randn(64, 64)
    made, _, schedule, _ = recorded(program, *inputs, overrides={"in-place:*": "new-buffer"})
    assert made.plan.reuse
    assert {b.reuses for b in schedule.buffers} - {""} == set(made.plan.reuse.values())
    check(program, *inputs, slack=4.0)
    overrides = {"reuse:*": "allocate", "in-place:*": "new-buffer"}
    alone, _, unshared, _ = recorded(program, *inputs, overrides=overrides)
    assert not alone.plan.reuse
    assert schedule.peak_bytes is not None and unshared.peak_bytes >= schedule.peak_bytes >= 2 * 64 * 64 * 4


def test_the_schedule_names_kernels_members_and_what_stays_inside():
    _, _, schedule, _ = recorded(block, *block_inputs())
    kinds = {g.kind for g in schedule.groups}
    assert kinds == {"loops", "extern"}
    kernel = next(g for g in schedule.groups if g.kind == "loops" and g.internal)
    assert kernel.members and kernel.loop_order and not set(kernel.internal) & set(kernel.writes)
    assert kernel.bytes and kernel.flops


def test_names_and_text_are_the_same_every_time():
    def program(x, w, b, g):
        for _ in range(12):
            x = x + block(x, w, b, g)[0]
        return x
    inputs = block_inputs()
    one, two = built(program, *inputs), built(program, *inputs)
    assert one.source.text == two.source.text
    assert [g.kernel for g in one.groups] == [g.kernel for g in two.groups]


def test_equal_layers_are_compiled_once():
    def program(x, w, b, g):
        for _ in range(6):
            x = F.layer_norm(F.gelu(x @ w), (64,), g, b)
        return x
    made = check(program, *block_inputs(), slack=6.0)
    assert made.source.text.count("static int64 fused_") < len(made.groups)


def test_an_expensive_value_is_not_computed_for_a_few_columns_at_once():
    """A reduction to three columns reads a sigmoid that fills vectors: all of a row's elements are its loop."""
    over_rows = lambda x: torch.sigmoid(x).sum(1)
    weighted = lambda x, w: (w[..., None] * torch.sigmoid(x)).sum(-2)
    for function, inputs in ((over_rows, [(64, 128, 3)]), (weighted, [(64, 128, 3), (64, 128)])):
        made = check(function, *map(torch.randn, inputs), slack=2.0)
        (sigmoid,) = [b for g in made.groups for b in g.bodies if any(s.op == "sigmoid" for s in b.statements)]
        assert not sigmoid.reduction_axes and sigmoid.axes[-1].extent == 384
    wide = check(over_rows, torch.randn(64, 128, 16), slack=2.0, kernels=1)
    assert len(wide.groups[0].bodies) == 1
