"""Runs recordings again: stage by stage, compared with eager, on any device.

Read in this order: `graphs.py`, `allowed.py`, `sizes.py` and `inputs.py` (from records back to something that runs),
`compare.py` (the verdict on two values: equal, rounding, different), `rungs.py` (for each stage, a way of running the
recorded graph), `pairs.py` (which values of a stage belong to which node), `ladder.py` (all rungs on one input, and
where values first differ), `training.py` and `control.py` (the same with gradients, and around torch.cond and loops),
`program.py`, `probe.py` and `places.py` (the program itself, up to the recorded call).

Recordings from elsewhere are not trusted: graphs call only what is on a list, and nothing is unpickled. Kernels are
generated again from the recorded graph and decisions and compared with the recorded ones; source text from a recording
is never compiled.
"""
