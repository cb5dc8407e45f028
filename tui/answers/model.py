"""The captured graph by nn.Module: repeated layers that are alike are one row."""
from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from ...artifacts.input_names import input_names, named_text
from ...artifacts.listing import plural, short_place
from ...artifacts.records import Graph, Node, ref
from ...artifacts.render_graph import node_text, value_text
from ..session import Session, Target
from .answer import Answer, fixed


@dataclass
class Module:
    """A module of the model: its own nodes and its children, in the order of the graph."""

    path: str
    nodes: list[Node] = field(default_factory=list)
    children: dict[str, Module] = field(default_factory=dict)

    @property
    def size(self) -> int:
        """How many operations it has with all that is below it."""
        return len(self.nodes) + sum(child.size for child in self.children.values())

    def form(self) -> Hashable:
        """What two modules share that are alike: operators, shapes, and the forms of their children."""
        own = tuple((node.target, value_text(node.value)) for node in self.nodes)
        return own, tuple((name, child.form()) for name, child in self.children.items())


def module_tree(graph: Graph) -> Module:
    """The modules that the nodes of a graph were traced in."""
    root = Module("")
    for node in graph.nodes:
        if node.op in ("placeholder", "output", "get_attr"):
            continue
        at = root
        for part in filter(None, node.module.split(".")):
            at = at.children.setdefault(part, Module(f"{at.path}.{part}".removeprefix(".")))
        at.nodes.append(node)
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
        graph = session.recording.find(Graph, info.id, "capture")
        if graph is None:
            continue
        tree = module_tree(graph)
        target = Target(info.id, "capture")
        listing = session.listing(target)
        places = {line.ref: row for row, line in reversed(list(enumerate(listing.lines))) if line.ref}
        rows.append(Answer(f"{info.id}  {session.name_of(info)}: {plural(tree.size, 'operation')}",
                           fixed(*_operators(tree)), (target, 0)))
        names = input_names(session.recording, info.id, "capture", "", graph)
        rows += _rows(tree, 1, target, places, names)
    return rows


def _rows(
    module: Module, depth: int, target: Target, places: dict[str, int], names: Mapping[str, str]
) -> Iterator[Answer]:
    for node in module.nodes:
        place = node.stack[-1] if node.stack else None
        where = [f"at {short_place(place)} in {place.function}"] if place is not None else []
        opens = target, places.get(ref("capture", node.id), 0)
        text = named_text(node_text(node), names)
        yield Answer(text, fixed(text, *where), opens, depth)
    runs = list(layers(module))
    for run in runs:
        first, last = run[0], run[-1]
        name = first.path.rpartition(".")[2]
        alike = ""
        if len(run) > 1:
            name = f"{name} to {last.path.rpartition('.')[2]}"
            alike = f" x{len(run)}, all alike, each" if len(runs) == 1 else f" x{len(run)}, alike, each"
        title = f"{name}{alike}: {plural(first.size, 'operation')}"
        yield Answer(title, fixed(first.path, *_operators(first)), _first_place(first, target, places), depth)
        yield from _rows(first, depth + 1, target, places, names)


def _first_place(module: Module, target: Target, places: dict[str, int]) -> tuple[Target, int]:
    node = next(_nodes(module), None)
    return target, places.get(ref("capture", node.id), 0) if node is not None else 0


def _nodes(module: Module) -> Iterator[Node]:
    yield from module.nodes
    for child in module.children.values():
        yield from _nodes(child)


def _operators(module: Module) -> Sequence[str]:
    counts: dict[str, int] = {}
    for node in _nodes(module):
        counts[node.target] = counts.get(node.target, 0) + 1
    return [f"{number:5}  {target}" for target, number in sorted(counts.items(), key=lambda e: -e[1])]
