"""The record of a compilation's guards: stage `guards`."""
from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import CodeType

import torch.fx

from ...artifacts.records import Guard, Guards, Ref, Symbol, SymbolEvent, ref
from ..bytecode.resume_function import name_stack_arguments
from ..sources.computed import ComputedSource
from ..sources.display_names import display_name
from ..sources.source import Source
from .builder import GuardBuilder
from .cost import UNMEASURED, Costs
from .kinds import KINDS
from .spec import Check


def record_guards(
    checks: Sequence[Check], nodes: Mapping[str, Ref] | None = None, symbols: tuple[Symbol, ...] = (),
    code: CodeType | None = None, costs: Costs = UNMEASURED,
) -> Guards:
    """Records of `checks`, with what they cost; `nodes` maps a source's expression to the node that needs it,
    where there is one; `symbols` is the history of each symbol; names of a resume function's arguments are taken from
    `code`."""
    first: dict[Source, str] = {}
    for check in checks:
        first.setdefault(check.source, f"g{check.index}")
    in_program = name_stack_arguments(code) if code is not None else str
    told = [Symbol(s.name, in_program(s.subject), s.source, s.value, in_program(s.why),
                   (*s.events, *_asked_of(s.source, checks))) for s in symbols]
    needed = nodes or {}
    return Guards(tuple([_record(check, first, needed, in_program, costs) for check in checks]), tuple(told), costs.all)


def _asked_of(number: str, checks: Sequence[Check]) -> Iterator[SymbolEvent]:
    """The guards on results computed from a number: `(s > 0.5) is True`."""
    for check in checks:
        of_number = number in (read.expression for read in check.source.read_from())
        if of_number and isinstance(check.source, ComputedSource):
            yield SymbolEvent(f"needs {_check_text(check)}", check.location)


def needed_by(builder: GuardBuilder, nodes: Iterable[torch.fx.Node]) -> dict[str, Ref]:
    """The node of the graph for which each guarded object was read: the input itself, else the first node of its
    line."""
    found: dict[str, Ref] = {}
    lines: dict[tuple[str, int], Ref] = {}
    for node in nodes:
        source, stack = node.meta.get("source"), node.meta.get("stack")
        if source is not None:
            found[source.expression] = ref("capture", node.name)
        elif stack:
            lines.setdefault((stack[-1].file, stack[-1].line), ref("capture", node.name))
    for spec in builder.specs:
        place = spec.location
        if place is not None and (place.file, place.line) in lines:
            found.setdefault(spec.source.expression, lines[place.file, place.line])
    return found


_VARIABLE = re.compile(r"[LG](?<!\w[LG])\['(\w+)'\]")  # a pattern that begins with \b takes three times as long
_GLOBALS = re.compile(r"\bin G$")


def _record(
    check: Check, first: Mapping[Source, str], nodes: Mapping[str, Ref], in_program: Callable[[str], str],
    costs: Costs,
) -> Guard:
    kind, expectation, expression = KINDS[check.kind], check.expectation, check.source.expression
    name = display_name(check.source)
    code = kind.code(expression, expectation)
    text = _expression_text(code if name == expression else kind.code(name, expectation))
    cost = costs.each.get(check.index)
    node = nodes.get(expression)
    return Guard(
        id=f"g{check.index}",
        source=expression,
        kind=check.kind,
        code=code,
        expected=kind.expected(expectation),
        subject=kind.subject(expectation),
        location=check.location,
        parent=_parent(check.source, first),
        origins=(node,) if node else (),
        name=in_program(name),
        text=in_program(text),
        implicit=check.location is None and check.kind == "TYPE_MATCH",
        check_ns=None if cost is None else cost.nanoseconds,
        together=1 if cost is None else cost.guards,
    )


def _check_text(check: Check) -> str:
    return _expression_text(KINDS[check.kind].code(display_name(check.source), check.expectation))


def _expression_text(code: str) -> str:
    text = _VARIABLE.sub(r"\1", code) if "['" in code else code
    return _GLOBALS.sub("in globals()", text) if text.endswith("in G") else text


def _parent(source: Source, first: Mapping[Source, str]) -> str:
    """The first guard of the nearest object on the way to `source` that has one."""
    owner = source.base
    while owner is not None:
        if owner in first:
            return first[owner]
        owner = owner.base
    return ""
