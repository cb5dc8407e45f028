"""The kinds of decisions and the options that each has anywhere, by which an override is checked before anything runs.

One decision may have fewer (a product that cannot be packed). Where an option is made of names or numbers, its form is
a regular expression. `docs/decisions.md` says what each kind is about.
"""
from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from fnmatch import fnmatchcase

OPTIONS: dict[str, tuple[str, ...]] = {
    "frame": ("compile", "eager"), "dynamic": ("symbol", "number"), "unbacked": ("symbol", "break"),
    "random": ("input", "break"), "inline": ("inline", "break"), "compile": ("kernels", "eager"),
    "cache": ("compile",), "control": ("compiled", "eager"), "engine": ("compile", "eager"),
    "decompose": ("rule", "keep"), "budget": (r"\d+(\.\d+)?",), "save": ("save", "recompute"),
    "freezing": ("fold", "keep"), "pass": ("run", "skip"),
    "library": ("mm", "addmm", "bmm", "loops", "contiguous", "channels-last", "product", "mkl", "onednn", "mkl-packed",
                "own", "aten", "padded", "dense", "together", "apart", "packed", "as stored"),
    "lowering": ("loops", "extern"), "fallback": ("extern",), "rounding": ("float32", "eager"),
    "variance": ("two-pass", "welford"), "cat": ("masked", "parts"), "realize": ("realize", "inline"),
    "storage": ("bfloat16", "float16", "float32", "float64", "int8", "int64"), "fuse": ("fuse", "separate"),
    "foreach": ("one kernel", "separate"), "unroll": ("unroll", "loop"), "loop-order": (r"\w+(\W+\w+)*",),
    "pieces": ("pieces", "whole"), "tile": ("tiles", "lanes", "rows", r"[a-z]+(-\w+)+"),
    "vectors": ("512 bits", "256 bits"), "stores": ("through the cache", "past it"), "prefetch": ("next row", "none"),
    "scatter": ("serial", "loops", "owners"), "columns": ("added by rows", "a loop over columns"),
    "layout": ("transposed copy", "as it is"), "in_place": ("in place", "new memory"), "reuse": ("take", "allocate"),
    "vector-axis": ("inner", "lanes"), "parallel-loops": ("outer", "inner", "serial"), "split-reduction": (r"\d+",),
    "accumulators": (r"[1-9]\d*",), "inline-depth": (r"[1-9]\d*",), "recompile-limit": (r"[1-9]\d*",),
    "trace-limit": (r"[1-9]\d*",),
    "wrapper": ("python", "cpp"), "python_wrapper": ("python",), "launches": (r"\d+",),
}
FORMS = {"budget": "a number from 0.0 to 1.0", "loop-order": "the names of loops", "tile": "a tile of a Triton kernel",
         "launches": "a number", "split-reduction": "a number of pieces", "accumulators": "a number of accumulators",
         "inline-depth": "a number of calls", "recompile-limit": "a number of compilations",
         "trace-limit": "a number of steps"}
"""In words, the options that are forms."""


def problem(override: str, option: str) -> str:
    """What is wrong with an override (a decision's id, or a pattern of ids) and its option; "" where nothing is."""
    kind = override.partition(":")[0]
    kinds = [known for known in OPTIONS if fnmatchcase(known, kind)]
    if not kinds:
        return f"there is no kind of decision {kind!r}{_nearest(kind, OPTIONS)}"
    forms = len(kinds) == 1  # almost any word has the form of some kind's option
    if any(option in OPTIONS[known] or (forms and _fits(known, option)) for known in kinds):
        return ""
    names = ", ".join(dict.fromkeys(name for known in kinds for name in _words(known)))
    return f"{option!r} is no option of {kind}; the options are {names}"


def _fits(kind: str, option: str) -> bool:
    return any(_is_form(known) and re.fullmatch(known, option) for known in OPTIONS[kind])


def _is_form(option: str) -> bool:
    return "\\" in option


def _words(kind: str) -> list[str]:
    plain = [option for option in OPTIONS[kind] if not _is_form(option)]
    return [*plain, FORMS[kind]] if kind in FORMS else plain


def _nearest(word: str, known: Iterable[str]) -> str:
    near = difflib.get_close_matches(word, list(known), 1)
    return f" (did you mean {near[0]}?)" if near else f"; there are: {', '.join(known)}"
