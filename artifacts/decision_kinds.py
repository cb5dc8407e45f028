"""The kinds of decisions and the options that each has anywhere, by which an override is checked before anything runs.

One decision may have fewer options (a weight that cannot be packed). Where an option is made of names or numbers, its
form is a regular expression. `decision_words.py` says in one line what each kind is about, `docs/decisions.md` in more.
"""
from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from fnmatch import fnmatchcase

CPP_WRAPPER_ASKED = "the option cpp_wrapper is on"
"""Why a graph has a C++ wrapper that would have none by default."""

OPTIONS: dict[str, tuple[str, ...]] = {
    # the tracer
    "frame": ("compile", "eager"), "dynamic": ("symbol", "number"), "unbacked": ("symbol", "break"),
    "random": ("input", "break"), "inline": ("inline", "break"), "inline-depth": (r"\d+",),
    "recompile-limit": (r"\d+",), "trace-limit": (r"\d+",),
    # stock's own: a setting of Inductor
    "config": (r"[^\n]*",),
    # whole graphs
    "compile": ("kernels", "aten", "eager"), "control-flow": ("compiled", "eager"), "ddp-bucket": ("cut", "join"),
    "memory-budget": (r"\d+(\.\d+)?",),
    "freezing": ("fold", "keep"), "eager-twin": ("compiled", "eager"), "wrapper": ("python", "cpp"),
    "cudagraphs": ("capture", "launch"),
    # ATen operators
    "decompose": ("rule", "keep"), "save-for-backward": ("save", "recompute"), "pass": ("run", "skip"),
    "lowering": ("loops", "extern"), "intermediate-precision": ("float32", "eager"),
    "variance": ("two-pass", "welford"), "concat": ("masked", "parts"), "realize": ("realize", "inline"),
    "storage": ("bfloat16", "float16", "float32", "float64", "int8", "int64"), "in-place": ("in-place", "new-buffer"),
    # kernels of libraries
    "matmul": ("mkl", "onednn", "mkl-packed", "ptdebug"), "triton-matmul": ("library", "tiles", "rows"),
    "bmm-to-mm": ("mm", "bmm"), "unfuse-addmm": ("mm", "addmm"),
    "pad-mm": ("padded", "interleaved", "unpadded"), "conv-layout": ("contiguous", "channels-last", "matmul"),
    "int8": ("int8", "dequantized"), "int8-depthwise": ("ptdebug", "onednn"), "prepack": ("packed", "as-stored"),
    "sdpa": ("aten", "ptdebug", "cudnn", "flash", "efficient", "math"), "sdpa-mask": ("as-given", "dropped", "causal"),
    "weight-grad": ("fused", "split"), "conv-bias": ("loops", "library"),
    "epilogue": ("library", "loops"),
    # the schedule
    "fuse": ("fuse", "separate"), "horizontal-fusion": ("fuse", "separate"), "column-sum": ("by-rows", "by-columns"),
    "operand-layout": ("transposed-copy", "as-is"), "loop-order": (r"\w+(,\w+)*",), "unroll": ("unroll", "loop"),
    "reuse": ("take", "allocate"),
    # generated kernels
    "split-loop": ("split", "whole"), "tile": ("tiles", "lanes", "rows", r"[a-z]+(-\w+)+"),
    "vector-width": ("512-bit", "256-bit"), "store-policy": ("temporal", "nontemporal"),
    "gather-loop": ("in-order", "vectors"), "row-blocks": ("blocks", "one-by-one"),
    "prefetch": ("next-row", "none"), "scatter": ("serial", "parallel-loops", "owner-computes"),
    "vector-axis": ("inner", "lanes"), "parallel-loops": ("outer", "inner", "serial"), "split-reduction": (r"\d+",),
    "accumulators": (r"\d+",), "invariant-masks": ("by-lane", "once"),
    "half-conversion": ("blocked", "elementwise"), "scan-algorithm": ("blocked", "sequential"),
    # facts: there was nothing else to choose
    "cache": ("load", "compile"), "engine": ("compile", "eager"), "fallback": ("extern",),
    "python-wrapper": ("python",),
    "kernel-launches": (r"\d+",),
}
OF_TRACER = ("random", "unbacked", "dynamic", "inline", "frame")
"""Kinds that are decided before there is a graph."""

BEFORE_GRAPH = (*OF_TRACER, "inline-depth", "recompile-limit", "trace-limit")
"""The same, with the limits: to decide otherwise, the program has to run again."""

FORMS = {"memory-budget": "a number from 0.0 to 1.0", "loop-order": "the names of loops",
         "tile": "a tile of a Triton kernel", "kernel-launches": "a number",
         "split-reduction": "a number of pieces", "accumulators": "a number of accumulators",
         "inline-depth": "a number of calls", "recompile-limit": "a number of compilations",
         "trace-limit": "a number of steps"}
"""In words, the options that are forms."""

COMPILE = re.compile(r"[\d*?]+/[\d*?]+:")
"""What an override begins with that is for one compilation."""

RENAMED: dict[str, tuple[str, ...]] = {
    "budget": ("memory-budget",), "cat": ("concat",), "columns": ("column-sum",), "control": ("control-flow",),
    "foreach": ("horizontal-fusion",), "halves": ("half-conversion",), "in_place": ("in-place",),
    "launches": ("kernel-launches",), "layout": ("operand-layout",),
    "library": ("matmul", "bmm-to-mm", "unfuse-addmm", "lowering", "pad-mm", "prepack", "conv-layout", "sdpa",
                "weight-grad"),
    "pieces": ("split-loop",), "python_wrapper": ("python-wrapper",), "rounding": ("intermediate-precision",),
    "save": ("save-for-backward",), "scan": ("scan-algorithm",), "stores": ("store-policy",),
    "vectors": ("vector-width",),
}
"""The kinds that have (or were divided into those that have) another name now."""

RENAMED_OPTIONS = {
    ("column-sum", "added by rows"): "by-rows", ("column-sum", "a loop over columns"): "by-columns",
    ("half-conversion", "in blocks"): "blocked", ("half-conversion", "in the loop"): "elementwise",
    ("horizontal-fusion", "one kernel"): "fuse", ("in-place", "in place"): "in-place",
    ("in-place", "new memory"): "new-buffer", ("operand-layout", "transposed copy"): "transposed-copy",
    ("operand-layout", "as it is"): "as-is", ("prefetch", "next row"): "next-row",
    ("scan-algorithm", "in blocks"): "blocked", ("scan-algorithm", "one by one"): "sequential",
    ("scatter", "loops"): "parallel-loops", ("scatter", "owners"): "owner-computes",
    ("split-loop", "pieces"): "split", ("store-policy", "through the cache"): "temporal",
    ("store-policy", "past it"): "nontemporal", ("vector-width", "512 bits"): "512-bit",
    ("vector-width", "256 bits"): "256-bit",
}
_PREFIXES = {"attention-": "sdpa", "packed-": "prepack", "product-": "matmul", "rows-": "pad-mm",
             "weight-": "weight-grad"}
"""How subjects of the kind "library" began, and the kinds that took their place."""


def problem(override: str, option: str) -> str:
    """What is wrong with an override (a decision's id, or a pattern of ids) and its option; "" where nothing is."""
    override = COMPILE.sub("", override)
    kind, _, subject = override.partition(":")
    if kind in RENAMED:
        return f"decisions of kind {kind!r} are now of kind {_new_name(kind, subject, option)}"
    kinds = [known for known in OPTIONS if fnmatchcase(known, kind)]
    if not kinds:
        return f"there is no kind of decision {kind!r}{_nearest(kind, OPTIONS)}"
    forms = len(kinds) == 1  # almost any word has the form of some kind's option
    if any(option in OPTIONS[known] or (forms and _fits(known, option)) for known in kinds):
        return ""
    if (kind, option) in RENAMED_OPTIONS:
        return f"the option {option!r} of {kind} is now {RENAMED_OPTIONS[kind, option]!r}"
    names = ", ".join(dict.fromkeys(name for known in kinds for name in _words(known)))
    return f"{option!r} is no option of {kind}; the options are {names}"


def _new_name(kind: str, subject: str, option: str) -> str:
    """The override in today's words: `matmul:mm_1 = "mkl"`; of several kinds, those that have such an option."""
    for prefix, new in _PREFIXES.items() if kind == "library" else ():
        if subject.startswith(prefix):
            return f'{new} ("{new}:{subject.removeprefix(prefix)}"; options {", ".join(_words(new))})'
    kinds = RENAMED[kind]
    fitting = [new for new in kinds if option in OPTIONS[new]] or list(kinds)
    if len(fitting) > 1:
        return ", ".join(fitting)
    (new,) = fitting
    return f'{new} ("{new}:{subject}"; options {", ".join(_words(new))})'


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
