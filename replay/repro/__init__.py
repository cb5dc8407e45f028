"""Anything of a recording as a Python file that runs by itself, with its inputs beside it.

`spelling.py`, `names.py`, `layout.py` and `graph_source.py` (with `autograd_source.py`) turn a graph into the source
that a person would write; `tensors.py` writes inputs, `state_source.py` the state of the process; `check.py` is the
part of a script that compares (its text is pasted; `check_event.py`, `check_kernel.py`, `check_loops.py`,
`check_pass.py` for other scripts); `script.py` puts the file together. `compilation.py`, `values.py` and
`regenerate.py` are what scripts are written from; for a person's own function also `program_source.py`,
`found_values.py` and `objects.py`. `graphs.py`, `passes.py`, `kernels.py`, `loops.py`, `frames.py` and `events.py` are
what can be written; `recorded.py` finds what a selector names; `verify.py` runs a script in a fresh process and reads
its outcome.
"""
