"""The message and the hint of a break: made at its end, from the reason, the subject and the program's text."""
from __future__ import annotations

import re
import sys
from collections.abc import Callable
from types import ModuleType

from .hints import Explanation, explanation_of
from .math_breaks import CALL as MATH_CALL, in_torch
from .reasons import OUTSIDE, Category, Reason
from .situations import COMPUTED, situation_of
from .subjects import bare, is_value, keys_of
from .unsupported import Unsupported


def explain(
    error: Unsupported, expression: str = "", line: str = "", words: Callable[[str], str] = str
) -> tuple[Reason, str, str]:
    """Reason, message and hint of a break at `expression` in `line`. `words` puts generated names into words."""
    said = _explanation(error, expression, line)
    if line.startswith("case "):  # of which an instruction knows the pattern alone
        expression = line
    subject = words(error.text())
    if "asked_inside" in error.context:
        subject = "{} reads `{}`".format(*error.context["asked_inside"])
    if expression:
        subject = _SYMBOLS.sub(lambda _: f"`{expression}`", subject)
    if said.message in _NAMES_THE_CALLED and expression and not _is_named_in(error, expression):
        subject = f"{subject}, called by `{expression}`,".replace(",,", ",")
    message = said.message.replace("{subject}", subject)
    message = message.replace("{expression}", expression) if expression else message.replace("`{expression}`", subject)
    hint = said.hint
    if said is COMPUTED and re.match(MATH_CALL, expression):
        hint = in_torch(expression)
    elif hint is Reason.UNKNOWN_CALLABLE.hint and not _may_compute_tensors(error):
        hint = OUTSIDE
    return said.kind or error.reason, message, hint


def _explanation(error: Unsupported, expression: str, line: str) -> Explanation:
    found = situation_of(error, f"{expression}\n{line}")
    if found is None:
        found = explanation_of(error.reason, error.subject, error.member)
    return found or Explanation(error.reason.message, error.reason.hint)


_NAMES_THE_CALLED = (Reason.UNKNOWN_CALLABLE.message, Reason.UNSUPPORTED_BUILTIN.message)
_KNOWN = frozenset((*sys.stdlib_module_names, "torch", "builtins"))
_SYMBOLS = re.compile(r"`[^`]*\bz?(u|s|uf|f)\d+\b[^`]*`")
"""Names that torch gives to unbacked symbols (u0, zuf0): nobody has written them."""


def _is_named_in(error: Unsupported, expression: str) -> bool:
    """Whether the program's text names what is called there."""
    subject = error.subject
    found = subject.represents() if is_value(subject) else subject
    name = error.member or getattr(found, "__name__", "")
    return not isinstance(name, str) or not name or name in expression or name.startswith("__")


def _may_compute_tensors(error: Unsupported) -> bool:
    """Whether a function or class is named that is neither Python's nor torch's."""
    if error.reason.category is not Category.CALL or error.subject is None:
        return False
    for key in keys_of(error.subject, error.member):
        module = key.__name__ if isinstance(key, ModuleType) else getattr(bare(key), "__module__", None)
        if isinstance(module, str):
            root = module.partition(".")[0]
            return root not in _KNOWN and root.lstrip("_") not in _KNOWN
    return False
