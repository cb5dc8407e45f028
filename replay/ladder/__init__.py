"""The stage ladder: every stage of one compilation on its recorded inputs, and where values first differ.

Read `ladder.py` first: it climbs, and asks the others. `training.py` and `control.py` do so with gradients, and around
torch.cond and loops; `replay.py` chooses among them, with `options.py`, and `contained.py` does it in a child process.
What runs: `regenerate.py` (the engine's stages made again), `unbacked.py` (data-dependent sizes), `rungs.py` (graphs,
node by node), `steps.py` (loop IR and kernels), `wrapper_steps.py` (the wrapper, line by line), `calls.py` (guards and
bytecode), `recorded_halves.py` (forward and backward as they were recorded), `entry.py` (calls that do not run what was
compiled), `kernels_elsewhere.py` (what only the recording's device has). What is compared with what: `reference.py`,
`pairs.py`. What a difference is: `explain.py`, `memory.py` with `arena.py`. Where it is: `locate.py` with
`statements.py` (inside of kernels), `derivatives.py`, `rewrites.py`, `births.py` (NaN). What is said of it:
`report.py`.
"""
