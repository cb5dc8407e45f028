"""The program itself, run again in eager in a process of its own, up to the recorded calls.

`program.py` is the rung; `probe.py` runs the program, `places.py` finds recorded values in its frames, and
`identity.py` knows a recorded call again; `effects.py` is what a call leaves behind. `lines.py` compares line by line,
and `served.py` runs the program through the tracer.
"""
