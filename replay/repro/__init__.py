"""Anything of a recording as a Python file that runs by itself, with its inputs beside it.

`spelling.py`, `names.py` and `graph_source.py` turn a graph into the source that a person would write; `tensors.py`
writes inputs; `check.py` is the part of a script that compares (its text is pasted); `script.py` puts the file
together. `graphs.py`, `passes.py`, `kernels.py`, `frames.py` and `events.py` are what can be written; `recorded.py`
finds what a selector names; `verify.py` runs a script in a fresh process and reads its outcome.
"""
