"""How fast graphs and kernels run, compiled and in eager, beside what this machine can do.

`machine.py` measures the machine once; `timing.py` times calls against each other, `stopwatch.py` many short ones, on
a GPU by what their kernels take. `regions.py` times a compiled graph: its kernels (`steps.py`), the operators of its
graphs (`nodes.py`), and which operators belong to which kernels (`twins.py`); `reasons.py` says why it is slower than
eager where it is. `flip.py` times another option of a decision.
"""
