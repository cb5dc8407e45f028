"""From records back to what runs: graphs, sizes, inputs, and the state of the process around them.

Read `graphs.py` (a recorded graph as one that runs), `inputs.py` with `memory.py` (tensors that share memory) and
`synthesized.py` (inputs whose values were not kept), `state.py` and `precision.py` (settings of the process);
`new_memory.py` fills memory that nobody wrote.

A recording is not trusted: graphs call only what is on a list (`allowed.py`), sizes are arithmetic (`sizes.py`), and
nothing is unpickled or compiled from its text.
"""
