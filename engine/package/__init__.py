"""Exported packages: a compiled graph that runs without the Python that made it.

Read `structure.py` (nested arguments and results as plain data), `signature.py` (what an entry point takes and returns,
and the check of a call), `entry.py`, `archive.py` (the file: a zip of machine code, wrapper, weights and signatures),
`gpus.py` (the GPUs that it needs), `program.py` (a loaded package as a callable), `cpp_interface.py` and `native/`
(what programs without Python read, and what they read it with). None of it imports the tracer or the engine's compiler;
what makes a package is `cli/exporting.py`.
"""
from .archive import PackageError
from .program import Program, load
from .signature import InputError

__all__ = ["InputError", "PackageError", "Program", "load"]
