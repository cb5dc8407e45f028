"""Guards: the conditions under which a compiled entry may run again, and what to say when one fails.

While a frame is traced, values call `GuardBuilder.add(source, kind, value)` (`builder.py`). `kinds.py` is the table of
kinds: how each is checked in C++, how it reads as Python, what would avoid the recompilation that it causes. `read.py`
evaluates sources on a real frame. `tree.py` turns the collected guards into torch's C++ guard tree, in which each
object on the way to a guarded one is visited once; from a module on `python_guards.py` writes it as a Python function
(what a signal raises in there is kept by `interrupted.py`), and `fast_path.py` passes over what cannot have changed
while CPython's versions of the module's dicts have not (`versions.py`). `explain.py` says why a tree rejected a call,
`record.py` makes the records, `bytecode_record.py` puts objects into words.
"""
from .builder import GuardBuilder, GuardSpec
from .explain import explain_recompile
from .record import needed_by, record_guards
from .tree import build_tree

__all__ = ["GuardBuilder", "GuardSpec", "build_tree", "explain_recompile", "needed_by", "record_guards"]
