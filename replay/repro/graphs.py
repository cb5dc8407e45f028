"""A graph as a script: the captured one, joint, forward or backward, or any that a search has made smaller."""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from ...artifacts.records import Graph, Node, ProcessState, TensorMeta
from ..failures.case import Case
from ..recorded.inputs import RANDOM, bind_symbols
from .graph_source import GraphSource, changed_inputs, no_source
from .names import Source, input_names
from .script import Body, Header, Repro, compose
from .state_source import random_facts, random_lines, state_lines
from .tensors import Tensors, described

RECORDED = "are the recorded ones"
REDUCED = "come from the recorded ones, or what eager computes of these"
MADE_UP = "come from random ones of the recorded layouts"


def graph_repro(
    graph: Graph, inputs: Sequence[Any], *, training: bool = False, compiler: str = "ptdebug",
    forced: Mapping[str, str] | None = None, options: Mapping[str, Any] | None = None, title: str = "",
    facts: Sequence[str] = (), sources: Sequence[str] = (), source: Source = no_source, recorded: bool = True,
    load: Sequence[str] = (), state: ProcessState | None = None, random: Mapping[str, torch.Tensor] | None = None,
    origin: str = RECORDED,
) -> Repro:
    """The script that runs `graph` on `inputs` (values of its placeholders), compiled and in eager.

    `training`: gradients of the inputs that require them are compared, too. `forced` are decisions of ptdebug, by id.
    `sources` say where the program's frame found the inputs, which gives them their names; `source` has the program's
    files, which give the other values theirs. Without `recorded`, inputs are made up from their metadata.
    `load` are modules (MODULE, or MODULE:FUNCTION, which is called) that define operators of other libraries; `state`
    is torch's around the call, `random` that of generators; `origin` says what recorded inputs are.
    Raises ReplayError for what has no source text.
    """
    names = input_names(sources) if len(sources) == len(inputs) else _names(graph)
    out = GraphSource(bind_symbols(graph, tuple(inputs)), source)
    function = out.function(graph, "graph", names)
    tensors = Tensors(recorded)
    tensors.shared(inputs if recorded else ())
    values = [tensors.expression(name, value, training and _requires(value), _device(node))
              for name, value, node in zip(names, inputs, _placeholders(graph))]
    constants = {name: tensors.constant(name, data) for name, data in out.constants.items()}
    changed = changed_inputs(graph)
    requiring = {node.id for node, value in zip(_placeholders(graph), inputs) if _requires(value)}
    settings = {
        "COMPILER": compiler, "TRAINING": training, "COPIED": bool(training and changed & requiring),
        "REFERENCE": not (changed and tensors.has_shared()), "OPTIONS": compile_options(graph, options),
        "FORCED": dict(forced or {}),
    }
    random_state = random_lines(graph, random or {}, tensors) if recorded else []
    make = [*(random_state if recorded else ["torch.manual_seed(0)"]), "return graph, [",
            *(f"    {text},  # {name}: {described(value)}" for text, name, value in zip(values, names, inputs)), "]"]
    about = [_about_inputs(origin if recorded else "", tensors), *random_facts(graph, bool(random_state))]
    header = Header(title or f"The graph {graph.name}: {len(graph.nodes)} nodes.", (*facts, *about))
    return compose(Body(header, [*out.classes, *([""] * 2 if out.classes else []), *function], make, tensors,
                        [*out.imports, *loading(load), *state_lines(state)], settings, constants))


def case_repro(case: Case, **settings: Any) -> Repro:
    """The script of a case, which it observes. Settings are those of `graph_repro` that a case does not have."""
    values = case.inputs.values()
    for value, item in zip(values, case.inputs.records):
        if item.meta is not None and item.meta.requires_grad and isinstance(value, torch.Tensor):
            value.requires_grad_()
    compiler = "torch" if case.compiler == "torch:inductor" else case.compiler
    settings.setdefault("sources", [item.name for item in case.inputs.records])
    settings.setdefault("origin", MADE_UP if case.made_up else RECORDED)
    return graph_repro(case.graph, values, training=case.training, compiler=compiler, forced=case.forced,
                       options=case.options, load=case.imports, state=case.state, random=case.inputs.random(),
                       **settings)


def emit_graph(case: Case | Graph, inputs: Sequence[Any] = (), **settings: Any) -> str:
    """The text of the script of a case, or of a graph on `inputs`."""
    return (case_repro(case, **settings) if isinstance(case, Case) else graph_repro(case, inputs, **settings)).text


def write_repro(
    path: Path | str, case: Case | Graph | Repro, inputs: Sequence[Any] = (), **settings: Any
) -> list[Path]:
    """Write a script and its tensors; the files that were written. Settings are those of `graph_repro`."""
    if isinstance(case, Graph):
        case = graph_repro(case, inputs, **settings)
    return (case_repro(case, **settings) if isinstance(case, Case) else case).write(Path(path))


def loading(modules: Sequence[str]) -> list[str]:
    """Lines that import modules and call their functions."""
    imports = [f"import {name.partition(':')[0]}" for name in modules]
    return [*imports, *(f"{name.replace(':', '.')}()" for name in modules if ":" in name)]


def _names(graph: Graph) -> list[str]:
    return input_names([node.id.strip("_") for node in _placeholders(graph)])


def _placeholders(graph: Graph) -> list[Node]:
    return [node for node in graph.nodes if node.op == "placeholder"]


def _requires(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.requires_grad


def _device(node: Node) -> str:
    return node.value.device if isinstance(node.value, TensorMeta) else "cpu"


def compile_options(graph: Graph, options: Mapping[str, Any] | None) -> dict[str, Any]:
    """The keywords of `compile`: dynamic where the graph has symbols, and options of ptdebug."""
    own = {key: value for key, value in (options or {}).items() if (key, value) != ("memory_budget", 1.0)}
    symbolic = any(isinstance(size, str) for node in _placeholders(graph) if isinstance(node.value, TensorMeta)
                   for size in node.value.shape)
    return ({"dynamic": True} if symbolic else {}) | ({"options": own} if own else {})


def _about_inputs(origin: str, tensors: Tensors) -> str:
    inputs = origin or "are made up (torch.randn, torch.randint) from their recorded shapes, strides and dtypes"
    saved = any(not key.startswith(RANDOM) for key in tensors.file)
    return f"The inputs {inputs}{', in the .safetensors file beside this one' if origin and saved else ''}."
