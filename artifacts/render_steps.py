"""The tracer's steps as a listing, and what it knew before one of them."""
from __future__ import annotations

from .listing import Line, Listing, SourceText, place_refs, plural, printable, short_place
from .records import DELETED, Ref, Step, StepInstruction, Steps, ref
from .render_graph import source_text
from .step_states import FrameState, depths, state_before

STATE = "state"
"""In references, as if it were a stage: what the tracer knew before a step."""
WIDTH = 24
"""Characters of the instruction, before what it did."""


def render_steps(record: Steps, stage: str, name: str, source: SourceText) -> Listing:
    """One line for each step: its number, offset and instruction, and what that changed; lines of the program between
    them; calls are indented."""
    lines = [Line(printable(f"# {plural(len(record.steps), 'step')} of {record.function}; {record.end}"))]
    if record.left_out:
        lines.append(Line(f"# {record.left_out:,} more were not kept"))
    depth, shown = depths(record), (-1, -1)
    for number, step in enumerate(record.steps):
        done = record.instructions[step.instruction]
        indent = "  " * depth[step.frame]
        place = done.location
        if place is not None and (step.frame, place.line) != shown:
            shown = step.frame, place.line
            text = f"{indent}# {short_place(place)}  {source_text(place, source)}".rstrip()
            lines.append(Line(printable(f"{'':8}{text}"), place_refs((place,))[0] if place.line > 0 else ""))
        text = f"{indent}{done.offset:>4} {step_text(record, step)}"
        lines.append(Line(printable(f"{number:>6}  {text}".rstrip()),
                          ref(stage, number, name), step_origins(step, done, depth[step.frame])))
    return Listing(f"{stage} {name}".strip(), "text", tuple(lines))


def step_origins(step: Step, done: StepInstruction, depth: int) -> tuple[str, ...]:
    """What a step is derived from: the instruction of the compiled function, and the line."""
    own = (ref("bytecode", done.offset),) if depth == 0 else ()
    return (*own, *(place_refs((done.location,)) if done.location is not None else ()))


def step_text(record: Steps, step: Step) -> str:
    """A step in one line: the instruction, and what it changed."""
    done = record.instructions[step.instruction]
    return f"{f'{done.opname} {done.argument}':<{WIDTH}}  {_did(record, step)}".rstrip()


def _did(record: Steps, step: Step) -> str:
    """What a step changed."""
    values = record.values
    parts = [f"pops {step.popped}"] if step.popped else []
    parts += [f"pushes {' | '.join(values[index] for index in step.pushed)}"] if step.pushed else []
    parts += [f"{name} = {values[index]}" if index != DELETED else f"del {name}" for name, index in step.variables]
    parts += [f"node {name}" for name in step.nodes]
    parts += [f"guard {text}" for text in step.guards]
    parts += [f"!! {step.raised}"] if step.raised else []
    return "; ".join(parts)


def render_state(record: Steps, name: str, number: int) -> Listing:
    """What the tracer knew before a step: frames, innermost first, with stack and variables; the graph, the guards.

    Raises IndexError where there is no such step.
    """
    state, done = state_before(record, number), record.instructions[record.steps[number].instruction]
    head = printable(f"# before step {number} of {len(record.steps) - 1}: {done.opname} {done.argument}".rstrip())
    lines = [Line(head, state_ref(name, number)),
             Line(printable(f"# it {_did(record, record.steps[number]) or 'changes nothing'}"))]
    for frame in reversed(state.frames):
        lines += _frame(record, frame, name)
    lines += [Line(""), Line(f"graph: {plural(len(state.nodes), 'node')}")]
    lines += [Line(printable(f"  {node}"), ref("capture", node)) for node in state.nodes]
    lines += [Line(""), Line(f"guards: {len(state.guards)}")]
    lines += [Line(printable(f"  {text}")) for text in state.guards]
    return Listing(f"steps {name}.{number}", "text", tuple(lines))


def state_ref(name: str, number: int | str) -> Ref:
    """The reference to what the tracer knew before a step of the artifact `name`."""
    return ref(STATE, number, f"{name}.{number}")


def _frame(record: Steps, frame: FrameState, name: str) -> list[Line]:
    done = record.instructions[record.steps[frame.step].instruction]
    head = f"{frame.function}  {short_place(done.location)}  step {frame.step}"
    lines = [Line(""), Line(printable(head), ref("steps", frame.step, name)), Line("  stack")]
    lines += [Line(printable(f"    {place:>2} {text}")) for place, text in reversed(list(enumerate(frame.stack)))]
    lines += [Line("  variables")]
    lines += [Line(printable(f"    {variable} = {text}")) for variable, text in frame.variables.items()]
    return lines
