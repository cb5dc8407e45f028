"""Captured graphs with planted faults, reduced in worker processes."""
from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from ptdebug.artifacts.records import NodeRef
from ptdebug.replay.failures.case import Case
from ptdebug.replay.failures.signature import Signature
from ptdebug.replay.reduce.ddmin import Reduction
from ptdebug.replay.reduce.graph import reduce_graph
from ptdebug.replay.reduce.inputs import refreshed, resized
from ptdebug.replay.reduce.minify import MinifiedGraph, minify_graph, write_minified
from ptdebug.replay.reduce.subgraph import arguments, computed, eager_values, extract, results
from ptdebug.replay.workers.pool import Pool

from ..cases import case_of

HERE = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def pool(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pool]:
    """Workers that find faults.py, and a cache of their own."""
    patch = pytest.MonkeyPatch()
    patch.setenv("PYTHONPATH", os.pathsep.join([str(HERE), *filter(None, [os.environ.get("PYTHONPATH")])]))
    patch.setenv("PTDEBUG_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))
    with Pool(keep=False) as made:
        yield made
    patch.undo()


def deep(x: torch.Tensor, *weights: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """67 operators and more, one of them a relu."""
    for i in range(11):
        y = x @ weights[i % 4]
        y = torch.relu(y) if i == 6 else F.gelu(y)
        y = torch.tanh(y * 0.5 + x)
        x = y + torch.sigmoid(x)
    return x, x.sum()


def of_deep(fault: str, training: bool = False) -> Case:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(16, 32, generator=generator)
    weights = [torch.randn(32, 32, generator=generator) * 0.2 for _ in range(4)]
    if training:
        weights = [w.requires_grad_() for w in weights]

    def program(x: Any, a: Any, b: Any, c: Any, d: Any) -> Any:
        return deep(x, a, b, c, d)

    return refreshed(case_of(program, x, *weights, imports=(f"faults:{fault}",) if fault else (), training=training))


def minified(pool: Pool, case: Case) -> MinifiedGraph:
    outcome = pool([case])[0]
    assert outcome.failed, outcome
    return minify_graph(case, outcome, pool)


def targets(case: Case) -> list[str]:
    return [node.target for node in computed(case.graph)]


def test_a_wrong_operator_is_left_alone(pool: Pool, tmp_path: Path) -> None:
    before = pool.ran
    found = minified(pool, of_deep("wrong_relu"))
    assert targets(found.small) == ["torch.relu"]
    assert pool.ran - before < 40
    assert all(record.meta.shape == (1, 1) for record in found.small.inputs.records)
    assert found.neighbour is not None and targets(found.neighbour) != ["torch.relu"]
    write_minified(found, tmp_path / "repro.py")
    assert found.verified is not None and found.verified.shows(found.signature)
    assert "torch.relu" in (tmp_path / "repro.py").read_text()


def test_an_exception_of_the_engine(pool: Pool) -> None:
    found = minified(pool, of_deep("raising_relu"))
    assert found.signature.kind == "exception" and "AssertionError" in found.signature.about
    assert targets(found.small) == ["torch.relu"]


def test_a_crash_stays_in_the_workers(pool: Pool) -> None:
    def program(x: Any) -> Any:
        return torch.softmax(torch.tanh(x) * 2, -1).sin() + 1

    found = minified(pool, case_of(program, torch.randn(4, 8), imports=("faults:crash_of_fused_softmax",)))
    assert found.signature == Signature("signal", "SIGSEGV")
    assert targets(found.small) == ["torch.softmax"]


def test_what_only_gradients_show_keeps_training(pool: Pool) -> None:
    found = minified(pool, replace(of_deep("wrong_relu", training=True)))
    assert targets(found.small) == ["torch.relu"]
    assert not found.small.training  # its forward is wrong, too


def test_a_part_begins_with_the_values_of_eager() -> None:
    case = of_deep("")
    values = eager_values(case)
    node = computed(case.graph)[20]
    (result,) = results(case.graph)[:1]
    part = extract(case, values, [result], [node.id])
    assert part is not None
    names = [n.id for n in computed(part.graph, "placeholder")]
    assert torch.equal(part.inputs.values()[names.index(node.id)], values[node.id])
    assert torch.equal(eager_values(part)[result], values[result])


def test_writes_to_what_is_needed_are_kept() -> None:
    def program(x: Any) -> Any:
        y = x * 2
        y.add_(1)
        y.relu_()
        return y.sin(), x + 1

    case = refreshed(case_of(program, torch.randn(3)))
    part = extract(case, {}, results(case.graph)[:1])
    assert part is not None and targets(part) == ["operator.mul", "add_", "relu_", "sin"]
    other = extract(case, {}, results(case.graph)[1:])
    assert other is not None and targets(other) == ["operator.add"]
    case = case_of(lambda L_x_, y: (L_x_ + 1, y.sin()), torch.randn(3), torch.randn(2))
    part = extract(case, {}, results(case.graph)[1:])
    assert part is not None and [node.id for node in computed(part.graph, "placeholder")] == ["y"]


def test_sizes_shrink_in_arguments_too() -> None:
    def program(x: Any) -> Any:
        return x.view(4, 6, 5).transpose(0, 1).reshape(6, 20)

    case = case_of(program, torch.randn(24, 5))
    small = resized(case, 6, 3)
    view = computed(small.graph)[0]
    assert view.args == (NodeRef("x"), 4, 3, 5) or view.args[1:] == (4, 3, 5)


def _kinds_of_results(case: Case) -> list[Any]:
    known = {node.id: node for node in case.graph.nodes}
    made = [known[name] for name in results(case.graph) if known[name].op != "placeholder"]
    return [(node.target, [known[name].op for name in arguments(node)]) for node in made]


def test_what_has_to_be_alike_is_reduced_together() -> None:
    def alike(cases):
        return [len(kinds := _kinds_of_results(case)) == 3 and len(set(map(str, kinds))) == 1 for case in cases]

    case = case_of(lambda a, b, c: tuple(x * x.sigmoid() for x in (a, b, c)), *(torch.ones(2) for _ in range(3)))
    assert len(computed(reduce_graph(Reduction(case, alike)).graph)) == 3
