"""Loop nests of CPU kernels: run as they are scheduled against the plain bodies, under each option of each decision."""
from __future__ import annotations

from dataclasses import replace

import expecttest
import pytest
import torch
import torch.nn.functional as F
from ptdebug.artifacts.context import CompileContext
from ptdebug.engine.codegen.cpp import generate
from ptdebug.engine.ir.interpreter import run_plan
from ptdebug.engine.ir.loop_nest import Accumulate, Loop, LoopNest, Nodes, Piece, inside, walk
from ptdebug.engine.ir.loop_nest_interpreter import RULES, run_nests
from ptdebug.engine.ir.loop_nest_text import HEADS, format_nest
from ptdebug.engine.ir.loop_nest_verifier import verify_nest
from ptdebug.engine.ir.verifier import VerifyError
from ptdebug.engine.lowering import lower
from ptdebug.engine.scheduler import column_sums, describe, schedule
from ptdebug.engine.scheduler.cpu import gather_prefetch, loop_shape, nontemporal_stores, prefetch
from torch.fx.experimental.proxy_tensor import make_fx

from .programs import recording_context

ROWS = torch.randint(0, 40, (90,), generator=torch.Generator().manual_seed(1))
HALVES = torch.randn((2, 600), generator=torch.Generator().manual_seed(2)).half()
LOOPS = ("vector-axis", "parallel-loops", "split-reduction", "accumulators", "split-loop", "tile", "store-policy",
         "prefetch", "scatter", "half-conversion", "scan-algorithm", "vector-width", "horizontal-fusion",
         "invariant-masks", "row-blocks")
INNER = {"parallel-loops:*": "inner"}


@pytest.fixture(autouse=True)
def cache_of_a_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the cache holds all results, there is nothing to decide about stores."""
    monkeypatch.setattr(nontemporal_stores, "last_level_cache", lambda threads: 32 << 20)


def bordered(x):
    return F.pad(x, (1, 1, 1, 1)) + F.pad(x, (0, 2, 0, 2)) + F.pad(x, (2, 0, 2, 0)) + F.pad(x, (1, 1, 0, 2))


PROGRAMS = {
    "pointwise": (lambda x: torch.tanh(x) + x[:1], ((8, 31),), {}),
    "rows": (lambda x: (x.sum(1), x.amax(1), x.argmax(1), x.max(1).values), ((9, 70),), {}),
    "columns": (lambda x: (torch.softmax(x, 0), x.argmin(0)), ((37, 40),), {}),
    "columns in chunks": (lambda x: (torch.softmax(x, 0), x.prod(0)), ((67, 40),), INNER),
    "all of it": (lambda x: (x.sum(), x.amax(), x.argmax(), (x > 3).any()), ((67, 40),), INNER),
    "a long row": (lambda x: x.softmax(-1), ((2, 1500),), INNER),
    "long sums": (lambda x: (x.sum(1), x.double().sum(1)), ((3, 2100),), {}),
    "a norm": (lambda x: F.layer_norm(x, (513,)), ((5, 513),), {}),
    "a norm of whole lines": (lambda x: F.layer_norm(x, (256,)), ((5, 256),), {}),
    "short rows": (lambda x: x.view(-1, 3).var(1), ((30, 30),), {}),
    "rows in blocks": (lambda x: (x.log_softmax(-1), x.argmax(-1)), ((64, 20),), {}),
    "few rows": (lambda x: x.sum(0), ((7, 90),), {}),
    "scans": (lambda x: (x.cumsum(1), x.cumprod(1), *x.cummax(1), x.logcumsumexp(1)), ((3, 90),), {}),
    "scans of columns": (lambda x: (x.cumsum(0), *x.cummin(0)), ((9, 40),), {}),
    "halves": (lambda x: (torch.softmax(x, -1), x * 2 + 1), (HALVES[:, :70],), {}),
    "long halves": (lambda x: torch.softmax(x, -1), (HALVES,), {}),
    "halves in chunks": (lambda x: (x.sum(), x.amax()), (HALVES,), INNER),
    "rows above": (lambda x: F.pad(x, (0, 0, 2, 2)).relu(), ((9, 40),), {}),
    "reflected": (lambda x: F.pad(x, (3, 3), mode="reflect"), ((4, 64),), {}),
    "circular": (lambda x: F.pad(x[None], (3, 3, 2, 2), mode="circular"), ((2, 40, 40),), {}),
    "bordered": (bordered, ((3, 40, 40),), {}),
    "concatenated": (lambda x, y: torch.cat([x, y, x], 1) * 2, ((5, 33), (5, 50)), {}),
    "transposed": (lambda x, y: x.t() + y, ((70, 90), (90, 70)), {"tile:*": "tiles"}),
    "channels": (lambda x: F.layer_norm(x.permute(0, 2, 3, 1), (40,)), ((1, 40, 9, 9),), {"tile:*": "tiles"}),
    "adding rows": (lambda x, i: torch.ones(40, 30).index_put((i,), x, accumulate=True), ((90, 30), ROWS), {}),
    "adding to places": (lambda x, i: torch.zeros(2, 40).scatter_add(1, i.expand(2, 90), x), ((2, 90), ROWS), {}),
    "sums beside": (lambda x: (x * 2, (x * x).sum((0, 1))), ((8, 20, 96),), {}),
    "sums in chunks": (lambda x: torch.softmax(x, 1).sum(0), ((67, 40),), {}),
    "gathered": (lambda x, i: F.layer_norm(x[i], (128,)), ((40, 128), ROWS[:9]), {}),
    "large": (lambda x: x * 2 + 1, ((1200, 1000),), {"store-policy:*": "nontemporal"}),
    "pooled": (lambda x: (F.max_pool2d(x, 3, 2), F.avg_pool2d(x, 3, 2)), ((1, 2, 12, 12),), {}),
    "foreach": (lambda *xs: [x * 2 + y for x, y in zip(xs[::2], xs[1::2])],
                tuple((10 + k, 20) for k in range(4) for _ in (0, 1)), {}),
}
seen: set[type] = set()
ran: set[str] = set()  # programs, in this process


@pytest.fixture(autouse=True)
def small(monkeypatch):
    """What is worth threads or a prefetch is small."""
    monkeypatch.setattr(loop_shape, "PARALLEL_WORK", 1 << 10)
    monkeypatch.setattr(column_sums, "FEWEST_ROWS", 16)
    monkeypatch.setattr(column_sums, "FEWEST_ELEMENTS", 1 << 10)
    monkeypatch.setattr(gather_prefetch, "MEMORY", 1 << 12)
    monkeypatch.setattr(prefetch, "MEMORY", 1 << 10)


def scheduled(function, *inputs, context=None, **overrides):
    context = context or CompileContext(overrides=overrides)
    return schedule(lower(make_fx(function, tracing_mode="fake")(*inputs), context), context)


def inputs(name):
    torch.manual_seed(0)
    made = [x if isinstance(x, torch.Tensor) else torch.randn(x) for x in PROGRAMS[name][1]]
    if name in ("rows", "columns", "all of it"):
        made[0][2, 3] = made[0][2, 5] = float("nan")
        made[0][4, 7], made[0][5] = float("inf"), -float("inf")
    return made


def agree(name, overrides):
    """The decisions of the program, whose nests compute what its bodies do."""
    _, keeping = recording_context()
    context = CompileContext(overrides={**PROGRAMS[name][2], **overrides}, recording=True, recorder=keeping)
    given = inputs(name)
    plan = scheduled(PROGRAMS[name][0], *given, context=context)
    for nest in plan.nests.values():
        verify_nest(nest)
        seen.update(type(node) for node in walk(nest.body))
    expected, got = run_plan(plan, given), run_nests(plan, plan.nests, given)
    for one, other in zip(got, expected, strict=True):
        close = {"rtol": 2e-3, "atol": 1e-3} if one.dtype is torch.float16 else {"rtol": 1e-4, "atol": 1e-5}
        torch.testing.assert_close(one, other, equal_nan=True, **close)
    return [d for d in keeping.decisions if d.kind in LOOPS]


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_nest_computes_what_its_bodies_do_under_each_option(name):
    for decision in agree(name, {}):
        for option in decision.options:
            if option.name != decision.chosen:
                agree(name, {decision.id: option.name})
    ran.add(name)


def test_all_nodes_were_run_printed_and_shown():
    if ran == set(PROGRAMS):  # workers share the tests of a file
        assert seen == set(RULES)
    assert set(RULES) - set(HEADS) == {t for t in RULES if t.__name__ == "Compute"}


# ---- as a record -----------------------------------------------------------------------------------------------------
def chosen(name):
    context = CompileContext(overrides=PROGRAMS[name][2])
    plan = scheduled(PROGRAMS[name][0], *inputs(name), context=context)
    record = next(record for stage, _, record in describe(plan) if stage == "schedule")
    return record.groups[-1].schedule


def test_the_record_holds_what_was_chosen():
    assert chosen("transposed").tile == "16 x 64 of i0 in 70 and i1 in 90, with y_1 transposed"
    assert chosen("transposed").threads == ("i0, i1",) and chosen("transposed").vectors == ("i1",)
    assert len(chosen("reflected").pieces) == 3 and chosen("reflected").pieces[1].startswith("piece i1 from 3 to 67")
    assert chosen("large").stores == ("non-temporal stores of buf0",)
    assert chosen("gathered").prefetch == ("prefetch the row of x_1 that is read 8 iterations of i0 later",)
    assert chosen("adding to places").scatter == "no threads" and chosen("rows").scatter == ""
    assert chosen("sums in chunks").scatter == ""  # its last kernel adds nothing up
    assert chosen("columns").accumulators[0] == "4 rows of r0 in 37 at a time, vector i0 in 40"
    assert chosen("long halves").conversions == (
        "with a row of x_1 converted to float32", "with buf3 converted between float16 and float32")
    assert chosen("rows").nest[0] == "kernel fused_0_sum_amax_argmax"


def test_the_record_says_that_threads_share_the_members_of_a_foreach():
    assert chosen("foreach").threads == ()
    large = [torch.randn(100, 200) for _ in range(8)]
    plan = scheduled(PROGRAMS["foreach"][0], *large)
    (record,) = [record for stage, _, record in describe(plan) if stage == "schedule"]
    (group,) = record.groups
    assert group.schedule.threads == ("32 parts of the work of all members",)
    assert "#pragma omp parallel for" in generate(plan).text


# ---- as text ---------------------------------------------------------------------------------------------------------
def shown(function, *shapes, statements=False, **overrides):
    plan = scheduled(function, *[torch.randn(shape) for shape in shapes], **overrides)
    return "\n".join(line for nest in plan.nests.values() for line in format_nest(nest, statements))


class TestText(expecttest.TestCase):
    def test_pointwise(self):
        self.assertExpectedInline(shown(lambda x: x * 2 + 1, (4, 50), statements=True), """\
kernel fused_0_add
  nest over i1
    buf0: t1 = constant 2.0 : float32
    buf0: t3 = constant 1.0 : float32
    vector i1 in 200
      buf0: t0 = load x_1[i1] : float32
      buf0: t2 = mul t0, t1 : float32
      buf0: t4 = add t2, t3 : float32
      buf0: store buf0[i1], t4""")

    def test_an_inner_reduction(self):
        self.assertExpectedInline(shown(lambda x: x.sum(1), (9, 100), statements=True), """\
kernel fused_0_sum
  parallel
    for i0 in 9
      nest over r0
        accumulate buf0.t1 = sum
          16 accumulators along r0
            vector r0 in 100, 16 at a time, the rest masked
              buf0: t0 = load x_1[100*i0 + r0] : float32
              buf0: t1 = reduce sum t0 : float32
      nest
        buf0: store buf0[i0], t1""")

    def test_an_outer_reduction(self):
        self.assertExpectedInline(shown(lambda x: x.sum(0), (60, 40)), """\
kernel fused_0_sum
  lanes: blocks of 48 of i0 in 40
    nest over r0 i0
      accumulate buf0.t1 = sum in double
        parallel, 32 chunks of r0 in 60, joined in order
          blocks of 32 of r0 in 60, with float sums of buf0.t1
            4 rows of r0 in 60 at a time, vector i0 in 40
              buf0: load x_1, reduce sum
            rows that remain
              for r0 in 60
                vector i0 in 40
                  buf0: load x_1, reduce sum
    nest over i0
      vector i0 in 40
        buf0: store buf0""")

    def test_threads_share_rows(self):
        self.assertExpectedInline(shown(lambda x: torch.softmax(x, 1), (64, 96)), """\
kernel fused_0_softmax
  parallel
    for i0_blocks in 8
      scratch buf0: 8
      scratch buf1: 768
      scratch buf2: 8
      for i0_row in 8
        nest over r0
          accumulate buf0.t1 = max
            16 accumulators along r0
              vector r0 in 96, 16 at a time
                buf0: load x_1, reduce max
        nest
          buf0: store buf0
      for i0_row in 8
        nest over i1
          accumulate buf2.t1 = sum
            32 accumulators along i1
              buf1: load buf0
              vector i1 in 96, 32 at a time
                buf1: load x_1, sub, exp, store buf1
                buf2: load buf1, reduce sum
        nest
          buf2: store buf2
      nest over i0_row i1
        for i0_row in 8
          buf3: load buf2
          vector i1 in 96
            buf3: load buf1, truediv, store buf3""")

    def test_a_loop_in_pieces(self):
        self.assertExpectedInline(shown(lambda x: F.pad(x, (3, 3), mode="reflect"), (2, 40)), """\
kernel fused_0_reflection_pad1d
  for i0 in 2
    nest over i1
      piece i1 from 0 to 3, buf0.t2 = False, buf0.t4 = True, buf0.t10 = True, buf0.t11 = False, buf0.t5 = False
        vector i1 in 46
          buf0: index, ge, lt, logical_and, load x_1, where, lt, ge, load x_1, where, load x_1, where, store buf0
      piece i1 from 3 to 43, buf0.t2 = True, buf0.t4 = True, buf0.t10 = False, buf0.t11 = False, buf0.t5 = True
        vector i1 in 46
          buf0: index, ge, lt, logical_and, load x_1, where, lt, ge, load x_1, where, load x_1, where, store buf0
      piece i1 from 43 to 46, buf0.t2 = True, buf0.t4 = False, buf0.t10 = False, buf0.t11 = True, buf0.t5 = False
        vector i1 in 46
          buf0: index, ge, lt, logical_and, load x_1, where, lt, ge, load x_1, where, load x_1, where, store buf0""")

    def test_a_tile(self):
        self.assertExpectedInline(shown(lambda x, y: x.t() + y, (64, 64), (64, 64), **{"tile:*": "tiles"}), """\
kernel fused_0_add
  parallel over 2 loops
    tiles of 16 x 64 of i0 in 64 and i1 in 64, with y_1 transposed
      for the rows i0 of a tile
        nest over i1
          vector i1 in 64
            buf0: load x_1, load y_1, add, store buf0""")


# ---- what the verifier refuses ---------------------------------------------------------------------------------------
def nest_of(function, *shapes) -> LoopNest:
    (nest,) = scheduled(function, *[torch.randn(shape) for shape in shapes]).nests.values()
    verify_nest(nest)
    return nest


def without(nodes: Nodes, kind: type) -> Nodes:
    """The nodes, with what is inside of those of a kind in their place."""
    made = []
    for node in nodes:
        body = without(inside(node), kind)
        made += body if isinstance(node, kind) else [replace(node, body=body) if body else node]
    return tuple(made)


@pytest.mark.parametrize("kind, message", [(Loop, "outside of the loop over"), (Accumulate, "has no accumulator")])
def test_a_missing_node_is_a_fault(kind, message):
    nest = nest_of(lambda x: x.sum(1), (9, 100))
    with pytest.raises(VerifyError, match=message):
        verify_nest(replace(nest, body=without(nest.body, kind)))


def test_a_loop_twice_a_piece_too_few_and_nothing_at_all_are_faults():
    nest = nest_of(lambda x: x * 2 + 1, (4, 50))
    with pytest.raises(VerifyError, match="inside of"):
        verify_nest(replace(nest, body=(Loop(nest.group.axes[0], nest.body),)))
    with pytest.raises(VerifyError, match="nothing stores buf0"):
        verify_nest(replace(nest, body=()))
    nest = nest_of(lambda x: F.pad(x, (3, 3), mode="reflect"), (2, 40))
    (outer,) = nest.body
    while not any(isinstance(node, Piece) for node in inside(outer)):
        (outer,) = inside(outer)
    with pytest.raises(VerifyError, match="the pieces of i1 end at 43 of 46"):
        verify_nest(replace(nest, body=(replace(outer, body=outer.body[:-1]),)))
