"""Takes a recording and runs it again: stage by stage, against eager, on any device.

Walk through it in this order: `graphs.py` and `inputs.py` (from records back to something that runs), `compare.py` (are
two values equal, apart by rounding, or different), `rungs.py` (one way of running the recorded graph for each stage),
`pairs.py` (which value of a stage is which node's), `ladder.py` (all rungs on one input, and where values first
differ), `training.py` and `control.py` (the same with gradients, and around torch.cond and loops), `program.py`,
`probe.py` and `places.py` (the program itself, up to the recorded call).

A recording is data, and data from elsewhere is not trusted: graphs are rebuilt from a list of known modules only, and
nothing is unpickled. Kernels are generated again from the recorded graph and decisions, and what is generated is
compared with what was recorded; source text from a recording is never compiled.
"""
