"""Python bytecode in; FX graph, guards, graph breaks and rewritten bytecode out: TorchDynamo's job.

Walk through it in this order: `eval_frame.py` (the only file that touches torch's private frame hook), `convert.py`
(one frame, from code object to compiled entry), `interpreter.py`, `instructions.py`, `generators.py` and `opcodes/`
(symbolic interpretation), `finalizers.py` and `destructors.py` (what the program sees die), `graph.py`, `subgraphs.py`,
`runtime_asserts.py` (the FX graph, the graphs inside it, what it checks when it runs), `custom_op_state.py` (operators
of the program; what is known of torch's stands in the room `operators/`),
`global_modes.py` (the modes of torch that the program sets), `function_modes.py` and `dispatch_modes.py` (those that
are in force around a call), `values/` (what stands for the program's objects while they are traced), `source.py` and
`guards/` (what was read, and how it is checked on the next call), `side_effects.py`, `reconstruct.py`,
`output_code.py`, `resume_function.py`, `liveness.py` and `frame_introspection.py` (the rewritten bytecode, and which
variables it keeps), `reasons.py` (why tracing stopped, in the user's words), `bytecode_record.py` (what is recorded of
bytecode).
"""
