"""CPython bytecode as data: decoding, encoding, and the code of resume functions.

Read `instructions.py` first (decoded instructions, jump targets, the exception table), then `assembly.py` (CPython's
encoding of 3.11 to 3.13, in both directions), `liveness.py` (which variables are still read), `unbound_slots.py` (stack
positions across a break) and `resume_function.py` (the rest of a frame as a function). `opcode_table.py` is the table
of handlers that `../interpreter/opcodes/` fill.
"""
