"""The loop IR, between lowering and code generation.

Read `ir.py` (the data structures), `printer.py` and `parser.py` (its text form, which round-trips), `interpreter.py`
(the reference semantics) and `verifier.py` (well-formedness). `affine.py` has the linear index forms that lowerings
compute with, and `body_affine.py` recovers them from finished bodies.

`loop_nest.py` is what the scheduler makes of a group that runs on a CPU: an immutable tree of loops (`tiles.py` has its
tiles), with a text form (`loop_nest_text.py`), a reference interpreter (`loop_nest_interpreter.py`,
`reduction_states.py`) and a verifier (`loop_nest_verifier.py`).
"""
