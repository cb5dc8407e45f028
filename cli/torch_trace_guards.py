"""Reads guards from PyTorch's structured trace: the guard tree, reasons of recompilations, symbols."""
from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ..artifacts.records import Guard, Guards, Location, Recompile, Symbol, SymbolEvent
from ..dependencies import msgspec

_GUARD = re.compile(r"^((?:\| )*)\+- ([A-Z_0-9]+): (.*)$")
_SOURCE = re.compile(r"[LG]\['[^']+'\](?:\.\w+|\[[^\]]*\])*")
_BUILTIN = re.compile(r"G\['__builtins_dict___\d+'\]\['(\w+)'\]")
_PLACE = re.compile(r'File "(.+)", line (\d+), in (\S+)')
_TENSOR = re.compile(
    r"tensor '(?P<name>.+)' (?P<what>[\w ]+?) mismatch(?: at index (?P<index>\d+))?\. expected (?P<expected>.+), "
    r"actual (?P<actual>.+)")
_TYPE = re.compile(r"___check_type_id\((.+), \d+\), type=<class '(.+)'>")
_EQUAL = re.compile(r"([\w.\[\]'\"()]+) == (.+)")
_PROPERTIES = {"size": "{}.size({})", "stride": "{}.stride({})", "dtype": "{}.dtype", "rank": "{}.dim()",
               "requires_grad": "{}.requires_grad", "device": "{}.device"}


def guards(text: str) -> Iterator[Guard]:
    """The leaves of the guard tree; `source` is the first L[...] or G[...] that the check names, of builtins without
    the dict that Dynamo keeps them in."""
    for number, line in enumerate(text.splitlines()):
        found = _GUARD.match(line)
        if found and found[2] != "RootGuardManager":
            code, _, comment = found[3].partition("  # ")
            source = _SOURCE.search(code)
            name = _BUILTIN.sub(r"G['\1']", source[0]) if source else ""
            yield Guard(f"g{number}", name, found[2], code.strip(), subject=comment.strip())


def recompile(text: str, now: Guards = Guards(()), call_site: Location | None = None) -> Recompile:  # noqa: B008
    """Why stock compiled again: the failed guard of the entry that it names first, the newest.

    The trace has the value that a guard found of tensors alone; of constants, `now`, the guards and symbols of the new
    compilation, has it where it compares the same thing, or has a symbol for it. What neither holds is "". (Whether the
    entry is the nearest of those that there were, the trace does not tell.)
    """
    try:
        reasons = msgspec.json.decode(text)
    except msgspec.DecodeError:
        reasons = [text]
    named = [str(reason) for reason in reasons] if isinstance(reasons, list) and reasons else [str(reasons)]
    entry, _, reason = named[0].partition(": ")
    headline = reason.partition("\n")[0]
    guard = headline.partition("  # ")[0].strip()
    what, expected, actual = _change(guard, now)
    places = _PLACE.findall(reason)
    location = Location(places[-1][0], int(places[-1][1]), places[-1][2]) if places else None
    return Recompile(guard, expected, actual, entry, location, "", what, (), call_site)


def _change(guard: str, now: Guards) -> tuple[str, str, str]:
    """What a failed guard is about, what it expects and what it found; "true" is expected of a condition."""
    if found := _TENSOR.match(guard):
        form = _PROPERTIES.get(found["what"], f"the {found['what']} of {{}}")
        return form.format(found["name"], found["index"]), found["expected"], found["actual"]
    if guard.startswith("GLOBAL_STATE changed:"):
        names = guard.partition(":")[2].split()
        return f"torch's setting{'s' if len(names) > 1 else ''} {', '.join(names)}", "", ""
    if found := _TYPE.match(guard):
        return f"type({found[1]})", found[2], _now(found[1], now, "TYPE_MATCH", _TYPE)
    if found := _EQUAL.fullmatch(guard):
        return found[1], found[2], _now(found[1], now, "EQUALS_MATCH", _EQUAL)
    return guard, "true", ""


def _now(name: str, now: Guards, kind: str, pattern: re.Pattern[str]) -> str:
    """The value that a guard of this kind on the same thing has now, or a symbol for it."""
    for symbol in now.symbols:
        if kind == "EQUALS_MATCH" and symbol.subject == _in_words(name):
            return symbol.value
    for guard in now.guards:
        found = pattern.match(guard.code) if guard.kind == kind else None
        if found and _in_words(found[1]) == _in_words(name):
            return found[2]
    return ""


def _in_words(source: str) -> str:
    return re.sub(r"[LG]\['([^']+)'\]", r"\1", source)


def symbol(facts: Mapping[str, Any], events: Sequence[tuple[str, Mapping[str, Any]]], files: Mapping[int, str]
           ) -> Symbol:
    """A symbol, from the event of its creation and the (name, event) pairs that constrained it."""
    name = str(facts.get("symbol", "?"))
    told = tuple(
        SymbolEvent(_event_text(kind, event), _event_place(event, files)) for kind, event in events
        if re.search(rf"\b{re.escape(name)}\b", str(event.get("expr") or event.get("symbol")))
    )
    source = str(facts.get("source", ""))
    return Symbol(name, _in_words(source), source, str(facts.get("val", "")), events=told)


def _event_text(kind: str, event: Mapping[str, Any]) -> str:
    return f"is {event.get('value')} from here on" if kind == "symbolic_shape_specialization" else str(event["expr"])


def _event_place(event: Mapping[str, Any], files: Mapping[int, str]) -> Location | None:
    stack = event.get("user_stack") or ()
    if not stack or not isinstance(stack[-1], dict):
        return None
    last = stack[-1]
    return Location(files.get(last.get("filename", -1), "?"), last.get("line", -1), last.get("name", ""))
