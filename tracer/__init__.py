"""Python bytecode in; FX graph, guards, graph breaks and rewritten bytecode out: TorchDynamo's job.

Walk through it in this order: `eval_frame.py` (the only file that touches torch's private frame hook), `convert.py`
(one frame, from code object to compiled entry), `interpreter.py`, `instructions.py`, `generators.py` and `opcodes/`
(symbolic interpretation), `finalizers.py` and `lifetimes.py` (what the program sees die), `graph.py`, `subgraphs.py`,
`function_plans.py` and `assumptions.py` (the FX graph, the graphs inside it, what it checks when it runs),
`refused.py`, `mixed_dtypes.py`, `narrow_numbers.py`, `overlap.py` and `strides_of_ones.py` (what fake kernels let pass,
and tell wrong), `own_operators.py` and `state_of_kernels.py` (operators of the program), `modes.py` (the modes of torch
that the program sets), `values/` (what stands for the program's objects while they are traced), `sources.py` and
`guards/` (what was read, and how it is checked on the next call), `side_effects.py`, `codegen.py`, `endings.py`,
`resume.py`, `liveness.py` and `looked_at.py` (the rewritten bytecode, and which variables it keeps), `breaks.py` (why
tracing stopped, in the user's words), `describe.py` (what is recorded of bytecode).
"""
