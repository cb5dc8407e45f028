"""Listings of the stages that are lists or trees: frame, breaks, guards, fusion, schedule, run time, decisions."""
from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

from .break_costs import BreakCost
from .break_edits import edit_of
from .guard_costs import guards_cost
from .listing import Line, Listing, SourceText, place_refs, plural, printable, short_place, source_ref
from .records import (
    Absent,
    Break,
    Breaks,
    Decision,
    Frame,
    Fusion,
    FusionCandidate,
    Guard,
    Guards,
    Location,
    LoopSchedule,
    Option,
    Recompile,
    Runtime,
    SavedInputs,
    Schedule,
    Symbol,
    ref,
    split_ref,
)
from .render_graph import source_text, tensor_text
from .rounding import rounded

LONG_CHECK = 100  # characters
TRACED_SHOWN = 30  # of the functions that tracing spent its time in
OTHERS_SHOWN = 4  # of the other guards that failed, of a recompilation


def render_frame(record: Frame, stage: str, name: str, source: SourceText) -> Listing:
    """The function, its arguments and who called it."""
    lines = [
        Line(printable(f"{record.function}  ({record.file}:{record.line})"), source_ref(record.file, record.line)),
        Line(printable(f"status: {record.status}{': ' + record.reason if record.reason else ''}")),
    ]
    if record.isolated:
        lines.append(Line("also compiled for another call of torch.compile; the two share nothing"))
    if record.module:
        lines.append(Line(printable(f"module: {record.module}")))
    none = "no arguments" if record.arguments_known else "arguments were not recorded"
    lines.append(Line("arguments:" if record.arguments else none))
    for argument in record.arguments:
        text = tensor_text(argument.tensor) if argument.tensor else argument.value
        lines.append(Line(printable(f"  {argument.name}: {argument.type}{'  ' + text if text else ''}"),
                          ref(stage, argument.name, name)))
    lines += [Line("called from:")] if record.stack else []
    for place in reversed(record.stack):
        text = source_text(place, source)
        lines.append(Line(printable(f"  {short_place(place)} in {place.function}{': ' + text if text else ''}"),
                          source_ref(place.file, place.line)))
    lines += [Line("tracing spent its time in (own seconds, with what it calls, calls):")] if record.traced else []
    for item in record.traced[:TRACED_SHOWN]:
        text = f"  {item.own_seconds:8.4f} {item.seconds:8.4f} {item.calls:5}  {item.function}  "
        lines.append(Line(printable(text + short_place(Location(item.file, item.line))),
                          source_ref(item.file, item.line)))
    return Listing(f"frame {record.function}", "text", tuple(lines))


def render_breaks(record: Breaks, stage: str, name: str, source: SourceText) -> Listing:
    """Each graph break: where, why, and what to change."""
    lines: list[Line] = []
    for found in record.breaks:
        lines += [*break_lines(found, source, ref(stage, found.id, name)), Line("")]
    return Listing("graph breaks", "text", tuple(lines[:-1]) or (Line("no graph breaks"),))


def break_lines(found: Break, source: SourceText, item: str = "", cost: BreakCost | None = None) -> list[Line]:
    """One graph break: the source line with the expression marked, the reason, the hint, the cost.

    Without a `cost`, what the interpreter saw: the instruction, the value stack, the resume function.
    """
    origins = (*found.origins, *place_refs((*found.stack, found.location)))
    code = found.source or source_text(found.location, source)
    function = f" in {found.location.function}" if found.location.function else ""
    lines = [f"{short_place(found.location)}{function}", f"      {code}"]
    marked = _marked(found, code)
    lines += [f"      {marked}"] if marked else []
    lines += [f"  why: {found.message}  [{found.code}]"]
    lines += [f"  change: {found.hint}"] if found.hint else []
    if cost is not None:
        lines.append(f"  cost: {cost_text(found, cost)}")
    else:
        lines += [f"  at: {found.instruction}"] if found.instruction else []
        lines += [f"  on the stack: {', '.join(found.on_stack)}"] if found.on_stack else []
        lines.append(f"  continues in: {found.resume}" if found.resume else "  the whole frame runs in eager")
    if len(found.stack) > 1:
        others = [place for place in reversed(found.stack) if place != found.location]
        lines += [f"  called from: {short_place(place)} in {place.function}" for place in others[:6]]
    return [Line(printable(text), item, origins) for text in lines]


def edit_lines(found: Break, source: SourceText) -> list[Line]:
    """The change as an edit of the program's lines; none where no rule makes one."""
    edit, text = edit_of(found, source), source(found.location.file)
    if edit is None or text is None:
        return []
    return [Line(printable(line)) for line in (f"  edit ({edit.why}):", *(f"    {part}" for part in edit.diff(text)))]


def _marked(found: Break, code: str) -> str:
    """Carets under the expression; "" where it is the whole line or spans several lines."""
    text, place = found.expression, found.location
    start = code.find(text) if text and place.line == place.end_line else -1
    return f"{' ' * start}{'^' * len(text)}" if start >= 0 and text != code else ""


def cost_text(found: Break, cost: BreakCost) -> str:
    """What a break cost, as one sentence."""
    if cost.uncompiled and not (cost.graphs or cost.passes):
        return f"not compiled: {cost.uncompiled}; {cost.seconds:.2f} s of tracing lost"
    parts = [plural(cost.graphs, "extra graph") if cost.graphs else "no extra graph"]
    if cost.unfused:
        parts.append(f"up to {plural(cost.unfused, 'lost fusion')}")
    parts.append(f"{cost.seconds:.2f} s more compile time")
    return ", ".join(parts) + (f"; reached {plural(cost.passes, 'time')}" if cost.passes else "")


def render_guards(record: Guards, stage: str, name: str, source: SourceText) -> Listing:
    """The guards as a tree: each below the guard of the object that it is reached through. Implicit guards, which only
    check container types, are counted at the end."""
    children: dict[str, list[Guard]] = defaultdict(list)
    shown = [guard for guard in record.guards if not guard.implicit]
    known = {guard.id for guard in shown}
    above = {guard.id: guard.parent for guard in record.guards}
    for guard in shown:
        parent, passed = guard.parent, set[str]()
        while parent in above and parent not in known and parent not in passed:
            passed.add(parent)
            parent = above[parent]
        children[parent if parent in known else ""].append(guard)
    cost = f"; {guards_cost(record)}" if record.check_ns else ""
    lines: list[Line] = [Line(f"# {len(record.guards)} guards{cost}")]
    todo = [(0, guard) for guard in reversed(children[""])]
    seen: set[str] = set()
    while todo:
        depth, guard = todo.pop()
        if guard.id in seen:
            continue
        seen.add(guard.id)
        origins = (*guard.origins, *(place_refs((guard.location,)) if guard.location else ()))
        lines.append(Line(printable("  " * depth + guard_text(guard)), ref(stage, guard.id, name), origins))
        todo += [(depth + 1, child) for child in reversed(children[guard.id])]
    implicit = len(record.guards) - len(shown)
    lines += [Line(f"# {implicit} more check container types (--json lists them)")] if implicit else []
    for symbol in record.symbols:
        lines += symbol_lines(symbol, source)
    return Listing("guards", "python", tuple(lines))


_NO_OBJECT = "torch's settings, or another condition that is on no object"


def failed_objects(record: Guards, runtime: Runtime | None) -> list[tuple[str, int]]:
    """The objects whose guards failed most often, as the program names them, with how often."""
    names = {guard.source: guard.object or _NO_OBJECT for guard in reversed(record.guards)}
    failed = runtime.failed if runtime is not None else {}
    return sorted(((names.get(source, source), times) for source, times in failed.items()), key=lambda e: -e[1])


def failed_text(failed: Sequence[tuple[str, int]], most: int = 3) -> str:
    """`failing most often: mode (7 times), x (2 times)`; "" where none is known."""
    named = ", ".join(f"{name} ({plural(times, 'time')})" for name, times in failed[:most])
    return f"failing most often: {named}" if named else ""


def symbol_lines(symbol: Symbol, source: SourceText) -> list[Line]:
    """The history of one symbol: what it represents, why it is dynamic, and each line that constrained it."""
    why = f"; dynamic because {symbol.why}" if symbol.why else ""
    head = f"# {symbol.name} represents {symbol.subject}, {symbol.value} at this call{why}"
    texts: list[tuple[str, tuple[str, ...]]] = [(head, ())]
    for event in symbol.events:
        where = f"  {_place_text(event.location, source)}" if event.location else ""
        texts.append((f"#   {event.text}{where}", place_refs((event.location,)) if event.location else ()))
    if not symbol.events:
        texts.append(("#   no line of the function constrains it", ()))
    return [Line(printable(text), "", origins) for text, origins in texts]


_IN_FULL = ("SHAPE_ENV", "NO_ALIASING")  # their expected value is only "true"


def guard_text(guard: Guard) -> str:
    """One guard on one line: the kind, the check, and as a comment the object, the line that needs it, and what it
    costs where it is checked alone.

    A check that is too long for a line is shown as the value that its source was specialized to.
    """
    check = guard.text or guard.code or guard.source
    if len(check) > LONG_CHECK and guard.expected and guard.kind not in _IN_FULL:
        check = f"{guard.object}: {guard.expected}" if guard.object else guard.expected
    subject = "" if guard.expected and guard.expected in check else guard.subject
    cost = f"{guard.check_ns:,} ns" if guard.check_ns is not None and guard.together == 1 else ""
    why = "; ".join(part for part in (subject, short_place(guard.location), cost) if part)
    return f"{guard.kind:<14} {check}" + (f"  # {why}" if why else "")


def render_recompile(record: Recompile, stage: str, name: str, source: SourceText) -> Listing:
    """Why a function was compiled again."""
    return Listing("recompile", "text", tuple(recompile_lines(record, source)))


def recompile_lines(
    record: Recompile, source: SourceText, function: str = "", owner: str = "", seconds: float | None = None
) -> list[Line]:
    """One recompilation: what changed, the guard, the call, the line that needs the guard, how to avoid it."""
    place = place_refs((record.location,)) if record.location else ()
    took = f", which took {seconds:.2f} s" if seconds is not None else ""
    comma = "," if ", " in function else ""
    head = f"{function}{comma} was compiled again{took}" if function else "compiled again"
    texts = [f"{head}  ({owner})" if owner else head]
    texts += [rounded(f"  because: {_cut(record.subject or record.guard)}{_change(record.expected, record.actual)}")]
    texts += [rounded(f"  and: {other}") for other in record.other_failures[:OTHERS_SHOWN]]
    hidden = len(record.other_failures) - OTHERS_SHOWN
    texts += [f"  and: {hidden} more"] if hidden > 0 else []
    texts += [f"  called from: {_place_text(record.call_site, source)}"] if record.call_site else []
    texts += [f"  needed by: {_place_text(record.location, source)}"] if record.location else []
    texts += [f"  to avoid: {record.hint}"] if record.hint else []
    nearest = f", the nearest of {record.entries}" if record.entries > 1 else ""
    texts += [f"  guard: {record.guard}  (of {record.compared_with}{nearest})"]
    return [Line(printable(text), "", place) for text in texts]


def _change(expected: object, actual: object) -> str:
    """What changed; "" is unknown."""
    if expected == "true":
        return f" is no longer true: {actual}" if actual != "" else " is no longer true"
    if actual == "":
        return f": was {expected}; its new value was not recorded" if expected != "" else " changed"
    return f": was {expected}, is now {actual}"


def _cut(text: str) -> str:
    """The beginning of a long condition on sizes; the line with the guard has all of it."""
    return text if len(text) <= 2 * LONG_CHECK else f"{text[: 2 * LONG_CHECK]}…"


def change_text(recompile: dict[str, Any]) -> str:
    """What changed, in one line, of the summary's document of a recompilation."""
    subject = _cut(recompile["subject"] or recompile["guard"])
    return rounded(f"{subject}{_change(recompile['expected'], recompile['actual'])}")


def _place_text(place: Location, source: SourceText) -> str:
    return f"{short_place(place)}  {source_text(place, source)}"


def render_fusion(record: Fusion, stage: str, name: str, source: SourceText) -> Listing:
    """The fusion candidates, verdict first, so that refusals stand out without colour."""
    lines = [Line(f"# {sum(c.fused for c in record.candidates)} of {len(record.candidates)} pairs fused")]
    for candidate in record.candidates:
        lines += candidate_lines(candidate, ref(stage, candidate.id, name))
    return Listing("fusion", "text", tuple(lines))


def candidate_lines(candidate: FusionCandidate, item: str = "") -> list[Line]:
    """One candidate pair."""
    saved = f", would save {candidate.bytes_saved:,} bytes" if candidate.bytes_saved and not candidate.fused else ""
    origins = (f"loop_ir:{candidate.first}", f"loop_ir:{candidate.second}")
    verdict = "fused    " if candidate.fused else "not fused"
    texts = [f"{verdict} {candidate.first} + {candidate.second}  ({candidate.kind}{saved}): {candidate.why}"]
    texts += [f"          enabled by: {candidate.enabled_by}"] if candidate.enabled_by and not candidate.fused else []
    return [Line(printable(text), item, origins) for text in texts]


def render_schedule(record: Schedule, stage: str, name: str, source: SourceText) -> Listing:
    """The groups in execution order, then the lifetime of each buffer."""
    peak = f", peak {record.peak_bytes:,} bytes" if record.peak_bytes else ""
    lines = [Line(f"# {len(record.groups)} groups{peak}")]
    for group in record.groups:
        item = ref(stage, group.id, name)
        origins = (*group.origins, *(f"loop_ir:{member}" for member in group.members if group.kind == "loops"))
        costs = [f"{group.bytes:,} bytes"] if group.bytes else []
        costs += [f"{group.flops:,} flops"] if group.flops else []
        texts = [f"{group.id}: {group.kind} {group.kernel}" + (f"  ({', '.join(costs)})" if costs else "")]
        texts += [f"    members: {', '.join(group.members)}"] if group.members else [
            f"    computes {', '.join(split_ref(origin)[2] for origin in group.origins)}"]
        texts += [f"    loops: {' '.join(group.loop_order)}"] if group.loop_order else []
        if group.members:  # else of stock, which does not tell
            inner = f"; not materialized: {', '.join(group.internal)}" if group.internal else ""
            texts.append(f"    reads {', '.join(group.reads) or 'nothing'}; "
                         f"writes {', '.join(group.writes) or 'nothing'}{inner}")
        if group.schedule is not None:
            texts += [f"    {name}: {chosen}" for name, chosen in loop_choices(group.schedule).items()]
            texts += [f"      {line}" for line in group.schedule.nest]
        lines += [Line(printable(text), item, origins) for text in texts]
    lines += [Line(""), Line("# buffers")] if record.buffers else []
    for buffer in record.buffers:
        size = f"{buffer.bytes:,} bytes" if buffer.bytes is not None else "size known at run time"
        reuse = f", reuses the memory of {buffer.reuses}" if buffer.reuses else ""
        lines.append(Line(printable(f"{buffer.id}: {buffer.role}, {size}, {buffer.first} to {buffer.last}{reuse}"),
                          ref(stage, buffer.id, name)))
    return Listing("schedule", "text", tuple(lines))


def loop_choices(schedule: LoopSchedule) -> dict[str, str]:
    """What was chosen for the loops of a kernel, by kind."""
    chosen = {
        "threads share": schedule.threads, "vectors along": schedule.vectors, "tile": (schedule.tile,),
        "pieces": schedule.pieces, "accumulators": schedule.accumulators, "stores": schedule.stores,
        "conversions": schedule.conversions, "prefetch": schedule.prefetch, "scatter": (schedule.scatter,),
        "scratch": schedule.scratch,
    }
    return {name: "; ".join(found) for name, found in chosen.items() if any(found)}


def render_runtime(record: Runtime, stage: str, name: str, source: SourceText) -> Listing:
    """Calls and guard failures."""
    lines = [Line(f"{plural(record.calls, 'call')}, {plural(record.guard_failures, 'guard failure')}")]
    return Listing("runtime", "text", tuple(lines))


def render_inputs(record: SavedInputs, stage: str, name: str, source: SourceText) -> Listing:
    """The saved inputs."""
    lines = [Line(printable(f"# {record.file or 'metadata only'}{': ' + record.note if record.note else ''}"))]
    for item in record.inputs:
        text = tensor_text(item.meta) if item.meta else repr(item.value)
        alias = f", shares memory with {item.alias_of}" if item.alias_of else ""
        kept = ", values saved" if item.tensor else ""
        lines.append(Line(printable(f"{item.name}: {text}{kept}{alias}"), ref(stage, item.name, name)))
    return Listing("inputs", "text", tuple(lines))


def render_decisions(decisions: Iterable[tuple[str, Decision]], with_compile: bool = True) -> Listing:
    """Decisions, grouped by kind."""
    groups: dict[str, list[tuple[str, Decision]]] = defaultdict(list)
    for owner, decision in decisions:
        groups[decision.kind].append((owner, decision))
    lines: list[Line] = []
    for kind, members in groups.items():
        lines.append(Line(printable(f"# {kind}: {len(members)}")))
        for owner, decision in members:
            prefix = f"{owner}  " if with_compile else ""
            forced = " (forced)" if decision.forced else ""
            text = f"{prefix}{decision.subject}: {decision.chosen}{forced}  {_others(decision)}  {decision.why}"
            lines.append(Line(printable(text.rstrip()), ref("decisions", decision.id), _decision_origins(decision)))
    return Listing("decisions", "text", tuple(lines) or (Line("no decisions"),))


def decision_lines(decision: Decision) -> list[Line]:
    """One decision in full: the options with their scores, and the reason."""
    texts = [f"{decision.id}", f"  chosen: {decision.chosen}{' (forced by an override)' if decision.forced else ''}",
             f"  why: {decision.why}"]
    for option in decision.options:
        score = _score(option)
        mark = "*" if option.name == decision.chosen else " "
        texts.append(f"  {mark} {option.name}{score}{'  ' + option.why if option.why else ''}"
                     + ("  (default)" if option.name == decision.default else ""))
    texts += [f"  at: {decision.location.file}:{decision.location.line}"] if decision.location else []
    return [Line(printable(text), ref("decisions", decision.id), _decision_origins(decision)) for text in texts]


def _score(option: Option) -> str:
    """A score as it is read: "77.5 us (lower is better)"."""
    if option.score is None:
        return ""
    direction = f" ({option.better} is better)" if option.better else ""
    number = f"{option.score:,.10g} {option.unit}" if option.unit else f"score {option.score:g}"
    return f"  {number}{direction}"


def render_absents(absents: Sequence[Absent]) -> list[Line]:
    """Stages that were not produced, grouped by reason."""
    stages: dict[str, list[str]] = defaultdict(list)
    for absent in absents:
        stages[absent.why].append(absent.stage)
    return [Line(printable(f"absent {', '.join(names)}: {why}")) for why, names in stages.items()]


def _others(decision: Decision) -> str:
    names = [option.name for option in decision.options if option.name != decision.chosen]
    return f"[not {', '.join(names)}]" if names else ""


def _decision_origins(decision: Decision) -> tuple[str, ...]:
    return (*decision.origins, *(place_refs((decision.location,)) if decision.location else ()))
