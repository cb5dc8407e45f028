"""Python bytecode in; FX graph, guards, graph breaks and rewritten bytecode out: TorchDynamo's job.

Walk through it in this order: `eval_frame.py` (the only file that touches torch's private frame hook), `convert.py`
(one frame, from code object to compiled entry), `interpreter.py`, `instructions.py`, `generators.py` and `opcodes/`
(symbolic interpretation), `finalizers.py` and `destructors.py` (what the program sees die), `graph.py`, `subgraphs.py`,
`autograd_plans.py` and `runtime_asserts.py` (the FX graph, the graphs inside it, what it checks when it runs),
`eager_checks.py`, `dtype_checks.py`, `scalar_overflow_checks.py`, `memory_overlap.py` and `size1_strides.py` (what fake
kernels let pass, and tell wrong), `custom_ops.py` and `custom_op_state.py` (operators of the program),
`global_modes.py` (the modes of torch that the program sets), `function_modes.py` and `dispatch_modes.py` (those that
are in force around a call), `values/` (what stands for the program's objects while they are traced), `source.py` and
`guards/` (what was read, and how it is checked on the next call), `side_effects.py`, `reconstruct.py`,
`output_code.py`, `resume_function.py`, `liveness.py` and `frame_introspection.py` (the rewritten bytecode, and which
variables it keeps), `reasons.py` (why tracing stopped, in the user's words), `bytecode_record.py` (what is recorded of
bytecode).
"""
