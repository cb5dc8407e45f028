"""The loop IR, between lowering and code generation.

Read `ir.py` (the data structures), `printer.py` and `parser.py` (its text form, which round-trips), `interpreter.py`
(the reference semantics) and `verifier.py` (well-formedness). `affine.py` has the linear index forms that lowerings
compute with, and `body_affine.py` recovers them from finished bodies.
"""
