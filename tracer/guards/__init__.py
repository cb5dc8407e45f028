"""Guards: the conditions under which a compiled entry may run again, and the explanation when one fails.

While a frame is traced, values call `GuardBuilder.add(source, kind, value)` (`builder.py`). `kinds.py` is the table of
kinds: how each is checked in C++, how it reads as Python, and what would avoid the recompilation that it causes.
`read.py` evaluates sources in a real frame (`guarded_frame.py`). `build.py` turns the collected guards (`spec.py`) into
torch's C++ guard tree (`tree.py`), in which each object on the way to a guarded one is visited once; from a module on,
`python_guards.py` writes the guards as a Python function (`interrupted.py` keeps what a signal handler raises in
there), and `fast_path.py` skips what cannot have changed while CPython's dict versions have not (`versions.py`).
`conditions.py` compiles conditions on symbols, `settings.py` compares torch's global settings, `same_constants.py`
constants, `class_members.py` what classes of a library have; `filtering.py` lets the program choose
(`guard_filter_fn`). `explain.py` says why a tree rejected a call, `record.py` makes the records, `cost.py` measures,
and `describe.py` describes objects in a few words.
"""
from .build import build_tree
from .builder import GuardBuilder
from .cost import failures, measured
from .explain import explain_recompile
from .record import needed_by, record_guards
from .spec import GuardSpec

__all__ = [
    "GuardBuilder", "GuardSpec", "build_tree", "explain_recompile", "failures", "measured", "needed_by",
    "record_guards",
]
