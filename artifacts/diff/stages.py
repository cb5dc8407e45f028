"""How the artifacts of each stage are compared: a table by type of record, one entry each.

An entry takes both records and the `Context` of two compilations: which names of the first are which of the second.
"""
from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from ..listing import SourceText, printable
from ..records import (
    AnyRecord,
    Break,
    Breaks,
    Bytecode,
    CodeLine,
    Decision,
    Frame,
    Fusion,
    Graph,
    Guard,
    Guards,
    Kernel,
    Loops,
    Partition,
    Pass,
    Recompile,
    Steps,
    Wrapper,
    ref,
)
from ..render import render
from ..render_steps import step_text
from .changes import CHANGED, Change, Keyed, StageDiff
from .code import diff_code
from .graphs import TRAITS, TRAITS_OF_STOCK, diff_graphs
from .program_text import ProgramText

_WORD = re.compile(r"\w+")
_OF_ONE_RUN = tuple(map(re.compile, (
    r"(__builtins_dict___)\d+", r"(___check_(?:obj|type)_id\(.*, )\d+(?=\))", r"(\bat )0x[0-9a-f]{6,}",
    r"(__compiled_fn_\d+_)[0-9a-f]{8}(?:_[0-9a-f]{4}){3}_[0-9a-f]{12}")))
"""Addresses, random names, and numbers that stock gives to what it makes: others in each process."""


@dataclass(frozen=True)
class Context:
    """What is known of two compilations: the program's texts, and the second's name for each name of the first (nodes,
    buffers, kernels)."""

    texts: tuple[ProgramText, ProgramText]
    names: Mapping[str, str]
    sources: tuple[SourceText, SourceText]

    @property
    def one_compiler(self) -> bool:
        """Whether one compiler made both: another has other words for the same guards."""
        return self.texts[0].compiler == self.texts[1].compiler

    @property
    def traits(self) -> tuple[str, ...]:
        """What both compilers say of tensors, besides their sizes."""
        return TRAITS if self.one_compiler else TRAITS_OF_STOCK

    def renamed(self, text: str) -> str:
        """A text of the first in the names of the second."""
        return _WORD.sub(lambda word: self.names.get(word[0], word[0]), text)


def diff_records(first: AnyRecord, second: AnyRecord, context: Context, stage: str, name: str = "") -> StageDiff:
    """The differences of two artifacts; of different types, those of their listings."""
    if type(first) is type(second) and type(first) in COMPARED:
        return replace(COMPARED[type(first)](first, second, context), stage=stage, name=name)
    sides = [[CodeLine(context.renamed(line.text) if side == 0 else line.text)
              for line in render(record, stage, name, context.sources[side]).lines]
             for side, record in enumerate((first, second))]
    return diff_code(sides[0], sides[1], "text", stage, name)


def _keyed(rule: Keyed, first: Any, second: Any, noun: str) -> StageDiff:
    changes, same = rule.compare(first, second)
    return StageDiff("", "", noun, changes, same)


def _frames(first: Frame, second: Frame, context: Context) -> StageDiff:
    rule: Keyed[Any] = Keyed(lambda a: a.name, lambda a: (a.type, a.value, a.tensor),
                 lambda a: f"{a.name}: {a.type}" + (f" {_meta(a.tensor)}" if a.tensor else f" {a.value}".rstrip()))
    found = _keyed(rule, first.arguments, second.arguments, "argument")
    if (first.status, first.reason) == (second.status, second.reason):
        return found
    change = Change(CHANGED, f"{first.status} {first.reason}".strip(), f"{second.status} {second.reason}".strip(),
                    "what became of the frame")
    return replace(found, changes=(change, *found.changes))


def _meta(meta: Any) -> str:
    from ..render_graph import tensor_text

    return tensor_text(meta)


def _bytecode(first: Bytecode, second: Bytecode, context: Context) -> StageDiff:
    sides = [[CodeLine(f"{i.opname} {_of_any_run(i.argument)}".strip()) for i in record.instructions]
             for record in (first, second)]
    return replace(diff_code(sides[0], sides[1], "text"), noun="instruction")


def _of_any_run(text: str) -> str:
    for pattern in _OF_ONE_RUN:
        text = pattern.sub(r"\1...", text)
    return text


def _graphs(first: Graph, second: Graph, context: Context) -> StageDiff:
    return diff_graphs(first, second, context.texts, traits=context.traits)


def _passes(first: Pass, second: Pass, context: Context) -> StageDiff:
    """The rewrites; what they left is compared where the graphs after all passes are."""
    def text(match: Any) -> str:
        return f"{match.rule}: {', '.join(match.removed) or 'nothing'} -> {', '.join(match.added) or 'nothing'}"

    rule: Keyed[Any] = Keyed(lambda m: (m[1].rule, m[0]), lambda m: m[1].why, lambda m: text(m[1]))
    mine = [(tuple(context.names.get(n, n) for n in m.removed), m) for m in first.matches]
    return _keyed(rule, mine, [(m.removed, m) for m in second.matches], "rewrite")


def break_rule(texts: tuple[ProgramText, ProgramText]) -> Keyed[Break]:
    """Graph breaks are the same one at the same text of the program; two compilers have different words for it."""
    one_compiler = texts[0].compiler == texts[1].compiler
    return Keyed(
        lambda b: (b.source or f"{b.location.file}:{b.location.line}", b.location.function.rpartition(".")[2]),
        lambda b: (b.code, b.message) if one_compiler else None, _break_text, lambda b: b.location,
        lambda b: ref("breaks", b.id), lambda a, b: f"{a.code} -> {b.code}" if a.code != b.code else b.message,
    )


def _break_text(found: Break) -> str:
    return f"{found.location.file.rpartition('/')[2]}:{found.location.line}: {found.source.strip()}  [{found.code}]"


def _breaks(first: Breaks, second: Breaks, context: Context) -> StageDiff:
    return _keyed(break_rule(context.texts), first.breaks, second.breaks, "graph break")


def _guard_text(guard: Guard) -> str:
    return guard.text or guard.code


def _guards(first: Guards, second: Guards, context: Context) -> StageDiff:
    if not context.one_compiler:
        return _guarded_objects(first, second)
    rule: Keyed[Any] = Keyed(lambda g: (g.source, g.kind),
                 lambda g: (_of_any_run(_guard_text(g)), g.expected), _guard_text, lambda g: g.location,
                 lambda g: ref("guards", g.id))
    found = _keyed(rule, [g for g in first.guards if not g.implicit], [g for g in second.guards if not g.implicit],
                   "guard")
    symbols: Keyed[Any] = Keyed(lambda s: s.source, lambda s: s.why,
                                lambda s: f"{s.name}: {s.subject} is dynamic ({s.why})")
    more, alike = symbols.compare(first.symbols, second.symbols)
    return replace(found, changes=(*found.changes, *more), same=found.same + alike)


def _guarded_objects(first: Guards, second: Guards) -> StageDiff:
    sides = [list(dict.fromkeys(g.source for g in r.guards if g.source[:2] in ("L[", "G["))) for r in (first, second)]
    rule: Keyed[str] = Keyed(lambda s: s, lambda s: s, lambda s: s)
    note = f"{len(first.guards)} and {len(second.guards)} guards, of two compilers: the objects they read are compared"
    return replace(_keyed(rule, sides[0], sides[1], "guarded object"), notes=(note,))


def _recompile(first: Recompile, second: Recompile, context: Context) -> StageDiff:
    texts = [f"{r.subject or r.guard}: was {r.expected}, is now {r.actual}" for r in (first, second)]
    if texts[0] == texts[1]:
        return StageDiff("", same=1, noun="reason")
    return StageDiff("", "", "reason", (Change(CHANGED, texts[0], texts[1], location=second.location),))


def _partition(first: Partition, second: Partition, context: Context) -> StageDiff:
    def entries(record: Partition, names: Mapping[str, str]) -> list[tuple[str, str, Any]]:
        saved = [(names.get(v.id, v.id), "saved", v) for v in record.saved]
        return saved + [(names.get(v.id, v.id), "recomputed", v) for v in record.recomputed]

    rule: Keyed[Any] = Keyed(lambda e: e[0], lambda e: (e[1], e[2].bytes),
                 lambda e: f"{e[2].id} {e[1]}" + (f", {e[2].bytes:,} bytes" if e[2].bytes is not None else ""),
                 lambda e: e[2].location)
    found = _keyed(rule, entries(first, context.names), entries(second, {}), "value")
    notes = [f"{key}: {first.predicted[key]:,} -> {second.predicted[key]:,} bytes" for key in first.predicted
             if key in second.predicted and first.predicted[key] != second.predicted[key]]
    return replace(found, notes=tuple(notes))


def _loops(first: Loops, second: Loops, context: Context) -> StageDiff:
    sides = [[CodeLine(s.text, s.origins) for s in record.statements] for record in (first, second)]
    axes = [[(a.symbol, a.extent) for a in (*r.axes, *r.reduction_axes)] for r in (first, second)]
    found = replace(diff_code(sides[0], sides[1], "text"), noun="statement")
    texts = [" ".join(f"{symbol}<{extent}" for symbol, extent in side) for side in axes]
    details = dict.fromkeys(f"extent {a} -> {b}" for (_, a), (_, b) in zip(*axes) if a != b)
    if len(axes[0]) != len(axes[1]):
        details = {f"{len(axes[0])} loops -> {len(axes[1])}": None}
    loops = tuple(Change(CHANGED, f"{first.name}: {texts[0]}", f"{second.name}: {texts[1]}", d) for d in details)
    return replace(found, changes=(*loops, *found.changes))


def _fusion(first: Fusion, second: Fusion, context: Context) -> StageDiff:
    rule: Keyed[Any] = Keyed(lambda c: c[0], lambda c: c[1].fused, lambda c: _pair_text(c[1]),
                             detail=lambda a, b: b[1].why)
    mine = [(frozenset(context.names.get(n, n) for n in (c.first, c.second)), c) for c in first.candidates]
    return _keyed(rule, mine, [(frozenset((c.first, c.second)), c) for c in second.candidates], "pair")


def _pair_text(candidate: Any) -> str:
    verdict = "fused" if candidate.fused else "not fused"
    return f"{candidate.first} + {candidate.second}: {verdict} ({candidate.why})"


def _code(first: Kernel | Wrapper, second: Kernel | Wrapper, context: Context) -> StageDiff:
    mine = [CodeLine(context.renamed(line.text), line.origins) for line in first.lines]
    return diff_code(mine, second.lines, first.language)


def _steps(first: Steps, second: Steps, context: Context) -> StageDiff:
    mine, other = ([CodeLine(step_text(record, step)) for step in record.steps] for record in (first, second))
    return diff_code(mine, other, "text")


def diff_decisions(first: list[Decision], second: list[Decision], context: Context) -> StageDiff:
    """The differences of two lists of decisions: what was chosen, or who chose it."""
    rule: Keyed[Any] = Keyed(lambda d: d[0], lambda d: (d[1].chosen, d[1].forced), lambda d: _decision_text(d[1]),
                 lambda d: d[1].location, lambda d: ref("decisions", d[1].id),
                 lambda a, b: "forced" if b[1].forced else b[1].why)
    mine = [(f"{d.kind}:{context.renamed(d.subject)}", d) for d in first]
    changes, same = rule.compare(mine, [(d.id, d) for d in second])
    return StageDiff("decisions", "", "decision", changes, same)


def _decision_text(decision: Decision) -> str:
    return printable(f"{decision.id} = {decision.chosen}")


COMPARED: dict[type, Callable[[Any, Any, Context], StageDiff]] = {
    Frame: _frames, Bytecode: _bytecode, Graph: _graphs, Pass: _passes, Breaks: _breaks, Guards: _guards,
    Recompile: _recompile, Partition: _partition, Loops: _loops, Fusion: _fusion, Kernel: _code, Wrapper: _code,
    Steps: _steps,
}
"""By type of record. Schedules need more than the two records (`kernels.py`); run time is not compared."""

