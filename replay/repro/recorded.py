"""What a selector names, as a script."""
from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from typing import Any

from ...artifacts.recording import Recording
from ...artifacts.records import Graph, Kernel, NodeRef, Pass, Recompile, TensorMeta
from ...dependencies import msgspec
from ..recorded.graphs import ReplayError
from .compilation import RANDOM, RECORDED, Compilation
from .events import break_repro, recompile_repro
from .frames import frame_repro
from .graphs import graph_repro
from .kernels import kernel_repro
from .names import input_names
from .passes import Stages, pass_repro, rewrites
from .regenerate import KernelCall, kernel_calls, parts
from .script import Header, Repro
from .values import arguments, inputs_of
from .verify import verified


def captured_graph(compilation: Compilation, _name: str = "") -> Repro:
    """The captured graph, with the inputs of its first call."""
    case = compilation.case()
    return graph_repro(
        compilation.graph, compilation.values, training=compilation.training, compiler=compilation.compiler,
        forced=case.forced, options=case.options,
        title=compilation.title("The captured graph"), facts=compilation.facts(f"{compilation.id}:capture"),
        sources=compilation.sources, source=compilation.recording.source, recorded=compilation.is_recorded,
        state=compilation.kept.state, random=case.inputs.random(),
    )


def aten_graph(stage: str) -> Writer:
    """The writer of an ATen graph: joint, forward or backward."""
    def write(compilation: Compilation, name: str) -> Repro:
        graph = without_workspaces(compilation.need(Graph, stage, name))
        values, made_up = inputs_of(graph, compilation.intermediates, compilation.symbols)
        facts = compilation.facts(f"{compilation.id}:{stage}" + (f":{name}" if name else ""))
        return graph_repro(
            graph, [_plain(v) for v in values], compiler=compilation.compiler, title=compilation.title(_TITLES[stage]),
            facts=[*facts, *_about(made_up)], source=compilation.recording.source, recorded=compilation.is_recorded,
            sources=_parameters(compilation, graph),
        )
    return write


_READS_WORKSPACE = re.compile(r"aten\.(mkldnn_rnn_layer|_cudnn_rnn|_thnn_fused_\w+|miopen_rnn)_backward\b")


def without_workspaces(graph: Graph) -> Graph:
    """The graph without results that have no elements: a library's workspace has some when it is run, which mean
    nothing. Raises ReplayError where it reads such a workspace, which cannot be made up."""
    known = {node.id: node for node in graph.nodes}
    reads = next((node.target for node in graph.nodes if _READS_WORKSPACE.match(node.target)), "")
    if reads:
        raise ReplayError(f"{graph.name} calls {reads}, which reads what a library has left in its workspace: "
                          "write the captured graph instead")
    output = graph.nodes[-1]
    results = [r for r in output.args[0] if not (isinstance(r, NodeRef) and _is_empty(known[r.node].value))]
    nodes = (*graph.nodes[:-1], msgspec.structs.replace(output, args=(results, *output.args[1:])))
    return msgspec.structs.replace(graph, nodes=nodes)


def _is_empty(value: Any) -> bool:
    return isinstance(value, TensorMeta) and 0 in value.shape


_TITLES = {"joint": "The joint graph (forward and backward)", "forward": "The ATen graph of the forward",
           "backward": "The ATen graph of the backward"}


def _about(made_up: list[str]) -> list[str]:
    return [f"Random values, since no recorded ones fit: {', '.join(made_up[:8])}."] if made_up else []


def _plain(value: Any) -> Any:
    return value.detach() if hasattr(value, "detach") else value


def _parameters(compilation: Compilation, graph: Graph) -> list[str]:
    """Names for the placeholders of an ATen graph: those of the program's inputs, where they are these."""
    own = dict(zip(arguments(compilation.values), input_names(compilation.sources)))
    return [own.get(node.id, node.id) for node in graph.nodes if node.op == "placeholder"]


def pass_of(compilation: Compilation, name: str) -> Repro:
    """A pass: the graph before it, and the graph after it."""
    names = [info.name for info in compilation.recording.artifacts(compilation.id, "passes")]
    if name not in names:
        raise ReplayError(f"{compilation.id} has no pass {name}; it has: {', '.join(names) or 'none that changed it'}")
    record = compilation.need(Pass, "passes", name)
    owner = name.rpartition(".")[0]
    earlier = [n for n in names[: names.index(name)] if n.rpartition(".")[0] == owner]
    if earlier:
        before = compilation.need(Pass, "passes", earlier[-1]).graph
    else:
        part, _, kind = owner.rpartition(".")
        kind, part = (kind, part) if kind in ("joint", "backward") else ("forward", owner)
        before = compilation.need(Graph, kind, part)
    values, made_up = inputs_of(before, compilation.intermediates, compilation.symbols)
    values = [_plain(value) for value in values]
    header = Header(compilation.title(f"The pass {name} of the graph"),
                    (*compilation.facts(f"{compilation.id}:passes:{name}"), *rewrites(record), *_about(made_up)),
                    "python {file}")
    stages = Stages(before, record.graph, record.matches)
    if sum(n.op == "placeholder" for n in record.graph.nodes) != len(values):
        raise ReplayError(f"the pass {name} changed the inputs of the graph, so both cannot run on the same ones")
    names = input_names(_parameters(compilation, before))
    return pass_repro(stages, values, names, compilation.symbols, header, compilation.recording.source)


def kernel_of(compilation: Compilation, name: str) -> Repro:
    """A kernel: its recorded source on the buffers that it was called with."""
    if compilation.compiler == "torch":
        raise ReplayError("kernels of stock PyTorch are recorded without what they are called with: use the graph")
    record, call = kernel_call(compilation, name)
    return _kernel(compilation, call, record, call.group.kernel)


def kernel_call(compilation: Compilation, name: str) -> tuple[Kernel, KernelCall]:
    """The record that has a kernel, and its first call on these inputs. Raises ReplayError."""
    record, owner, kernel = _find_kernel(compilation, name)
    for part in parts(compilation.case(), recorded=compilation.chosen):
        for call in kernel_calls(part):
            if call.group.kernel == kernel and part.name == owner:
                return record, call
    raise ReplayError(f"the graph, compiled again, does not run a kernel {kernel} on these inputs")


def _kernel(compilation: Compilation, call: KernelCall, record: Kernel, kernel: str) -> Repro:
    random = not compilation.is_recorded
    made_from = "random numbers" if random else "what they held in the program"
    header = compilation.header(
        f"The {'C++' if record.language == 'cpp' else 'Triton'} kernel {kernel}", f"{compilation.id}:kernels:{kernel}",
        f"Its buffers hold {made_from}; `expected` is what ptdebug's loop IR interpreter makes of them.")
    header = Header(header.what, header.facts, "python {file}")
    return kernel_repro(call, record, random, header, compilation.symbols)


def _find_kernel(compilation: Compilation, name: str) -> tuple[Kernel, str, str]:
    """The record that has a kernel, the part that it is of, and the kernel's name. It is asked for as `fused_0`,
    `backward.fused_0`, or by the name of a record; kernels for another target (`fused_0@cuda:90`) by that only."""
    units = sorted(compilation.recording.artifacts(compilation.id, "kernels"), key=lambda info: "@" in info.name)
    known = []
    for info in units:
        record = compilation.need(Kernel, "kernels", info.name)
        entries = [k for k in record.kernels if record.language == "cpp"] or [record.name.partition("@")[0]]
        prefix = info.name.rpartition(".")[0]
        for kernel in entries:
            full = f"{prefix}.{kernel}" if prefix else kernel
            known.append(full)
            if name in (kernel, full) or (name in ("", info.name) and kernel == entries[0]):
                return record, prefix, kernel
    raise ReplayError(f"{compilation.id} has no kernel {name}; it has: {', '.join(dict.fromkeys(known)) or 'none'}")


def whole(compilation: Compilation, _name: str = "") -> Repro:
    """The function as the program has it; where that cannot be, the captured graph, with the reason."""
    try:
        return first_that_runs(compilation, partial(frame_repro, compilation))
    except ReplayError as error:
        made = captured_graph(compilation)
        return Repro(made.text, made.tensors, f"the captured graph, and not the function, was written: {error}")


def first_that_runs(compilation: Compilation, write: Callable[[bool], Repro]) -> Repro:
    """A script with the program's function. What the recording says of its objects may not be enough, so it is run in
    eager, where running the program's code is allowed: first with modules made by their constructors, then without.
    Raises ReplayError."""
    why = ""
    for construct in (True, False):
        if construct and not compilation.may_run:
            continue  # constructors cannot be tried
        try:
            made = write(construct)
        except ReplayError as error:
            why = why or str(error)
            continue
        if not compilation.may_run:
            return Repro(made.text, made.tensors, "the script was not tried: the recording is not yours (--trust)")
        ran = verified(made, ["--compiler", "eager"])
        if ran.outcome.passed:
            return made
        why = why or f"it does not run in eager: {ran.last_error}"
    raise ReplayError(why)


def break_of(compilation: Compilation, name: str) -> Repro:
    """A graph break."""
    return first_that_runs(compilation, partial(break_repro, compilation, name))


def recompile_of(compilation: Compilation, _name: str) -> Repro:
    """The recompilation that a compilation is: the call before, and its own."""
    record = compilation.need(Recompile, "guards", "recompile")
    inputs = RECORDED if compilation.is_recorded else RANDOM
    before = Compilation(compilation.recording, record.compared_with, inputs, compilation.may_run)
    return first_that_runs(compilation, partial(recompile_repro, before, compilation))


Writer = Callable[[Compilation, str], Repro]
WRITERS: dict[str, Writer] = {
    "": whole, "capture": captured_graph,
    **{stage: aten_graph(stage) for stage in _TITLES},
    "passes": pass_of, "kernels": kernel_of, "breaks": break_of, "recompiles": recompile_of,
}


def repro(
    recording: Recording, compile_id: str, stage: str = "", name: str = "", inputs: str = RECORDED, trust: bool = False,
    call: int = 0,
) -> Repro:
    """The script for a compilation, a stage of it, or one artifact, with the inputs of a call. `trust`: code of the
    recording may run, whoever made it. Raises ReplayError."""
    if stage not in WRITERS:
        raise ReplayError(f"no script shows the stage {stage}: one can show {', '.join(filter(None, WRITERS))}")
    return WRITERS[stage](Compilation(recording, compile_id, inputs, trust, call), name)
