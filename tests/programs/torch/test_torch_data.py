"""Programs whose numbers and sizes only data tells: what they assert, check and take for granted is checked when the
graph runs, and where it does not hold they see what eager shows.

PYTEST_DONT_REWRITE: the programs assert.
"""
# mypy: ignore-errors

from __future__ import annotations

import ptdebug
import pytest
import torch
from ptdebug.tracer.frames.eager_fallback import LIMIT
from ptdebug.tracer.runtime.statistics import STATISTICS

from .. import checking
from ..checking import Programs, call, check

program = Programs()


@program
def assertions(compile):
    @compile
    def f(x, log):
        log.append(1)
        assert (x > 0).all(), f"must be positive, {len(log)}"
        assert x.sum() and x.max() < 50
        n = x.sum().item()
        assert n < 100
        log.append(2)
        return torch.zeros(n) + x.log().sum()

    log = []
    inputs = [1, 2], [-1, 2], [60, 3], [30, 49, 45], [3, 3, 3]
    return [call(f, torch.tensor(values), log) for values in inputs], log


@program
def equalities(compile):
    @compile
    def asserted(x):
        n = x[0].item()
        assert n == 3, n
        return x.new_zeros(n)

    @compile
    def checked(x):
        n = x[0].item()
        torch._check(n == 3, lambda: f"not three: {n}")
        return x.new_zeros(n) + 1

    @compile
    def of_two(x):
        a, b = x.tolist()
        assert a == b
        return x.new_ones(a, b)

    @compile
    def of_masks(x):
        return x[x > 1] + x[x > 2]

    inputs = [[3, 1], [2, 2], [4, 3], [3, 3]]
    return [call(f, torch.tensor(values)) for f in (asserted, checked, of_two, of_masks) for values in inputs]


@program
def equal_to_sizes_of_inputs(compile):
    @compile
    def f(x, y, mask, n):
        rows = x[mask]
        assert rows.shape == y.shape
        k = n.item()
        torch._check(k == 3, lambda: f"not three: {k}")
        assert x.shape[0] <= k * 2
        known = rows.shape[0] == y.shape[0], x.shape[0] == 6
        return known, rows + y, x.new_ones(k, 2) @ x.new_ones(2, k), rows.view(k, 1)

    results = []
    for size in (3, 4, 6, 7):
        x, mask = torch.arange(float(size)), torch.arange(size) < 3
        results += [call(f, x, x[:length], mask, torch.tensor(n)) for length in (3, 2) for n in (3, 4)]
    return results


@program
def checks_with_messages(compile):
    @compile
    def f(x):
        n = x[0].item()
        torch._check(n > 2, lambda: f"too few: {n}")
        torch._check_is_size(n)
        torch._assert(x.max() < 100, "too large")
        return x.new_zeros(n)

    return [call(f, torch.tensor(values)) for values in ([3, 1], [1, 3], [5, 100], [4])]


@program
def branches_that_raise(compile):
    @compile
    def f(x, log):
        log.append("in")
        if (x < 0).any():
            raise ValueError(f"negative: {x.min().item()}")
        if not torch.isfinite(x).all():
            raise ValueError("not finite")
        log.append("out")
        return torch.distributions.Normal(x, x).log_prob(x * 2)

    log = []
    values = [1.0, 2.0], [-1.0, 2.0], [float("inf"), 1.0], [0.0, 1.0], [3.0, 4.0]
    return [call(f, torch.tensor(given), log) for given in values], log


@program
def caught_assertions(compile):
    @compile
    def f(x):
        try:
            assert x.sum() > 0
            y = x * 2
        except AssertionError:
            y = x * 3
        return y

    return f(torch.ones(2)), f(-torch.ones(2))


@program
def parts_of_sizes_in_a_tensor(compile):
    @compile
    def f(x, sizes):
        a, b = sizes.tolist()
        first, second = x.split([a, b])
        return first.sum(), second * 2, x.narrow(0, 1, sizes[0]).mean()

    x = torch.arange(6.0)
    return [call(f, x, torch.tensor(sizes)) for sizes in ([2, 4], [5, 1], [3, 2], [0, 6], [6, 0])]


@program
def tensors_as_sizes(compile):
    @compile
    def f(x, n):
        wide = x.new_zeros(2, n, 3) + x.sum()
        assert list(wide.size()) == [2, n, 3]
        return wide.view(2 * n, 3).sum(0), torch.full((n, 2), 1.5), x[:2].expand(n, 2), x.view(n, -1)

    return [call(f, torch.arange(6.0), torch.tensor(n)) for n in (1, 2, 3, 4, 6)]


@program
def lists_equal_by_data(compile):
    @compile
    def f(x, n):
        return [2, n] == [x.shape[0], 3], [n, 5] == [3, 6], [1, n] == [2, n], (x * 2).sum()

    return [f(torch.ones(2), torch.tensor(n)) for n in (3, 4)]


@program
def products_of_selected_rows(compile):
    @compile
    def f(x, mask, other):
        rows, more = x[mask], x[other]
        return rows @ more.t() if x.dim() == 2 else None, rows + more, torch.cat([rows, more]).view(-1, 2)

    x = torch.arange(8.0).view(4, 2)
    masks = [torch.tensor(bits, dtype=torch.bool) for bits in ([1, 0, 1, 0], [0, 1, 1, 0], [0, 0, 0, 1], [0] * 4)]
    return [call(f, x, a, b) for a in masks for b in masks]


@pytest.mark.parametrize("name", program)
def test_what_only_data_tells_is_as_in_eager(name, as_the_engine, by_the_engine):
    check(program[name])


@pytest.mark.parametrize("name", sorted(program.keys() - {"tensors_as_sizes"}))
def test_the_engine_runs_the_checks(name, by_the_engine):
    """Not `tensors_as_sizes`: what is expanded to a size that turns out to be 1 has another stride than in eager."""
    check(program[name])


@pytest.mark.parametrize("name", program)
def test_another_backend_gets_graphs_without_such_checks(name):
    check(program[name])


def test_assertions_and_lengths_do_not_break_the_graph(as_the_engine):
    def f(x, n):
        assert (x > 0).any()
        if (x > 5).any():
            raise ValueError("too large")
        return x.narrow(0, 0, n) * 2, x.new_ones(n), torch.distributions.Normal(x, 1.0).log_prob(x)

    report = ptdebug.explain(f)(torch.ones(4), torch.tensor(3))
    assert len(report.graphs) == 1 and not report.graph_breaks


def test_the_check_of_a_covariance_does_not_break_the_graph(as_the_engine):
    def f(loc, covariance):
        made = torch.distributions.MultivariateNormal(loc, covariance)
        return made.log_prob(loc + 1), made.entropy(), torch.distributions.constraints.symmetric.check(covariance)

    rows = torch.arange(27.0).view(3, 3, 3).sin()
    good = rows @ rows.mT + torch.eye(3)
    negative, lopsided = good.clone(), good.clone()
    negative[1], lopsided[2, 0, 1] = -torch.eye(3), 9.0
    report = ptdebug.explain(f)(torch.ones(3, 3), good)
    assert len(report.graphs) == 1 and not report.graph_breaks
    compiled = ptdebug.compile(f)
    definite, semidefinite = (
        torch.distributions.constraints.positive_definite, torch.distributions.constraints.positive_semidefinite
    )  # fmt: skip
    checks = [(each.check, ptdebug.compile(each.check, fullgraph=True)) for each in (definite, semidefinite)]
    for matrix in (good, negative, lopsided, good[0], torch.ones(2, 3), torch.full((2, 2), torch.nan)):
        loc = torch.ones(matrix.shape[:-1])
        assert repr(call(compiled, loc, matrix)[:3]) == repr(call(f, loc, matrix)[:3])
        for slow, fast in checks:
            assert fast(matrix).equal(slow(matrix))


def test_sizes_that_must_be_equal_do_not_break_the_graph(as_the_engine):
    def f(x, mask, n):
        rows = x[mask]
        assert list(rows.size()) == [n, 2]
        return rows.view(3, 2) + x.new_ones(3, 2), x.new_zeros(n, 2) + rows, rows.expand(2, n, 2)

    report = ptdebug.explain(f)(torch.ones(4, 2), torch.tensor([True, True, False, True]), torch.tensor(3))
    assert len(report.graphs) == 1 and not report.graph_breaks


def test_checks_that_keep_failing_leave_the_frame_as_it_was_written(as_the_engine, caplog):
    STATISTICS.clear()
    runs = []

    def f(x, n):
        runs.append(n)
        assert n.item() > 3, runs
        return x[x > 1] + x[x < -1], torch.rand(1)

    compiled, results = ptdebug.compile(f), []
    inputs = [(torch.tensor([2.0, -3.0, 4.0 - 3 * (i % 2)]), torch.tensor(3 + i % 3)) for i in range(4 * LIMIT)]
    for function in (f, compiled):
        runs.clear()
        torch.manual_seed(0)
        results.append([repr(call(function, *given)) for given in inputs])
        assert len(runs) == len(inputs)
    assert results[0] == results[1]
    assert STATISTICS.reasons[f"limit of reruns ({LIMIT}) reached: {f.__qualname__}"] == 1
    assert sum(n for reason, n in STATISTICS.reasons.items() if reason.startswith("rerun in eager")) == LIMIT
    assert len([record for record in caplog.records if "runs in eager from now on" in record.message]) == 1


class Encoder(torch.nn.Module):
    """Counts its calls, in buffers that its graph writes, and checks what it has computed."""

    def __init__(self):
        super().__init__()
        self.layer, self.norm = torch.nn.Linear(3, 3), torch.nn.BatchNorm1d(3)
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x, scale):
        self.calls += 1
        posterior = torch.distributions.Normal(self.norm(self.layer(x)), scale, True)
        drawn = posterior.rsample()
        self.calls += 1
        return drawn, posterior.log_prob(drawn)


def trained_encoder(compile):
    torch.manual_seed(0)
    model = Encoder()
    compiled, seen = compile(model), []
    for scale in (1.0, -1.0, 2.0, 1.0, -1.0, 3.0):
        results = call(compiled, torch.arange(12.0).view(4, 3).sin(), torch.full((3,), scale))
        if results[0] != "raised":
            sum(results).sum().backward()
        seen.append(results[:3])
    return seen, model.state_dict(), [parameter.grad for parameter in model.parameters()]


def test_a_graph_of_training_that_writes_buffers_checks_and_runs_again():
    STATISTICS.clear()
    checking.check_engine(trained_encoder)
    assert list(STATISTICS.reasons) == ["rerun in eager: a graph raised RuntimeError"]


def one_row_and_others(compile):
    """A size of 1 is squeezed away, others are not: one graph takes the others, and says so where there is one row."""
    @compile
    def f(x):
        rows = (x[:, 0] > 1).nonzero().squeeze()
        return x.index_select(0, rows) * 2, x[rows]

    return [call(f, torch.tensor([[1.0], [2.0], [value]])) for value in (3.0, 1.0, 4.0)]


def test_what_a_graph_assumes_of_data_is_no_error_of_the_program():
    STATISTICS.clear()
    checking.check_engine(one_row_and_others)
    what = "the graph of one_row_and_others.<locals>.f assumes something of data that did not hold"
    assert list(STATISTICS.reasons) == [f"rerun in eager: {what}"]


def test_what_cannot_run_again_breaks_the_graph_where_it_would_be_checked():
    report = ptdebug.explain(Encoder(), backend=lambda module, inputs: module.forward)(torch.ones(4, 3), torch.ones(3))
    calls = ["torch.distributions.Normal(self.norm(self.layer(x)), scale, True)", "posterior.log_prob(drawn)"]
    found = [found.expression for found in report.graph_breaks]
    assert found == calls, "\n".join(f"{b.code}: {b.expression} {b.message}" for b in report.graph_breaks)


def checks_of_whole_tensors(compile):
    def f(x, weight):
        torch._check_tensor_all(x > 0)
        torch._check_tensor_all_with(ValueError, x < 9, lambda: f"{x.max()} is too large")
        return x * weight

    f, seen = compile(f), []
    for value in (1.0, 0.0, 10.0, 2.0):
        weight = torch.ones(3, requires_grad=True)
        result = call(f, torch.full((3,), value), weight)
        if isinstance(result, torch.Tensor):
            result.sum().backward()
        seen.append((result, weight.grad))
    return seen


def test_checks_of_whole_tensors_are_part_of_a_graph_of_training():
    STATISTICS.clear()
    checking.check_engine(checks_of_whole_tensors)
    assert list(STATISTICS.reasons) == ["rerun in eager: a graph raised RuntimeError"]


def test_a_size_that_data_tells_and_that_must_be_0():
    def program(compile):
        f = compile(lambda x, b: torch.bincount(b) * x)
        g = compile(lambda x, mask: x[mask][:, None] * torch.zeros(0, 3))
        none = torch.zeros(0, dtype=torch.long)
        return f(torch.ones(0), none), g(torch.ones(3), torch.tensor([False] * 3))

    STATISTICS.clear()
    checking.check_engine(program)
    assert not STATISTICS.reasons


def test_sizes_that_data_tells_in_graphs_without_inputs():
    def program(compile):
        drawn = compile(lambda: (x := torch.randn(5))[x > 0] * 2)
        sized = compile(lambda: (torch.zeros(torch.tensor(2)), torch.randn(5).sum().item() * torch.ones(2)))
        return [f() for f in (drawn, sized, compile(lambda: torch.randint(3, (9,)).unique())) for _ in range(2)]

    STATISTICS.clear()
    checking.check_engine(program)
    assert not STATISTICS.reasons and STATISTICS.graphs == 3
    decisions = ptdebug.explain(lambda: torch.ones(3).nonzero())().decisions
    assert "eager" not in [decision.chosen for decision in decisions]
