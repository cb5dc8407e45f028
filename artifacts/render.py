"""Records to lines of text: one entry in a table for each type of record."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..dependencies import msgspec
from .input_names import graph_of, input_names, named_listing
from .listing import Line, Listing, SourceText, printable
from .recording import Recording, RecordingError
from .records import (
    AnyRecord,
    Breaks,
    Bytecode,
    Frame,
    Fusion,
    Graph,
    Guards,
    Kernel,
    Loops,
    Partition,
    Pass,
    Recompile,
    Runtime,
    SavedInputs,
    Schedule,
    Steps,
    Wrapper,
)
from .render_code import render_bytecode, render_kernel, render_loops, render_product, render_wrapper
from .render_graph import render_graph, render_pass
from .render_lists import (
    render_breaks,
    render_decisions,
    render_frame,
    render_fusion,
    render_guards,
    render_inputs,
    render_recompile,
    render_runtime,
    render_schedule,
)
from .render_partition import render_partition
from .render_steps import render_state, render_steps

RENDERERS: dict[type, Callable[[Any, str, str, SourceText], Listing]] = {
    Frame: render_frame,
    Bytecode: render_bytecode,
    Graph: render_graph,
    Pass: render_pass,
    Partition: render_partition,
    Breaks: render_breaks,
    Guards: render_guards,
    Recompile: render_recompile,
    Loops: render_loops,
    Fusion: render_fusion,
    Schedule: render_schedule,
    Kernel: render_kernel,
    Wrapper: render_wrapper,
    Runtime: render_runtime,
    SavedInputs: render_inputs,
    Steps: render_steps,
}


def render(record: AnyRecord, stage: str, name: str = "", source: SourceText = lambda path: None) -> Listing:
    """The listing of a record of `stage`; `source` gives the text of the program's files (None: not kept)."""
    renderer = RENDERERS.get(type(record))
    if renderer is not None:
        return renderer(record, stage, name, source)
    text = msgspec.json.format(msgspec.json.encode(record), indent=2).decode()
    return Listing(f"{stage} {name}".strip(), "json", tuple(Line(printable(line)) for line in text.splitlines()))


def listing(recording: Recording, compile_id: str, stage: str, name: str = "") -> Listing:
    """The listing of an artifact; for a kernel, `NAME.PRODUCT` (asm, ptx, ...) is a later form of it, for the tracer's
    steps `NAME.STEP` what it knew before a step.

    Raises RecordingError where it is absent (saying why) or damaged.
    """
    if stage == "decisions":
        found = [(owner, d) for owner, d in recording.decisions(compile_id) if not name or d.id == name]
        return render_decisions(found, with_compile=False)
    owner, dot, form = name.rpartition(".")
    if stage in _FORMS and dot and name not in {a.name for a in recording.artifacts(compile_id, stage)}:
        return _FORMS[stage](recording.artifact(compile_id, stage, owner), owner, form)
    record = recording.large_graph(compile_id, stage, name) or recording.artifact(compile_id, stage, name)
    try:
        made = render(record, stage, name, recording.source)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:  # in a node of a large graph
        raise RecordingError(f"{recording.name}:{compile_id}:{stage}: the content is damaged: {error}") from None
    if isinstance(record, Graph | Pass):
        return named_listing(made, input_names(recording, compile_id, stage, name, graph_of(record)))
    return made


def _product(record: AnyRecord, name: str, product: str) -> Listing:
    if isinstance(record, Kernel) and product in record.outputs:
        return render_product(record, product, name)
    raise RecordingError(f"{name} has no {product}; recorded: {', '.join(getattr(record, 'outputs', {}))}")


def _state(record: AnyRecord, name: str, step: str) -> Listing:
    if isinstance(record, Steps) and step.isdecimal() and int(step) < len(record.steps):
        return render_state(record, name, int(step))
    raise RecordingError(f"{name} has no step {step}; the last one is {len(getattr(record, 'steps', ())) - 1}")


_FORMS: dict[str, Callable[[AnyRecord, str, str], Listing]] = {"kernels": _product, "steps": _state}
"""By stage: what NAME.FORM shows."""
