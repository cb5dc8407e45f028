"""How fast graphs and kernels run, compiled and in eager, beside what this machine can do.

`machine.py` measures the machine once; `timing.py` times calls against each other; `regions.py` says what takes the
time of a compiled graph, and why it is slower than eager where it is.
"""
