"""A recording as one HTML file: summary, failures, program, graph breaks, recompilations, and of each compilation its
graphs, fusions and kernels. A click on a line lights what it comes from and what came of it.

The file loads nothing, and its content security policy lets nothing but its own script run. Every recorded text is
escaped. What does not fit is left out, and the file says what.
"""
from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, field
from html import escape
from typing import Any

from .html_page import SCRIPT, STYLE
from .listing import Line, Listing, printable, source_listing, source_ref
from .recording import ArtifactInfo, CompileInfo, Recording, RecordingError
from .records import Ref, split_ref
from .render import listing
from .render_failures import failure_lines
from .render_lists import break_lines, recompile_lines
from .render_summary import render_compile, render_summary
from .resumed import display_name, resumed
from .stages import TIMINGS, order_of
from .summary import ranked_breaks, recompiles, summary

MEGABYTES = 20  # of HTML, by default
LINES = 3000  # of one artifact
ITEMS = 20_000  # of an artifact that is not even read
ROWS = 2000  # of a table
STAGES = ("capture", "joint", "forward", "backward", "fusion", "loop_ir", "kernels", "wrapper", "guards", "breaks")
"""What is shown of a compilation; most is `ptdebug show`."""


@dataclass
class Report:
    """A report that is being made: its parts, and what was left out."""

    recording: Recording
    limit: int
    compiles: list[CompileInfo]
    size: int = 0
    parts: list[str] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)
    _numbers: dict[tuple[str, Ref], int] = field(default_factory=dict)

    @property
    def full(self) -> bool:
        """Whether nothing more fits."""
        return self.size >= self.limit

    def add(self, html: str) -> None:
        """Append finished HTML."""
        self.parts.append(html)
        self.size += len(html)

    def number(self, compile_id: str, item: Ref) -> int:
        """A short number for an item; the program's lines are the same in all compilations."""
        owner = "" if item.startswith("source:") else compile_id
        return self._numbers.setdefault((owner, item), len(self._numbers) + 1)

    def lines(self, lines: Iterable[Line], compile_id: str = "", numbers: bool = True) -> str:
        """Lines as HTML, each with the numbers of its item and of its origins."""
        made = []
        for count, line in enumerate(lines):
            if count >= LINES:
                break
            item = ""
            if line.ref and not line.ref.startswith("open#"):
                item = f' data-r="{self.number(compile_id, line.ref)}"'
            if line.origins:
                item += f' data-o="{" ".join(str(self.number(compile_id, o)) for o in line.origins)}"'
            text = escape(printable(line.text)) or " "
            made.append(f"<i{item}>{self._linked(line.ref, text)}</i>")
        return f'<pre class="{"n" if numbers else "p"}">{"".join(made)}</pre>'

    def _linked(self, item: Ref, text: str) -> str:
        """The text, as a link where the line of an overview leads to a compilation."""
        if not item.startswith("open#"):
            return text
        compile_id = item.removeprefix("open#").partition(":")[0]
        return f'<a href="#{anchor(compile_id)}">{text}</a>'


def anchor(compile_id: str) -> str:
    """The id of a compilation's section."""
    return "c" + "".join(c if c.isalnum() else "-" for c in compile_id)


def html_report(recording: Recording, compile_id: str = "", megabytes: float = MEGABYTES) -> tuple[str, list[str]]:
    """The HTML, and what was left out of it."""
    document = summary(recording)
    infos = [info for info in recording.compiles() if compile_id in ("", info.id)]
    report = Report(recording, int(megabytes * 1_000_000), infos)
    names = resumed(recording)
    _head(report, document)
    _breaks(report, compile_id)
    _recompilations(report, compile_id)
    _times(report, document, names)
    _program(report)
    done = 0
    for info in infos:
        if report.full:  # the last one that is begun may exceed the limit by an artifact
            break
        _compilation(report, info, display_name(info, names))
        done += 1
    if done < len(infos):
        report.left_out.insert(0, f"{len(infos) - done:,} of {len(infos):,} compilations: the report is limited to "
                                  f"{megabytes:g} MB (--limit)")
    return _page(report), report.left_out


# ---- sections -------------------------------------------------------------------------------------------------------
def _head(report: Report, document: dict[str, Any]) -> None:
    report.add('<section id="summary"><h2>Summary</h2>')
    report.add(report.lines(render_summary(document).lines, numbers=False))
    if document["failures"]:
        report.add('</section><section id="failures"><h2>What failed</h2>')
        report.add(report.lines(failure_lines(report.recording.name, document["failures"])[1:], numbers=False))
    report.add("</section>")


def _breaks(report: Report, compile_id: str) -> None:
    found = ranked_breaks(report.recording, compile_id or None)
    report.add(f'<section id="breaks"><h2>Graph breaks ({len(found):,})</h2>')
    shown = 0
    for (owner, entry, times), cost in found[:ROWS]:
        if report.full:
            break
        place = source_ref(entry.location.file, entry.location.line)
        head, *rest = break_lines(entry, report.recording.source, cost=cost)
        often = f", in {times} compilations" if times > 1 else ""
        lines = [f"{head.text}  ({owner}{often})", *(line.text for line in rest)]
        report.add(report.lines([Line(text, "", (place,)) for text in lines], owner, numbers=False))
        shown += 1
    if shown < len(found):
        report.left_out.append(f"{len(found) - shown:,} of {len(found):,} graph breaks")
    report.add("</section>" if found else "<p>none</p></section>")


def _recompilations(report: Report, compile_id: str) -> None:
    found = recompiles(report.recording, compile_id or None)
    infos = {info.id: info for info in report.recording.compiles()}
    report.add(f'<section id="recompilations"><h2>Recompilations ({len(found):,})</h2>')
    shown = 0
    for owner, record in found[:ROWS]:
        if report.full or owner not in infos:
            break
        seconds = infos[owner].seconds.get("total", 0.0)
        texts = recompile_lines(record, report.recording.source, infos[owner].function, owner, seconds)
        report.add(report.lines(texts, owner, numbers=False))
        shown += 1
    if shown < len(found):
        report.left_out.append(f"{len(found) - shown:,} of {len(found):,} recompilations")
    report.add("</section>" if found else "<p>none</p></section>")


def _times(report: Report, document: dict[str, Any], names: Any) -> None:
    """All compilations in a table, with their stages' times as bars."""
    wanted = {info.id for info in report.compiles}
    rows = [c for c in document["compiles"] if c["id"] in wanted]
    longest = max((c["seconds"]["total"] for c in rows), default=0.0) or 1.0
    report.add('<section id="compilations"><h2>Compilations</h2><table><tr><th>id<th>function<th>status<th>nodes'
               "<th>kernels<th>guards<th>calls<th>seconds</tr>")
    for c in rows[:ROWS]:
        bars = "".join(f'<b class="t{number}" style="width:{max(0.0, 160 * c["seconds"][name] / longest):.1f}px" '
                       f'title="{name} {c["seconds"][name]:.3f} s"></b>' for number, name in enumerate(TIMINGS))
        numbers = "".join(f"<td>{c[key]}" for key in ("graph_nodes", "kernels", "guards", "calls"))
        function = f"{c['display_name']}  {c['file'].rpartition('/')[2]}:{c['line']}"
        report.add(f'<tr><td><a href="#{anchor(c["id"])}">{escape(c["id"])}</a><td>{escape(printable(function))}'
                   f'<td>{escape(c["status"])}{numbers}<td>{c["seconds"]["total"]:.2f} {bars}</tr>')
    report.add(f'</table><p>bars: {", ".join(TIMINGS)}</p></section>')
    if len(rows) > ROWS:
        report.left_out.append(f"{len(rows) - ROWS:,} rows of the table of compilations")


def _program(report: Report) -> None:
    report.add('<section id="program"><h2>Program</h2>')
    for path in report.recording.sources():
        if report.full:
            report.left_out.append("files of the program")
            break
        _block(report, path, source_listing(path, report.recording.source(path) or ""), "")
    report.add("</section>")


def _compilation(report: Report, info: CompileInfo, name: str) -> None:
    report.add(f'<section id="{anchor(info.id)}"><h2>{escape(info.id)}  {escape(printable(name))}</h2>')
    report.add(report.lines(render_compile(report.recording, info).lines, info.id, numbers=False))
    artifacts = [a for a in report.recording.artifacts(info.id) if a.stage in STAGES]
    for artifact in sorted(artifacts, key=lambda a: order_of(a.stage)):
        if report.full:
            report.left_out.append(f"{info.id}: from {artifact.key} on")
            break
        _artifact(report, info.id, artifact)
    report.add("</section>")


def _artifact(report: Report, compile_id: str, artifact: ArtifactInfo) -> None:
    if artifact.items > ITEMS:
        report.left_out.append(f"{compile_id} {artifact.key}: {artifact.items:,} items")
        return
    try:
        shown = listing(report.recording, compile_id, artifact.stage, artifact.name)
    except RecordingError as error:
        shown = Listing("", "text", (Line(printable(str(error))),))
    _block(report, artifact.key, shown, compile_id)


def _block(report: Report, title: str, shown: Listing, compile_id: str) -> None:
    lines = len(shown.lines)
    more = f", the first {LINES:,}" if lines > LINES else ""
    if more:
        report.left_out.append(f"{compile_id} {title}: {lines - LINES:,} lines".strip())
    stage = split_ref(title)[0]
    is_open = " open" if stage in ("capture", "kernels") else ""
    report.add(f"<details{is_open}><summary>{escape(printable(title))}  <small>{lines:,} lines{more}</small></summary>"
               f"{report.lines(shown.lines, compile_id)}</details>")


# ---- the page -------------------------------------------------------------------------------------------------------
def _page(report: Report) -> str:
    title = escape(printable(f"ptdebug: {report.recording.name}"))
    digest = base64.b64encode(hashlib.sha256(SCRIPT.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'"
    missing = "".join(f"<li>{escape(printable(text))}" for text in [*report.left_out, *report.recording.problems])
    note = f'<section id="missing"><h2>Left out</h2><ul>{missing}</ul></section>' if missing else ""
    links = [("summary", "Summary"), ("breaks", "Breaks"), ("recompilations", "Recompilations"),
             ("compilations", "Compilations"), ("program", "Program")] + ([("missing", "Left out")] if missing else [])
    nav = "".join(f'<a href="#{where}">{text}</a>' for where, text in links)
    head = (f'<meta charset="utf-8"><meta http-equiv="Content-Security-Policy" content="{policy}">'
            f'<meta name="viewport" content="width=device-width"><title>{title}</title><style>{STYLE}</style>')
    hint = "<span>click a line: what it comes from, what came of it</span>"
    return (f'<!DOCTYPE html><html lang="en"><head>{head}</head><body><nav><b>{title}</b>{nav}{hint}</nav>'
            f"<main>{note}{''.join(report.parts)}</main><script>{SCRIPT}</script></body></html>\n")
