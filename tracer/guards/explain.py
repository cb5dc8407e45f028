"""Why a call was not served by any entry: the first failed guard of the nearest one, with what it wanted and what it
got."""
from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from ...artifacts.records import Recompile
from ..lean import without_dynamo
from ..sources import GLOBAL_STATE, Source
from .conditions import condition_code, on_frame
from .describe import describe
from .kinds import KINDS, tensor_differences
from .read import Scope
from .tree import Check


def explain_recompile(entries: Sequence[Any], scope: Scope) -> Recompile | None:
    """Compare the call in `scope` with `entries` (each an `eval_frame.EntryGuards`); None when there is none, or when
    one of them accepts.

    The nearest entry is the one that got furthest through its guards.
    """
    best: tuple[int, Any, Any] | None = None
    with without_dynamo():
        for entry in entries:
            outcome = entry.root.check_verbose(dict(scope.f_locals))
            if outcome.result:
                return None
            if best is None or outcome.num_guards_executed > best[0]:
                best = (outcome.num_guards_executed, entry, outcome)
    if best is None:
        return None
    _, entry, outcome = best
    return _reason(entry, list(outcome.verbose_code_parts), scope)


def _reason(entry: Any, parts: list[str], scope: Scope) -> Recompile:
    text = "; ".join(parts)
    check = _failed_check(entry.checks, text)
    if check is None:
        return Recompile(text or "an unnamed guard", "as at compilation", _without_prefix(text), entry.compile_id)
    if check.kind == "GLOBAL_STATE":
        changed = _without_prefix(text)
        return Recompile(
            "global state", "as at compilation", f"changed: {changed}", entry.compile_id, check.location,
            KINDS["GLOBAL_STATE"].hint,
        )
    guard, expected, actual = _words(check, scope)
    return Recompile(guard, expected, actual, entry.compile_id, check.location, KINDS[check.kind].hint)


def _failed_check(checks: Sequence[Check], text: str) -> Check | None:
    """The check behind C++'s report: its index, or a text of C++'s own that names a source or the global state."""
    if text.isdigit():
        return checks[int(text)] if int(text) < len(checks) else None
    if re.match(r"GLOBAL_STATE|torch function mode|.*mode stack", text):
        return next((c for c in checks if c.kind == "GLOBAL_STATE"), None)
    if text.startswith("Duplicate tensor"):
        return next((c for c in checks if c.kind == "NO_ALIASING"), None)
    named = [c for c in checks if _names(text, c.source.expression)]
    tensors = [c for c in named if c.kind == "TENSOR_MATCH"]
    nearest = tensors or sorted(named, key=lambda c: -len(c.source.expression))
    return nearest[0] if nearest else None


def _names(text: str, expression: str) -> bool:
    position = text.find(expression)
    if position < 0:
        return False
    following = text[position + len(expression):][:1]
    return not (following.isalnum() or following in ("_", ".", "["))


def _words(check: Check, scope: Scope) -> tuple[str, str, str]:
    """(guard, expected, actual) of a check that failed on `scope`."""
    kind = KINDS[check.kind]
    if check.kind == "SHAPE_ENV":
        return _failed_condition(check, scope)
    if check.source is GLOBAL_STATE:
        return check.code, kind.expected(check.expectation), kind.actual(None, check.expectation)
    try:
        value = scope.value(check.source)
    except Exception as error:
        return _missing(check.source, scope), "present", f"{type(error).__name__}: not there"
    if check.kind == "TENSOR_MATCH":
        differences = tensor_differences(value, check.expectation)
        if differences:
            what, expected, actual = differences[0]
            return _tensor_guard(check.source.expression, what, expected), expected, actual
    try:
        actual = kind.actual(value, check.expectation)
    except Exception:
        actual = describe(value)
    return check.code, kind.expected(check.expectation), actual


def _tensor_guard(x: str, what: str, expected: str) -> str:
    if what == "type()":
        return f"type({x}) is {expected}"
    return f"{x}{what} == {expected}"


def _missing(source: Source, scope: Scope) -> str:
    """The outermost step on the way to `source` that cannot be made."""
    chain = [source]
    while chain[-1].base is not None:
        chain.append(chain[-1].base)
    for step in reversed(chain):
        try:
            scope.value(step)
        except Exception:
            return f"{step} exists"
    return f"{source} exists"


def _failed_condition(check: Check, scope: Scope) -> tuple[str, str, str]:
    for guard in check.expectation:
        code = condition_code(guard)
        try:
            if on_frame(code, scope.f_globals)(dict(scope.f_locals)):
                continue
            values = ", ".join(f"{s} = {scope.value(s)}" for s in dict.fromkeys(guard.sources))
        except Exception as error:
            values = type(error).__name__
        return code, "true", values
    return check.code, "true", "false"


def _without_prefix(text: str) -> str:
    return re.sub(r"^GLOBAL_STATE changed:\s*", "", text).strip() or "unknown"
