"""Differences by structure: graphs whatever their names and order, code whatever the counts of its names."""
from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec import structs
from ptdebug.artifacts.diff.changes import ADDED, CHANGED, REMOVED, Keyed, StageDiff
from ptdebug.artifacts.diff.code import diff_code, normal
from ptdebug.artifacts.diff.graphs import diff_graphs
from ptdebug.artifacts.diff.kernels import TOGETHER, UNPAIRED, Groups, diff_schedules
from ptdebug.artifacts.diff.matching import match
from ptdebug.artifacts.diff.program_text import ProgramText
from ptdebug.artifacts.diff.stages import Context, diff_records
from ptdebug.artifacts.records import (
    Bytecode,
    CodeLine,
    FusionCandidate,
    Graph,
    Guard,
    Guards,
    Instruction,
    Location,
    LoopSchedule,
    Node,
    NodeRef,
    Schedule,
    ScheduledGroup,
    TensorMeta,
)

PROGRAM = "h = up(x)\nh = gelu(h)\nh = h * 2\nreturn down(h)"


def text(program: str = PROGRAM) -> ProgramText:
    return ProgramText(SimpleNamespace(source=lambda path: program, meta={}))  # type: ignore[arg-type]


def node(name: str, target: str, *args: Any, line: int = 0, shape: tuple[Any, ...] = (4,), op: str = "") -> Node:
    stack = (Location("m.py", line, "forward"),) if line else ()
    kind = op or "call_function"
    return Node(name, kind, target, tuple(NodeRef(a) if isinstance(a, str) else a for a in args), {},
                TensorMeta("torch.float32", shape, (1,) * len(shape), "cpu"), stack)


def graph(*nodes: Node) -> Graph:
    last = [n for n in nodes if n.op != "placeholder"][-1]
    return Graph("capture", (*nodes, Node("output", "output", "output", ([NodeRef(last.id)],))))


def x(shape: tuple[Any, ...] = (4,)) -> Node:
    return node("x", "l_x_", op="placeholder", shape=shape)


FIRST = graph(x(), node("linear", "linear", "x", line=1), node("gelu", "gelu", "linear", line=2),
              node("mul", "mul", "gelu", 2, line=3), node("linear_1", "linear", "mul", line=4))


def test_a_node_more_renames_the_rest_and_is_the_only_difference():
    program = PROGRAM.replace("h = up(x)\n", "h = up(x)\nh = up(h)\n")
    second = graph(x(), node("linear", "linear", "x", line=1), node("linear_1", "linear", "linear", line=2),
                   node("gelu", "gelu", "linear_1", line=3), node("mul", "mul", "gelu", 2, line=4),
                   node("linear_2", "linear", "mul", line=5))
    texts = (text(), text(program))
    assert match(FIRST, second, texts)["linear_1"] == "linear_2"
    diff = diff_graphs(FIRST, second, texts)
    assert [(c.kind, c.detail or c.second) for c in diff.changes] == [
        (CHANGED, "argument 0: linear -> linear_1"), (ADDED, "linear_1 = linear(linear)  # float32[4]")]
    assert diff.counts == "1 node added, 1 changed, 5 alike"


def test_names_and_order_do_not_count():
    a = graph(x(), node("sin", "sin", "x"), node("cos", "cos", "x"), node("add", "add", "sin", "cos"))
    b = graph(x(), node("c", "cos", "x"), node("s", "sin", "x"), node("z", "add", "s", "c"))
    diff = diff_graphs(a, b, (text(""), text("")))
    assert (diff.changes, diff.same) == ((), 5)


@pytest.mark.parametrize("other, detail", [
    (node("mul", "mul", "gelu", 3, line=3), "argument 1: 2 -> 3"),
    (node("mul", "mul", "linear", 2, line=3), "argument 0: gelu -> linear"),
])
def test_what_a_node_computes(other, detail):
    second = graph(*[other if n.id == "mul" else n for n in FIRST.nodes[:-1]])
    assert [c.detail for c in diff_graphs(FIRST, second, (text(), text())).changes] == [detail]


def test_another_operator_in_the_place_of_one():
    second = graph(*[node("exp2", "exp2", "linear", line=2) if n.id == "gelu" else
                     node("mul", "mul", "exp2", 2, line=3) if n.id == "mul" else n for n in FIRST.nodes[:-1]])
    kinds = [(c.kind, c.first.partition(" ")[0], c.second.partition(" ")[0])
             for c in diff_graphs(FIRST, second, (text(), text())).changes]
    assert (REMOVED, "gelu", "") in kinds and (ADDED, "", "exp2") in kinds and (CHANGED, "mul", "mul") in kinds


def test_operators_that_differ_in_a_digit_are_others():
    a, b = (graph(x(), node("e", target, "x")) for target in ("exp", "exp2"))
    assert [c.kind for c in diff_graphs(a, b, (text(""), text(""))).changes if c.first.startswith("e ")] == [REMOVED]


def test_a_size_that_became_dynamic_is_one_difference():
    def of(size: int | str) -> Graph:
        return graph(x((size,)), node("sin", "sin", "x", shape=(size,)), node("cos", "cos", "sin", shape=(size,)))

    (change,) = diff_graphs(of(4), of("s0"), (text(""), text(""))).changes
    assert (change.detail, change.times) == ("size 4 -> s0", 3)


def test_equal_lines_of_a_program_pair_in_order():
    block = [node("x", "l_x_", op="placeholder")]
    for i in range(40):
        block.append(node(f"relu_{i}", "relu", block[-1].id, line=1))
    diff = diff_graphs(graph(*block), graph(*block), (text(), text()))
    assert not diff.changes and diff.same == 42


def test_reads_that_a_write_moved_past_differ():
    add, double = node("add_", "add_", "x", 1, op="call_method"), node("mul", "mul", "view", 2)
    view = node("view", "view", "x", op="call_method")
    returned = graph(x(), double).nodes[-1]
    first, second = (Graph("capture", (x(), view, *order, returned)) for order in ((add, double), (double, add)))
    (change,) = diff_graphs(first, second, (text(""), text(""))).changes
    assert change.detail == "it writes before or after mul"
    assert not diff_graphs(first, first, (text(""), text(""))).changes


def test_what_a_branch_computes_differs():
    def of(operator: str) -> Graph:
        outer = graph(x(), node("true_0", "true_0", op="get_attr"), node("cond", "cond", "x", "true_0"))
        return structs.replace(outer, inner={"true_0": graph(x(), node("y", operator, "x"))})

    assert not diff_graphs(of("sin"), of("sin"), (text(""), text(""))).changes
    changes = diff_graphs(of("sin"), of("cos"), (text(""), text(""))).changes
    assert {c.detail for c in changes} >= {"in true_0"} and {c.kind for c in changes} >= {REMOVED, ADDED}


@pytest.mark.parametrize("one, other", [(1, True), (2, 2.0), (0.0, -0.0)])
def test_numbers_that_compare_equal_and_are_not_the_same(one, other):
    a, b = (graph(x(), node("mul", "mul", "x", value)) for value in (one, other))
    assert [c.kind for c in diff_graphs(a, b, (text(""), text(""))).changes] == [CHANGED]
    assert not diff_graphs(a, a, (text(""), text(""))).changes


# ---- code ----
def code(*lines: str) -> list[CodeLine]:
    return [CodeLine(line) for line in lines]


def test_counts_of_names_comments_and_spaces_do_not_count():
    first = code("// a comment", "float t0 = in0[i0];", "float t1 = t0 * 2.0f;", "out1[i0] = t1;")
    second = code("float t7 = in0[i0];  // from line 3", "  float t8 = t7 * 2.0f;", "out1[i0]   = t8;")
    diff = diff_code(first, second, "cpp")
    assert (diff.changes, diff.same) == ((), 3)


def test_a_line_that_reads_another_value_differs():
    first = code("float t0 = a[i0];", "float t1 = b[i0];", "out[i0] = t0 - t1;")
    second = code("float t0 = a[i0];", "float t1 = b[i0];", "out[i0] = t1 - t0;")
    (change,) = diff_code(first, second, "cpp").changes
    assert (change.kind, change.detail) == (CHANGED, "it reads other values")


@pytest.mark.parametrize("language, first, second", [
    ("cpp", ("auto t0 = a[i0];", "auto t1 = b[i0];", "auto t2 = t0 - t1;"),
     ("auto t0 = a[i0];", "auto t1 = b[i0];", "auto t2 = t1 - t0;")),
    ("cpp", ("static long f(long s0, long s1) {", "for (long x0 = 0; x0 < s0; ++x0) {"),
     ("static long f(long s0, long s1) {", "for (long x0 = 0; x0 < s1; ++x0) {")),
    ("cpp", ("t1 = std::log2(t0);",), ("t1 = std::log10(t0);",)),
    ("cpp", ("int64_t t1 = t0;",), ("int32_t t1 = t0;",)),
    ("python", ("t1 = t0.to(tl.float32)",), ("t1 = t0.to(tl.float64)",)),
    ("python", ("def f(s0, s1):", "t0 = x0 // s0"), ("def f(s0, s1):", "t0 = x0 // s1")),
    ("python", ("t0 = arg0 + arg1",), ("t0 = arg0 + arg0",)),
])
def test_what_a_line_computes_is_no_count(language, first, second):
    assert [c.kind for c in diff_code(code(*first), code(*second), language).changes] == [CHANGED]
    assert [c.kind for c in diff_code(code(*second), code(*first), language).changes] == [CHANGED]


@pytest.mark.parametrize("language, first, second", [
    ("cpp", ("for (long x0 = 0; x0 < s0; x0 += 1) {", "for (long x1 = 0; x1 < x0; x1 += 1) {"),
     ("for (long x1 = 0; x1 < s2; x1 += 1) {", "for (long x0 = 0; x0 < x1; x0 += 1) {")),
    ("cpp", ("float acc0[8];", "acc0[0] = t1;", "float acc1[8];", "acc1[0] = acc0[0];"),
     ("float acc1[8];", "acc1[0] = t2;", "float acc0[8];", "acc0[0] = acc1[0];")),
    ("python", ("buf0, buf1 = f(arg0)", "buf2 = buf0 + buf1"), ("buf1, buf2 = f(arg1)", "buf3 = buf1 + buf2")),
    ("python", ("exp_1 = f(x)", "return exp_1"), ("exp_2 = f(x)", "return exp_2")),
])
def test_renamed_code_is_alike(language, first, second):
    assert not diff_code(code(*first), code(*second), language).changes


def test_constants_are_not_counts():
    first, second = code("t1 = t0 * 2.0", "n = 16"), code("t1 = t0 * 3.0", "n = 32")
    assert [c.kind for c in diff_code(first, second, "python").changes] == [CHANGED, CHANGED]
    assert normal("x2 = load(p + 64)", "python") == "x# = load ( p + 64 )"


def test_code_objects_at_other_addresses_are_alike():
    first, second = code("LOAD_CONST <code f at 0x7f2b7a33d940>"), code("LOAD_CONST <code f at 0x7f2b784b2f20>")
    assert not diff_code(first, second, "text").changes


# ---- kernels ----
def groups(*members: tuple[str, ...], candidates: tuple[FusionCandidate, ...] = ()) -> Groups:
    made = tuple(ScheduledGroup("_".join(m), "loops", m, "fused_" + "_".join(m)) for m in members)
    return Groups(Schedule(made), {g.id: frozenset(g.members) for g in made}, candidates)


SAME = {name: name for name in "abcd"}


def test_a_kernel_that_is_split_says_which_pair_was_refused():
    why = FusionCandidate("p", "a", "b", "producer-consumer", False, "not profitable: no loop in common")
    second = groups(("a",), ("b",), ("c",), candidates=(why,))
    diff = diff_schedules(groups(("a", "b"), ("c",)), second, SAME, "schedule", "")
    (change,) = diff.changes
    assert change.detail == "split in 2: a + b: not profitable: no loop in common"
    assert change.second == "fused_a, fused_b" and diff.same == 1


def test_kernels_that_are_joined_gone_and_new():
    diff = diff_schedules(groups(("a",), ("b",), ("c",)), groups(("a", "b"), ("d",)), SAME, "schedule", "")
    assert [(c.kind, c.detail) for c in diff.changes] == [(CHANGED, "joined from 2"), (REMOVED, ""), (ADDED, "")]


def test_kernels_of_two_compilers():
    """By captured nodes: one operator may be several kernels on both sides, and a trace may not say which."""
    def captured(*nodes: str) -> Groups:
        made = tuple(ScheduledGroup(f"call{n}", "loops", (), f"k{n}") for n in range(len(nodes)))
        return Groups(Schedule(made), {g.id: frozenset(n) for g, n in zip(made, nodes)}, (), as_captured=True)

    diff = diff_schedules(captured("a", "ab", "c", "d"), captured("b", "a", "a", "c"), SAME, "schedule", "")
    assert [(c.first, c.second, c.detail) for c in diff.changes] == [
        ("k3", "", ""), ("k0, k1", "k0, k1, k2", f"{TOGETHER}: 2 -> 3")]
    assert diff.same == 1
    silent = diff_schedules(captured("", ""), captured("a"), SAME, "schedule", "backward")
    assert silent.notes == (f"2 kernels and 0 library calls -> 1 kernel and 0 library calls: {UNPAIRED}",)
    assert [c.kind for c in silent.changes] == [CHANGED]


def test_a_kernel_whose_loops_run_otherwise_says_how():
    first, second = groups(("a",)), groups(("a",))
    (group,) = second.schedule.groups
    tiled = structs.replace(group, schedule=LoopSchedule(("i0",), tile="16 x 64 of i0 and i1"))
    diff = diff_schedules(first, replace(second, schedule=Schedule((tiled,))), SAME, "schedule", "")
    (change,) = diff.changes
    assert change.detail == "threads share: none -> i0; tile: none -> 16 x 64 of i0 and i1"


# ---- lists ----
def test_items_of_one_key_pair_in_order():
    rule: Keyed[tuple[str, int]] = Keyed(lambda e: e[0], lambda e: e[1], str)
    changes, same = rule.compare([("a", 1), ("a", 2), ("b", 3)], [("a", 1), ("a", 5), ("c", 3)])
    assert same == 1
    assert [c.kind for c in changes] == [CHANGED, REMOVED, ADDED]
    assert StageDiff("guards", "", "guard", changes, same).counts == "1 guard removed, 1 added, 1 changed, 1 alike"


def test_items_of_one_key_in_another_order_are_alike():
    rule: Keyed[tuple[str, int]] = Keyed(lambda e: e[0], lambda e: e[1], str)
    assert rule.compare([("a", 1), ("a", 2)], [("a", 2), ("a", 1)]) == ((), 2)
    changes, same = rule.compare([("a", 1), ("a", 2)], [("a", 0), ("a", 1), ("a", 2)])
    assert ([c.kind for c in changes], same) == ([ADDED], 2)


@pytest.mark.parametrize(("first", "second", "alike"), [
    ("___check_obj_id(G['__builtins_dict___7']['print'], 140223631234672), type=<class 'builtin_function_or_method'>",
     "___check_obj_id(G['__builtins_dict___9']['print'], 139642009196144), type=<class 'builtin_function_or_method'>",
     True),
    ("___check_type_id(L['m'], 94231), type=<class 'm.A'>", "___check_type_id(L['m'], 99), type=<class 'm.A'>", True),
    ("___check_obj_id(L['act'], 140223631234672), type=<class 'm.A'>",
     "___check_obj_id(L['act'], 140223631234672), type=<class 'm.B'>", False),
    ("L['n'] == 123456789", "L['n'] == 987654321", False), ("L['m'] == 0xffffffff", "L['m'] == 0xfffffffe", False),
])
def test_addresses_are_no_differences_and_large_numbers_are(first: str, second: str, alike: bool):
    sides = [Guards((Guard("g0", "L['n']", "LAMBDA", code),)) for code in (first, second)]
    context = Context((text(), text()), {}, (lambda path: None, lambda path: None))
    found = diff_records(*sides, context, "guards", "")
    assert bool(found.changes) != alike


@pytest.mark.parametrize(("first", "second", "alike"), [
    ("NULL + __compiled_fn_5_77d1494b_c709_4276_aff6_2174102dfbd7",
     "NULL + __compiled_fn_5_2260bfc0_1ca1_4ac3_b86a_4e81b43e28a6", True),
    ("<code object f at 0x7f528a9fcb30, file \"m.py\">", "<code object f at 0x7f01fc3c8b30, file \"m.py\">", True),
    ("9876543210", "9876543211", False),
])
def test_constants_of_bytecode_are_compared(first: str, second: str, alike: bool):
    sides = [Bytecode("f", (Instruction("0", "LOAD_CONST", argument),)) for argument in (first, second)]
    context = Context((text(), text()), {}, (lambda path: None, lambda path: None))
    assert bool(diff_records(*sides, context, "bytecode", "").changes) != alike
