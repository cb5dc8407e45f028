"""The partition of a training graph as a table: what is saved for the backward, and what is recomputed."""
from __future__ import annotations

from .listing import Line, Listing, SourceText, place_refs, plural, printable, short_place
from .records import Partition, RecomputedValue, SavedValue, ref
from .render_graph import source_text, value_text

UNITS = ((1 << 30, "GB"), (1 << 20, "MB"), (1 << 10, "kB"))
ANYWAY = ("input", "output")


def render_partition(record: Partition, stage: str, name: str, source: SourceText) -> Listing:
    """Totals, then saved values (largest first; inputs and outputs, alive anyway, last), then recomputed ones."""
    held = [s for s in record.saved if s.kind not in ANYWAY]
    alive = [s for s in record.saved if s.kind in ANYWAY]
    lines = [Line(text) for text in _totals(record)]
    lines += [Line(""), Line(f"# saved: {plural(len(held), 'value')}")]
    lines += [line for s in _largest_first(held) for line in _saved_lines(s, stage, name, source)]
    if alive:
        lines += [Line(""), Line(f"# alive anyway: {plural(len(alive), 'input or output')}")]
        readers = {s.id: s.used_by and f"read by {s.used_by}" for s in alive}
        lines += [_row(s, stage, name, readers[s.id]) for s in _largest_first(alive)]
    if record.recomputed:
        lines += [Line(""), Line(f"# recomputed in the backward: {plural(len(record.recomputed), 'value')}")]
        lines += [_row(r, stage, name, r.why) for r in _largest_first(record.recomputed)]
    return Listing("partition", "text", tuple(lines))


def bytes_text(count: int | None) -> str:
    """A number of bytes as text; "varies" if a size is dynamic."""
    if count is None:
        return "varies"
    return next((f"{count / size:.1f} {unit}" for size, unit in UNITS if count >= size), f"{count} B")


def _totals(record: Partition) -> list[str]:
    known = record.predicted
    texts = []
    if "eager_saved" in known:
        saved, eager = bytes_text(known.get("saved")), bytes_text(known["eager_saved"])
        texts.append(f"# {saved} saved for the backward; eager saves {eager}")
    peaks = [f"{half} {bytes_text(known[half])}" for half in ("forward", "backward", "eager") if half in known]
    texts += [f"# predicted peak, inputs excluded: {', '.join(peaks)}"] if peaks else []
    texts += [f"# memory budget {record.budget:g}"] if record.budget < 1 else []
    return texts


def _largest_first(values: list[SavedValue] | tuple[RecomputedValue, ...]) -> list[SavedValue | RecomputedValue]:
    return sorted(values, key=lambda v: -(v.bytes if v.bytes is not None else 1 << 62))


def _row(value: SavedValue | RecomputedValue, stage: str, name: str, note: str) -> Line:
    typed = value_text(value.value) if isinstance(value, SavedValue) else ""
    text = f"{bytes_text(value.bytes):>9}  {value.id:<24} {typed:<24} {note}".rstrip()
    return Line(printable(text), ref(stage, value.id, name), _origins(value))


def _saved_lines(value: SavedValue | RecomputedValue, stage: str, name: str, source: SourceText) -> list[Line]:
    """The row of a saved value, then the lines of the program that computed it and that need it."""
    lines = [_row(value, stage, name, value.why)]
    if not isinstance(value, SavedValue):
        return lines
    texts = []
    if value.location:
        texts.append(f"from      {short_place(value.location)}  {source_text(value.location, source)}".rstrip())
    if value.used_by:
        place = f": {short_place(value.used_at)}  {source_text(value.used_at, source)}" if value.used_at else ""
        texts.append(f"used by   {value.used_by}, derivative of{place}" if place else f"used by   {value.used_by}")
    return lines + [Line(printable(f"{'':11}{t}".rstrip()), ref(stage, value.id, name), _origins(value)) for t in texts]


def _origins(value: SavedValue | RecomputedValue) -> tuple[str, ...]:
    return (*value.origins, *(place_refs((value.location,)) if value.location else ()))
