"""What the engine chose: fusion, decisions, passes, memory, time."""
from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from functools import partial

from ...artifacts.decision_kinds import BEFORE_GRAPH
from ...artifacts.decision_words import ABOUT
from ...artifacts.listing import plural, short_place
from ...artifacts.measured import kept
from ...artifacts.records import (
    BufferPlan,
    Decision,
    Frame,
    Fusion,
    FusionCandidate,
    Location,
    Pass,
    Ref,
    Schedule,
    ScheduledGroup,
    ref,
)
from ...artifacts.render_graph import pass_text, source_text
from ...artifacts.render_lists import candidate_lines, decision_lines, loop_choices
from ...artifacts.render_partition import bytes_text
from ...artifacts.stages import TIMINGS
from ..acts import flip, flips
from ..session import SOURCE, Session, Target
from .answer import MOST, Answer, Details, fixed
from .measured import measured_rows

BAR = 20  # characters of the longest bar
LEAST_SHARE = 0.01  # of the time of tracing, that a function needs to be shown


def bar(part: float, whole: float) -> str:
    """A bar of at most BAR characters, at least one for anything that is there."""
    length = round(BAR * part / whole) if whole > 0 else 0
    return "#" * max(length, 1 if part > 0 else 0)


# ---- fusion ----
def fusion(session: Session, compile_id: str) -> list[Answer]:
    """The kernels with what was fused into each; below them the pairs that were refused, and why."""
    rows: list[Answer] = []
    for info in session.compiles_of(compile_id):
        for artifact in session.recording.artifacts(info.id, "schedule"):
            schedule = session.recording.find(Schedule, info.id, "schedule", artifact.name)
            record = session.recording.find(Fusion, info.id, "fusion", artifact.name)
            if schedule is None:
                continue
            candidates = record.candidates if record is not None else ()
            part = f" {artifact.name}" if artifact.name else ""
            target = Target(info.id, "schedule", artifact.name)
            fused = f"{sum(c.fused for c in candidates)} of {plural(len(candidates), 'pair')} fused"
            if record is None:  # stock's trace
                fused = "which pairs could have been fused is not recorded"
            title = f"{info.id}{part}  {plural(len(schedule.groups), 'group')}, {fused}"
            rows.append(Answer(title, fixed(*_picture(schedule)), (target, 0)))
            for group in schedule.groups:
                rows += _group_rows(session, group, candidates, target)
    return rows


def _picture(schedule: Schedule) -> list[str]:
    """The groups as a graph: each with the groups whose results it reads."""
    maker: dict[str, str] = {}
    lines = []
    for group in schedule.groups:
        sources = dict.fromkeys(maker[name] for name in group.reads if name in maker)
        lines.append(f"{group.kernel if group.kind == 'extern' else group.id}"
                     + (f"  <- {', '.join(sources)}" if sources else ""))
        lines += [f"    {' + '.join(group.members)}"] if len(group.members) > 1 else []
        maker.update(dict.fromkeys(group.writes, group.id))
    return lines


def _kernel_target(session: Session, schedule: Target) -> Target:
    """The source of the kernels of a schedule: the one of its part that is for the machine where it ran."""
    names = session.names(schedule.compile, "kernels")
    part = f"{schedule.name}." if schedule.name else ""
    own = [name for name in names if name.startswith(part)] if part else names
    return Target(schedule.compile, "kernels", own[0]) if own else schedule


def _group_rows(
    session: Session, group: ScheduledGroup, candidates: Sequence[FusionCandidate], target: Target
) -> list[Answer]:
    inside = set(group.members)
    size = f", {group.bytes:,} bytes" if group.bytes is not None else ""
    what = (" + ".join(group.members) if group.kind == "loops" else "") or group.kernel
    title = f"{group.id}  {group.kind}: {what}{size}"
    fused = [c for c in candidates if c.fused and {c.first, c.second} <= inside]
    selector = session.selector(Target(target.compile))
    acts = tuple(flip(c.decision, "separate", selector) for c in fused if c.decision)
    item = ref("schedule", group.id, target.name)
    opens = _kernel_target(session, target) if group.kind == "loops" else target
    rows = [Answer(title, _group(session, group, fused, target.compile, item), (opens, item), 1, acts=acts)]
    for candidate in candidates:
        if not candidate.fused and candidate.first in inside:
            free = candidate.legal and candidate.decision
            hint = f'"{candidate.decision}" = "fuse"' if free else candidate.enabled_by
            acts = (flip(candidate.decision, "fuse", selector),) if free else ()
            opens = Target(target.compile, "fusion", target.name)
            rows.append(Answer(f"not fused with {candidate.second}: {candidate.why}", fixed(*_pair(candidate)),
                               (opens, ref("fusion", candidate.id, target.name)), 2, hint, acts=acts))
    return rows


def _group(
    session: Session, group: ScheduledGroup, fused: Sequence[FusionCandidate], compile_id: str, item: Ref
) -> Details:
    def details() -> Sequence[str]:
        lines = [f"from {short_place(place)}  {source_text(place, session.recording.source)}".rstrip()
                 for place in session.program_places(compile_id, item)]
        if group.reads or group.writes:  # stock's trace does not say
            lines += [f"loops: {' '.join(group.loop_order) or 'one'}"] if group.kind == "loops" else []
            lines += [f"reads {', '.join(group.reads) or 'nothing'}; writes {', '.join(group.writes) or 'nothing'}"]
        lines += [f"never in memory: {', '.join(group.internal)}"] if group.internal else []
        if group.schedule is not None:
            lines += [f"{name}: {chosen}" for name, chosen in loop_choices(group.schedule).items()]
        lines += [text for c in fused for text in _pair(c)]
        return lines

    return details


def _pair(candidate: FusionCandidate) -> list[str]:
    lines = [line.text for line in candidate_lines(candidate)]
    if not candidate.fused and candidate.legal and candidate.decision:
        lines.append(f"to force it: an override file with  \"{candidate.decision}\" = \"fuse\"; x tries it")
    elif not candidate.fused and not candidate.legal:
        lines.append("it is no choice: no override forces it")
    return lines


# ---- decisions ----
def decisions(session: Session, compile_id: str) -> list[Answer]:
    """All decisions, by kind: what was chosen, over what, why."""
    kinds: dict[str, list[tuple[str, Decision]]] = defaultdict(list)
    for owner, decision in session.recording.decisions(compile_id or None):
        kinds[decision.kind].append((owner, decision))
    rows = []
    for kind, members in kinds.items():
        about = ABOUT.get(kind, "")
        chosen = _chosen(d for _, d in members)
        rows.append(Answer(f"{kind:<20} {len(members):5}  {about}".rstrip(), fixed(*chosen)))
        for owner, decision in members:
            others = ", ".join(o.name for o in decision.options if o.name != decision.chosen)
            title = f"{owner}  {decision.subject}: {decision.chosen}" + (f"  [not {others}]" if others else "")
            place = decision.location
            opens = (Target(owner, SOURCE, place.file), place.line - 1) if place else (Target(owner, "decisions"), 0)
            rows.append(Answer(title + (" (forced)" if decision.forced else ""), _decision(decision), opens, 1,
                               _override(decision), acts=flips(decision, session.selector(Target(owner)))))
    return rows


def _chosen(members: Iterable[Decision]) -> list[str]:
    counts: dict[str, int] = defaultdict(int)
    for decision in members:
        counts[decision.chosen] += 1
    return [f"{number:5}  {option}" for option, number in sorted(counts.items(), key=lambda e: -e[1])]


def _override(decision: Decision) -> str:
    other = next((option.name for option in decision.options if option.name != decision.chosen), "")
    return f'"{decision.id}" = "{other}"' if other else ""


def _decision(decision: Decision) -> Details:
    lines = [line.text for line in decision_lines(decision)]
    if text := _override(decision):
        tried = "" if decision.kind in BEFORE_GRAPH else " (x tries it)"
        lines += ["", f"to choose otherwise{tried}, in a file for --override:", f"  {text}"]
    return fixed(*lines)


# ---- passes ----
def passes(session: Session, compile_id: str) -> list[Answer]:
    """Each pass that changed a graph, with its rewrites."""
    rows = []
    for info in session.compiles_of(compile_id):
        for artifact in session.recording.artifacts(info.id, "passes"):
            record = session.recording.find(Pass, info.id, "passes", artifact.name)
            if record is None:
                continue
            target = Target(info.id, "passes", artifact.name)
            title = f"{info.id}  {artifact.name}  {pass_text(record)}"
            texts = [f"{m.rule}: {', '.join(m.removed) or 'nothing'} -> {', '.join(m.added) or 'nothing'}"
                     + (f"  ({m.why})" if m.why else "") for m in record.matches]
            rows.append(Answer(title, fixed(*texts), (target, 0)))
            rows += [Answer(text, fixed(), (target, 0), 1) for text in texts]
    return rows


# ---- memory ----
def memory(session: Session, compile_id: str) -> list[Answer]:
    """The bytes that are alive at each group, the peak marked, and the buffers behind them."""
    rows = []
    for info in session.compiles_of(compile_id):
        for artifact in session.recording.artifacts(info.id, "schedule"):
            schedule = session.recording.find(Schedule, info.id, "schedule", artifact.name)
            if schedule is None or not schedule.buffers:
                continue
            target = Target(info.id, "schedule", artifact.name)
            part = f" {artifact.name}" if artifact.name else ""
            own = [b for b in schedule.buffers if b.role not in ("input", "constant")]
            title = f"{info.id}{part}  peak {bytes_text(schedule.peak_bytes)} besides inputs"
            if any(b.bytes is None for b in own):
                title = f"{info.id}{part}  {plural(len(own), 'buffer')}, some of sizes that vary: no peak is known"
            rows.append(Answer(title, partial(_largest, session, own, target), (target, 0)))
            rows += _alive_rows(session, schedule, own, target)
    return rows


def _largest(session: Session, buffers: Sequence[BufferPlan], target: Target, heading: str = "") -> list[str]:
    """The largest buffers, each with the lines whose results it holds; those of sizes that vary come first."""
    ordered = sorted(buffers, key=lambda b: (b.bytes is not None, -(b.bytes or 0)))
    lines = [heading] if heading else []
    for b in ordered[:20]:
        reuse = f", in the memory of {b.reuses}" if b.reuses else ""
        lines.append(f"{bytes_text(b.bytes):>10}  {b.id}  {b.role}, {b.first} to {b.last}{reuse}")
        lines += [f"            from {short_place(place)}  {source_text(place, session.recording.source)}".rstrip()
                  for place in _places(session, b.id, target)[:3]]
    return lines


def _places(session: Session, buffer: str, target: Target) -> list[Location]:
    """The lines whose results a buffer holds: of a loop body, or of the library call that writes it."""
    body = f"loop_ir:{target.name}.{buffer}" if target.name else f"loop_ir:{buffer}"
    return session.program_places(target.compile, body) or session.program_places(
        target.compile, ref("schedule", buffer, target.name))


def _held(schedule: Schedule, own: Sequence[BufferPlan]) -> dict[str, range]:
    """During which groups the memory of each buffer is held: an output's to the end, that of a dead buffer until
    another takes it over."""
    order = {group.id: number for number, group in enumerate(schedule.groups)}
    order = {group.kernel: number for number, group in enumerate(schedule.groups)} | order
    taken = {b.reuses: order.get(b.first, 0) for b in own if b.reuses}
    return {b.id: range(order.get(b.first, 0), len(schedule.groups) if b.role == "output" else taken.get(
        b.id, order.get(b.last, len(order)) + 1)) for b in own}


def _alive_rows(
    session: Session, schedule: Schedule, own: Sequence[BufferPlan], target: Target
) -> list[Answer]:
    held = _held(schedule, own)
    alive = [[b for b in own if number in held[b.id]] for number in range(len(schedule.groups))]
    totals = [None if any(b.bytes is None for b in found) else sum(b.bytes or 0 for b in found) for found in alive]
    all_known = None not in totals
    most = max((total for total in totals if total is not None), default=0)
    rows = []
    for group, found, total in zip(schedule.groups, alive, totals):
        mark = "  <- peak" if all_known and total == most and most else ""
        drawn = bar(total or 0, most) if total is not None else "?"
        heading = f"{plural(len(found), 'buffer')} in memory at {group.id}"
        details = partial(_largest, session, found, target, heading)
        rows.append(Answer(f"{bytes_text(total):>10} {drawn:<{BAR}} {group.id}{mark}", details, (target, 0), 1))
    return rows


# ---- time ----
def time(session: Session, compile_id: str) -> list[Answer]:
    """Where compile time went: by compilation and stage, the longest first."""
    infos = sorted(session.compiles_of(compile_id), key=lambda info: -info.seconds.get("total", 0.0))
    infos = [info for info in infos if info.seconds]
    most = max((info.seconds.get("total", 0.0) for info in infos), default=0.0)
    whole = sum(info.seconds.get("total", 0.0) for info in infos)
    rows: list[Answer] = []
    for number, info in enumerate(infos):
        if session.is_large and len(rows) > MOST:
            left = sum(info.seconds.get("total", 0.0) for info in infos[number:])
            text = f"{left:7.3f} s in {plural(len(infos) - number, 'more compilation')}, none of which took longer"
            rows.append(Answer(text, fixed(text.strip())))
            break
        total = info.seconds.get("total", 0.0)
        place = f"{info.file.rpartition('/')[2]}:{info.line}"
        rows.append(Answer(f"{total:7.3f} s {bar(total, most):<{BAR}} {info.id} {session.name_of(info)} {place}",
                           fixed(f"{info.id}: {total:.3f} s of {whole:.3f} s of compiling"), (Target(info.id), 0)))
        spent = {stage: info.seconds.get(stage, 0.0) for stage in (*TIMINGS, *info.seconds) if stage != "total"}
        rest = total - sum(spent[stage] for stage in TIMINGS if stage in spent)
        for stage, seconds in sorted({**spent, "the rest": max(rest, 0.0)}.items(), key=lambda e: -e[1]):
            if seconds >= 0.0005:
                rows.append(Answer(f"{seconds:7.3f} s {bar(seconds, most):<{BAR}} {stage}",
                                   fixed(f"{stage}: {seconds:.3f} s of {total:.3f} s"), (Target(info.id), 0), 1))
                rows += _traced(session, info.id, seconds) if stage == "capture" else []
    known = kept(session.recording.path)
    return rows + [row for info in infos for row in measured_rows(session, info.id, known.get(info.id))]


def _traced(session: Session, compile_id: str, whole: float) -> list[Answer]:
    """The functions that tracing spent its time in, those that matter."""
    frame = session.recording.find(Frame, compile_id, "frame")
    kept = session.recording.sources()
    rows = []
    for item in frame.traced if frame is not None else ():
        if item.own_seconds < whole * LEAST_SHARE:
            break
        place = f"{item.file.rpartition('/')[2]}:{item.line}"
        own = item.own_seconds
        details = fixed(f"tracing {item.function} ({place}): {own:.3f} s of its own, {item.seconds:.3f} s with "
                        f"what it calls, in {plural(item.calls, 'call')}", f"of {whole:.3f} s of tracing")
        opens = (Target(compile_id, SOURCE, item.file), item.line - 1) if item.file in kept else None
        rows.append(Answer(f"{own:7.3f} s {bar(own, whole):<{BAR}} {item.function} {place}", details, opens, 2))
    return rows
