"""The captured graph by nn.Module: repeated layers that are alike are one row."""
from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from ...artifacts.input_names import input_names, named_text
from ...artifacts.listing import plural, short_place
from ...artifacts.records import Graph, Node, Ref, ref
from ...artifacts.render_graph import node_text, value_text
from ...dependencies import msgspec
from ..session import Session, Target
from .answer import Answer, fixed

KEPT = 2000
"""Operations of one module that are shown; there are more where a graph is not made of modules, and large."""


@dataclass
class Module:
    """A module of the model: its own operations, the first of them as nodes, and its children, in the order of the
    graph."""

    path: str
    nodes: list[Node] = field(default_factory=list)
    operators: Counter[str] = field(default_factory=Counter)
    children: dict[str, Module] = field(default_factory=dict)
    own_form: Hashable = None

    def add(self, node: Node) -> None:
        """It has one more operation."""
        self.operators[node.target] += 1
        self.own_form = hash((self.own_form, node.target, value_text(node.value)))
        if len(self.nodes) < KEPT:
            self.nodes.append(node)

    @property
    def size(self) -> int:
        """How many operations it has with all that is below it."""
        return self.operators.total() + sum(child.size for child in self.children.values())

    def form(self) -> Hashable:
        """What two modules share that are alike: operators, shapes, and the forms of their children."""
        return self.own_form, tuple((name, child.form()) for name, child in self.children.items())


def module_tree(graph: Graph) -> Module:
    """The modules that the nodes of a graph were traced in."""
    root = Module("")
    for node in graph.nodes:
        if node.op in ("placeholder", "output", "get_attr"):
            continue
        at = root
        for part in filter(None, node.module.split(".")):
            at = at.children.setdefault(part, Module(f"{at.path}.{part}".removeprefix(".")))
        at.add(node)
    return root


def layers(module: Module) -> Iterator[list[Module]]:
    """The children; those with numbers for names that are alike, in a row, together."""
    run: list[Module] = []
    forms: list[Hashable] = []
    for name, child in module.children.items():
        form = child.form()
        if run and not (name.isdigit() and form == forms[0]):
            yield run
            run, forms = [], []
        run.append(child)
        forms.append(form if name.isdigit() else object())
    if run:
        yield run


def model(session: Session, compile_id: str) -> list[Answer]:
    """The modules of each compilation's captured graph."""
    rows: list[Answer] = []
    for info in session.compiles_of(compile_id):
        graph = session.recording.large_graph(info.id, "capture") or session.recording.find(Graph, info.id, "capture")
        if graph is None:
            continue
        try:
            tree = module_tree(graph)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):  # in a node of a large graph
            rows.append(Answer(f"{info.id}  the captured graph is damaged", fixed(), (Target(info.id), 0)))
            continue
        target = Target(info.id, "capture")
        rows.append(Answer(f"{info.id}  {session.name_of(info)}: {plural(tree.size, 'operation')}",
                           partial(_operators, tree), (target, 0)))
        names = input_names(session.recording, info.id, "capture", "", graph)
        rows += _rows(tree, 1, target, names)
    return rows


def _rows(module: Module, depth: int, target: Target, names: Mapping[str, str]) -> Iterator[Answer]:
    for node in module.nodes:
        place = node.stack[-1] if node.stack else None
        where = [f"at {short_place(place)} in {place.function}"] if place is not None else []
        text = named_text(node_text(node), names)
        yield Answer(text, fixed(text, *where), (target, ref("capture", node.id)), depth)
    if more := module.operators.total() - len(module.nodes):
        yield Answer(f"... {plural(more, 'more operation')}: enter shows them in the graph", fixed(),
                     (target, ref("capture", module.nodes[-1].id)), depth)
    runs = list(layers(module))
    for run in runs:
        first, last = run[0], run[-1]
        name = first.path.rpartition(".")[2]
        alike = ""
        if len(run) > 1:
            name = f"{name} to {last.path.rpartition('.')[2]}"
            alike = f" x{len(run)}, all alike, each" if len(runs) == 1 else f" x{len(run)}, alike, each"
        title = f"{name}{alike}: {plural(first.size, 'operation')}"
        yield Answer(title, partial(_operators, first), (target, _first_place(first)), depth)
        yield from _rows(first, depth + 1, target, names)


def _first_place(module: Module) -> int | Ref:
    while not module.nodes and module.children:
        module = next(iter(module.children.values()))
    return ref("capture", module.nodes[0].id) if module.nodes else 0


def _operators(module: Module) -> Sequence[str]:
    """The module's path, and how often it has each operator, with all that is below it."""
    counts = sum((one.operators for one in _all(module)), Counter[str]())
    own = [module.path] if module.path else []
    return [*own, *(f"{number:5}  {target}" for target, number in counts.most_common())]


def _all(module: Module) -> Iterator[Module]:
    yield module
    for child in module.children.values():
        yield from _all(child)
