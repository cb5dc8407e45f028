"""Why no entry served a call: what the nearest one expected, what it got, and what avoids the recompilation.

The nearest entry is the one from which the call differs in the fewest ways. C++ reports which of its guards failed
first; all others are checked here, in Python, as far as possible.
"""
from __future__ import annotations

import re
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from types import CodeType
from typing import Any

import numpy as np
import torch
from torch._C._dynamo.guards import GlobalStateGuard

from ...artifacts.records import Location, Recompile
from ...operators.dynamo_stubs import without_dynamo
from ..bytecode.resume_function import name_stack_arguments
from ..sources.computed import ComputedSource
from ..sources.display_names import display_name
from ..sources.roots import GLOBAL_STATE
from ..sources.source import AttrSource, CallSource, SizeSource, Source
from .conditions import condition_code, on_frame
from .describe import describe
from .kinds import KINDS, check_code, tensor_differences
from .read import Scope
from .settings import differences, settings_now
from .spec import Check


@dataclass(frozen=True)
class Difference:
    """A guard that does not hold: as Python, its subject in words, the values before and now, the line that caused it,
    a hint."""

    guard: str
    what: str
    expected: str
    actual: str
    location: Location | None = None
    hint: str = ""

    @property
    def sentence(self) -> str:
        """A short sentence."""
        if self.expected == "true":
            return f"{self.what} is no longer true: {self.actual}"
        return f"{self.what} was {self.expected}, is {self.actual}"


def explain_recompile(entries: Sequence[Any], scope: Scope, code: CodeType | None = None) -> Recompile | None:
    """Compare the call in `scope` with `entries` (each an `eval_frame.EntryGuards`); None when there is none, or when
    one of them accepts. `code` is the frame's: it gives the names of a resume function's arguments."""
    best: tuple[int, Any, list[Difference]] | None = None
    with without_dynamo():
        for entry in entries:
            outcome = entry.root.check_verbose(dict(scope.f_locals))
            if outcome.result:
                return None
            found = _differences(entry, "; ".join(outcome.verbose_code_parts), scope)
            changes = _changes(found)
            if best is None or (changes, -_number(entry)) < (best[0], -_number(best[1])):
                best = changes, entry, found
    if best is None:
        return None
    _, entry, found = best
    first, also = found[0], [d.sentence for d in found[1:]]
    words = name_stack_arguments(code) if code is not None else str
    actual = words(first.actual) if first.expected == "true" else first.actual  # of a condition, its sizes
    return Recompile(
        first.guard, first.expected, actual, entry.compile_id, first.location, words(first.hint), words(first.what),
        tuple(map(words, also)), None, len(entries),
    )


def _changes(found: Sequence[Difference]) -> int:
    """In how many ways a call differs: the same change in several objects (the size of each tensor of a cache) counts
    once, and so does a size that several conditions read."""
    return len({d.actual if d.expected == "true" else (d.what.rpartition(".")[2], d.expected, d.actual) for d in found})


def _number(entry: Any) -> int:
    """The index of an entry among the compilations of its function: of two equally near ones the later one wins."""
    return int(entry.compile_id.partition("/")[2] or 0)


def _differences(entry: Any, reported: str, scope: Scope) -> list[Difference]:
    """What does not hold: first what C++ reported, then the rest, each tensor or object once. What only C++ can see of
    a tensor follows from the rest, where there is any (inference mode, for example)."""
    failed = _failed_check(entry.checks, reported)
    if failed is None:
        text = _without_prefix(reported)
        return [Difference(reported or "an unnamed guard", reported or "a guard", "as at compilation", text)]
    found = _of(failed, scope)
    seen = {failed.source}
    for check in entry.checks:
        if check.source not in seen and not _follows(check.source, seen, scope) and _fails(check, scope):
            seen.add(check.source)
            found += _of(check, scope)
    if len(found) > 1 and failed.kind == "TENSOR_MATCH" and not _fails(failed, scope):
        del found[0]
    return list(dict.fromkeys(found))


def _follows(source: Source, told: Container[Source], scope: Scope) -> bool:
    """Whether `source` is missing because of a difference that is already listed for an object on the way to it."""
    return not _is_there(source, scope) and any(owner in told for owner in source.read_from())


def _fails(check: Check, scope: Scope) -> bool:
    kind = KINDS[check.kind]
    if check.source is GLOBAL_STATE or check.kind == "SHAPE_ENV":
        return check.kind in _SPECIAL and bool(_SPECIAL[check.kind](check, scope))
    try:
        value = scope.value(check.source)
        if kind.fails is not None:
            return kind.fails(value, check.expectation)
        return kind.expected(check.expectation) != kind.actual(value, check.expectation)
    except Exception:  # it is missing entirely, or does not support the read
        return True


_ABOUT = {"LENGTH": "len({})", "DICT_KEYS": "the keys of {}", "TYPE_MATCH": "type({})"}
_PARTS = {"_modules": "the submodules of {}", "_parameters": "the parameters of {}", "_buffers": "the buffers of {}"}
_COMPLETE = "build the module completely before the first call"
_HOOKS = "register hooks before the first call, and keep them; other hooks cause a recompilation"


def _about(check: Check) -> tuple[str, str]:
    """The subject of a guard in words, and a hint where that depends on the subject."""
    source = check.source
    if check.kind == "DISTINCT" and isinstance(source, ComputedSource):
        *some, last = map(display_name, source.args)
        return f"{', '.join(some)} and {last}", ""
    if check.kind in ("LENGTH", "DICT_KEYS") and isinstance(source, AttrSource) and source.name in _PARTS:
        return _PARTS[source.name].format(display_name(source.owner)), _COMPLETE
    if check.kind in ("LENGTH", "DICT_KEYS") and (hooks := re.fullmatch(r"(.*)\._(\w+_hooks)", display_name(source))):
        return f"the {hooks[2].replace('_', ' ')} of {hooks[1]}", _HOOKS
    if check.kind in ("IN_DICT", "NOT_IN_DICT") and isinstance(source, AttrSource) and source.name == "__dict__":
        return f"the attributes of {display_name(source.owner)}", KINDS["HAS_ATTR"].hint
    return _ABOUT.get(check.kind, "{}").format(display_name(source)), ""


_NUMBER = (
    "Usually nothing to do: from now on this number is an input of the graph. Only 0, 1 and values on which the "
    "function branches are compiled separately. To save this one recompilation: pass it as a 0-d tensor"
)
_STRING = "each value of a string is compiled once: use few values, or pass the object that the string selects"
_NUMPY_NUMBER = (
    "each value of a NumPy number of this type is compiled once; pass it as a 0-d tensor, or as a Python number "
    "({name}.item()), which becomes an input of the graph at its second value"
)


def _constant_hint(name: str, expected: Any, value: Any) -> str:
    """What avoids a recompilation for another constant."""
    if type(value) is not type(expected):
        return KINDS["TYPE_MATCH"].hint
    if type(value) in (int, float) or isinstance(value, (np.signedinteger, np.floating)):
        return _NUMBER
    if isinstance(value, np.number):
        return _NUMPY_NUMBER.format(name=name)
    return _STRING if type(value) is str else ""


def _of(check: Check, scope: Scope) -> list[Difference]:
    """The differences of a failing check; several settings (or properties of a tensor) are several."""
    kind = KINDS[check.kind]
    special = _SPECIAL.get(check.kind)
    if special is not None:
        found = special(check, scope)
        if found:
            return found
    what, hint = _about(check)
    expected = kind.expected(check.expectation)
    if check.source is GLOBAL_STATE:
        what = _variables(check.expectation) if check.kind == "NO_ALIASING" else "a setting of torch"
        actual = kind.actual(None, check.expectation) if check.kind == "NO_ALIASING" else "changed"
        return [Difference(check_code(check), what, expected, actual, check.location, kind.hint)]
    try:
        value = scope.value(check.source)
    except Exception:  # whatever reading it raises
        missing = _missing(check.source, scope)
        guard, gone = f"{missing} exists", "not there"
        return [Difference(guard, display_name(missing), "present", gone, check.location, kind.hint)]
    if check.kind == "EQUALS_MATCH":
        hint = _constant_hint(display_name(check.source), check.expectation, value)
    if check.kind == "LENGTH" and not hint and not _holds_tensors(value):
        hint = _COUNT
    try:
        actual = kind.actual(value, check.expectation)
    except Exception:
        actual = describe(value)
    return [Difference(check_code(check), what, expected, actual, check.location, hint or kind.hint)]


_COUNT = "keep the number of items constant; each number of them is compiled once"


def _holds_tensors(value: Any) -> bool:
    """Whether all items of a list or tuple are tensors; other containers are not examined."""
    return type(value) not in (list, tuple) or all(isinstance(item, torch.Tensor) for item in value)


def _variables(expressions: Sequence[str]) -> str:
    """`x, y` for L['y'] and L['x'], in the order of the tree."""
    return ", ".join(re.sub(r"^[LG]\['(\w+)'\]", r"\1", text) for text in reversed(expressions))


# ---- C++'s report ---------------------------------------------------------------------------------------------------
def _failed_check(checks: Sequence[Check], text: str) -> Check | None:
    """The check behind C++'s report: its index, or a message of C++ that names a source or the global state."""
    if text.isdigit():
        return next((c for c in checks if c.index == int(text)), None)
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


# ---- kinds that say more --------------------------------------------------------------------------------------------
def _settings(check: Check, scope: Scope) -> list[Difference]:
    rows = differences(check.expectation, settings_now(GlobalStateGuard()))
    return [
        Difference(f"{what} == {before}", what, before, now, check.location, hint)
        for what, before, now, hint in rows
    ]


_TENSOR_HINTS = {
    "type()": "call the function with tensors of one class",
    ".dtype": "convert before the call ({name}.to({expected})), or accept one compilation for each dtype",
    ".device": "nothing to do: each device needs its own code",
    ".requires_grad": "pass {name}.detach() where no gradient is needed; with and without gradients are compiled "
    "once each",
    ".dim()": "reshape to one number of dimensions before the call; each number is compiled once",
    ".size()": "Usually nothing to do: from now on this size is dynamic (unless dynamic=False, mark_static or a "
    "parameter makes it static). To save this one recompilation: torch._dynamo.maybe_mark_dynamic({name}, {dim}) "
    "before the first call, or dynamic=True where the function itself makes it before a graph break",
    ".stride()": "pass {name}.contiguous(): each memory layout is compiled separately",
    " dispatch keys": "call the function always inside of torch.inference_mode() or always outside; do not mix its "
    "tensors with others",
}


_PARAMETER_HINTS = {
    ".dtype": "convert the module once, before the first call",
    ".device": "move the module once, before the first call",
    ".requires_grad": "freeze parameters before the first call; frozen or not, each is compiled once",
}


_ARRAY_HINTS = {
    ".dtype": "convert before the call ({name}.astype(...)), or accept one compilation for each dtype",
    ".size()": "Usually nothing to do: from now on this size of the array is dynamic",
    ".stride()": "pass numpy.ascontiguousarray({name}): each memory layout is compiled separately",
}


def _members(check: Check, scope: Scope) -> list[Difference]:
    hint = KINDS[check.kind].hint
    return [
        Difference(f"{item.words} is as it was", item.words, "the library's", "another function", check.location, hint)
        for item in check.expectation.changed()
    ]


def _tensor(check: Check, scope: Scope) -> list[Difference]:
    name, where = check.source.expression, display_name(check.source)
    try:
        rows = tensor_differences(scope.value(check.source), check.expectation)
    except Exception:  # missing: the caller reports it
        return []
    found = []
    for what, expected, actual in rows:
        guard = f"type({name}) is {expected}" if what == "type()" else f"{name}{what} == {expected}"
        kind, _, index = what.partition("[")
        words = f"{where}{kind[:-1]}{index[:-1]})" if index else f"{where}{what}"
        words = f"type({where})" if what == "type()" else words
        hints = _TENSOR_HINTS
        if isinstance(check.source, CallSource) and check.source.function == "tensor_of":
            hints = _TENSOR_HINTS | _ARRAY_HINTS
        hint = hints[kind].format(name=where, dim=index[:-1], expected=expected)
        if what == "type()" and not isinstance(scope.value(check.source), torch.Tensor):
            hint = KINDS["TYPE_MATCH"].hint
        if kind == ".size()" and {expected, actual} & {"0", "1"}:
            hint = _BROADCAST
        if isinstance(scope.value(check.source), torch.nn.Parameter):
            hint = _PARAMETER_HINTS.get(kind, hint)
        found.append(Difference(guard, words, expected, actual, check.location, hint))
    sizes = [d for d in found if ".stride()" not in d.guard and "dispatch keys" not in d.guard]
    return sizes or found  # strides follow from sizes, and keys from both


_BROADCAST = "nothing to do: sizes 0 and 1 are compiled separately, since they broadcast"
_SYMBOL = re.compile(r"\b[a-z_]+\d+\b")
_SHAPE_HINTS: tuple[tuple[str, str], ...] = (
    (r"^2 <= ", _BROADCAST),
    (r"^\w+ == \d+$|^\d+ == \w+$",
     "this line specializes the size or number (a Python loop over it, an index, or an operator that unrolls its "
     "steps), so each value is compiled separately: pad to a few sizes, or compile the body of the loop instead"),
    (r"==", "this line requires the relation between these sizes or numbers; any other is compiled separately"),
    ("", "this line branches on the size or number; each outcome is compiled once"),
)


def _condition(check: Check, scope: Scope) -> list[Difference]:
    found = []
    for guard in check.expectation:
        code = condition_code(guard)
        try:
            if on_frame([guard], scope.f_globals, lambda source: lambda _: scope.value(source))(dict(scope.f_locals)):
                continue
            values = ", ".join(f"{display_name(s)} is {scope.value(s)}" for s in dict.fromkeys(guard.sources))
        except Exception as error:
            values = type(error).__name__
        hint = next(hint for pattern, hint in _SHAPE_HINTS if re.search(pattern, guard.expression))
        strided = next((s for s in guard.sources if isinstance(s, SizeSource) and s.kind == "stride"), None)
        if strided is not None:
            hint = _TENSOR_HINTS[".stride()"].format(name=display_name(strided.owner))
        where = {name: display_name(source) for name, source in zip(guard.names, guard.sources)}
        what, expected = _SYMBOL.sub(partial(_renamed, where), guard.expression), "true"
        if re.fullmatch(r"2 <= \w+", guard.expression) and len(guard.sources) == 1:
            what, expected, values = what.removeprefix("2 <= "), "2 or more", values.rpartition(" is ")[2]
        found.append(Difference(code, what, expected, values, guard.location or check.location, hint))
    return found


_SPECIAL: dict[str, Callable[[Check, Scope], list[Difference]]] = {
    "GLOBAL_STATE": _settings, "CLASS_MEMBERS": _members, "TENSOR_MATCH": _tensor, "SHAPE_ENV": _condition,
}


def _renamed(names: Mapping[str, str], match: re.Match[str]) -> str:
    return names.get(match.group(), match.group())


def _missing(source: Source, scope: Scope) -> Source:
    """The outermost step on the way to `source` that fails; a computed source has several ways."""
    if isinstance(source, ComputedSource):
        gone = next((arg for arg in source.args if not _is_there(arg, scope)), None)
        return _missing(gone, scope) if gone is not None else source
    chain = [source]
    while chain[-1].base is not None:
        chain.append(chain[-1].base)
    return next((step for step in reversed(chain) if not _is_there(step, scope)), source)


def _is_there(source: Source, scope: Scope) -> bool:
    try:
        scope.value(source)
    except Exception:  # whatever reading it raises
        return False
    return True


def _without_prefix(text: str) -> str:
    return re.sub(r"^GLOBAL_STATE changed:\s*", "", text).strip() or "unknown"
