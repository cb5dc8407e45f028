"""Makes a captured graph that fails smaller: first to its end, then from its beginning, then node by node."""
from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ...artifacts.records import Node, NodeRef, ProcessState, TensorMeta
from ...dependencies import msgspec
from ..failures.case import Case
from .ddmin import Reduction
from .inputs import reduce_inputs
from .subgraph import arguments, computed, eager_values, extract, live_after, results, substituted


def reduce_graph(reduction: Reduction[Case]) -> Case:
    """Make the case as small as possible: nodes, then inputs, then what is left of both."""
    _settings(reduction)
    _end(reduction)
    _beginning(reduction)
    while True:
        before = reduction.best
        _nodes(reduction)
        reduce_inputs(reduction)
        _settings(reduction)
        if reduction.best.key() == before.key():
            return reduction.best


def _settings(reduction: Reduction[Case]) -> None:
    """Without gradients, forced decisions and options, if it fails without them."""
    case = reduction.best
    if case.training:
        reduction.first([replace(case, training=False)])
    _state(reduction)
    case = reduction.best
    plain = replace(case, forced={}, options={}, imports=case.imports)
    if (case.forced or case.options) and not reduction.first([plain]):
        reduction.take(list(case.forced), lambda gone: replace(case, forced=_without(case.forced, gone)))
        best = reduction.best
        reduction.take(list(best.options), lambda gone: replace(best, options=_without(best.options, gone)))


def _state(reduction: Reduction[Case]) -> None:
    """Without the state of the process around the call, or with less of it."""
    state = reduction.best.state
    if state is None or reduction.first([replace(reduction.best, state=None)]):
        return
    usual = ProcessState()
    for name in state.__struct_fields__:
        if getattr(state, name) != getattr(usual, name):
            less = msgspec.structs.replace(reduction.best.state or usual, **{name: getattr(usual, name)})
            reduction.first([replace(reduction.best, state=less)])


def _without(mapping: Mapping[str, Any], gone: Sequence[str]) -> dict[str, Any]:
    return {key: value for key, value in mapping.items() if key not in gone}


def latest(reduction: Reduction[Case], places: Sequence[Any], at: Callable[[Any], Case | None], last: bool) -> None:
    """Bisection: the last (or first) of `places` at which the case still fails, several asked at once."""
    order = list(places) if last else list(reversed(places))
    least, most = 0, len(order)
    while least < most:
        width = max(1, min(reduction.width, most - least))
        asked = sorted({least + (most - least) * (i + 1) // (width + 1) for i in range(width)})
        made = [at(order[i]) for i in asked]
        verdicts = reduction.verdicts(made)
        failing = [(i, case) for i, case, fails in zip(asked, made, verdicts) if fails and case is not None]
        if failing:
            reduction.become(failing[-1][1])
            least = failing[-1][0] + 1
        most = min((i for i in asked if i >= least), default=most)


def _end(reduction: Reduction[Case]) -> None:
    """The shortest beginning of the graph that fails."""
    case = reduction.best
    positions = [i for i, node in enumerate(case.graph.nodes) if node.op not in ("placeholder", "get_attr", "output")]

    def until(position: int) -> Case | None:
        return extract(case, {}, _tensors(case, live_after(case.graph, position)))

    latest(reduction, positions[:-1], until, last=False)


def _beginning(reduction: Reduction[Case]) -> None:
    """The shortest end of it."""
    case, values = reduction.best, eager_values(reduction.best)
    positions = [i for i, node in enumerate(case.graph.nodes) if node.op not in ("placeholder", "get_attr", "output")]

    def after(position: int) -> Case | None:
        before = {n.id for n in case.graph.nodes[: position + 1]}
        return extract(case, values, [r for r in results(case.graph) if r not in before], before)

    latest(reduction, positions[:-1], after, last=True)


def _tensors(case: Case, names: Sequence[str]) -> list[str]:
    """Those of `names` that are tensors: a graph returns no tuples."""
    known = {node.id: node.value for node in case.graph.nodes}
    return [name for name in names if isinstance(known[name], TensorMeta) or known[name] is None]


def _nodes(reduction: Reduction[Case]) -> None:
    """Results dropped; nodes replaced by inputs, by one of their arguments, by nothing; until nothing goes any more."""
    while True:
        before = reduction.best
        _results(reduction)
        _as_inputs(reduction)
        start = reduction.best
        reduction.first(_with_arguments(start)) or reduction.first(_alike_with_arguments(start))
        _results_before(reduction)
        if reduction.best.key() == before.key():
            return


def _results(reduction: Reduction[Case]) -> None:
    case = reduction.best
    returned = results(case.graph)
    if len(returned) > 1:
        reduction.take(returned, lambda gone: extract(case, {}, [r for r in returned if r not in gone]))


def _as_inputs(reduction: Reduction[Case]) -> None:
    case, values = reduction.best, eager_values(reduction.best)
    names = [node.id for node in computed(case.graph) if node.id in values]
    outputs = results(case.graph)

    def cut(inputs: Sequence[str]) -> Case | None:
        return extract(case, values, [o for o in outputs if o not in inputs], inputs)

    reduction.take(names, cut)


def _with_arguments(case: Case) -> Iterator[Case]:
    """A node's readers read one of its arguments instead, one of the same shape first."""
    known = {node.id: node for node in case.graph.nodes}
    same: list[Case] = []
    others: list[Case] = []
    for node in reversed(computed(case.graph)):
        for name in dict.fromkeys(arguments(node)):
            made = substituted(case, {node.id: NodeRef(name)})
            if made is not None and known[name].op != "get_attr":
                (same if _shape(known[name].value) == _shape(node.value) else others).append(made)
    yield from (*same, *others)


def _alike_with_arguments(case: Case) -> Iterator[Case]:
    """The same of all calls of one function at once: a kernel made of equal parts needs each of them as it is."""
    alike: dict[tuple[str, str], list[Node]] = {}
    for node in computed(case.graph):
        alike.setdefault((node.op, node.target), []).append(node)
    for nodes in alike.values():
        given = [list(dict.fromkeys(arguments(node))) for node in nodes]
        for position in range(min(map(len, given)) if len(nodes) > 1 else 0):
            names = {node.id: names[position] for node, names in zip(nodes, given)}
            made = substituted(case, {name: NodeRef(_end_of(name, names)) for name in names})
            if made is not None:
                yield made


def _end_of(name: str, names: Mapping[str, str]) -> str:
    while name in names:
        name = names[name]
    return name


def _shape(value: Any) -> Any:
    return (value.shape, value.dtype) if isinstance(value, TensorMeta) else None


def _results_before(reduction: Reduction[Case]) -> None:
    """The last node is dropped: what it read is returned."""
    case = reduction.best
    known = {node.id: node for node in case.graph.nodes}
    candidates = (
        extract(case, {}, [name]) for result in results(case.graph) for name in dict.fromkeys(arguments(known[result]))
        if known[name].op not in ("placeholder", "get_attr")
    )  # fmt: skip
    reduction.first(c for c in candidates if c is not None)


def likeness(case: Case, other: Case) -> float:
    """How much two cases have in common: nodes, and what they are run on."""
    def content(one: Case) -> set[Any]:
        return {repr((n.op, n.target, n.args, n.kwargs)) for n in one.graph.nodes} | {
            repr(record) for record in one.inputs.records} | {("training", one.training), ("values", one.inputs.key)}

    mine, its = content(case), content(other)
    return len(mine & its) / len(mine | its)
