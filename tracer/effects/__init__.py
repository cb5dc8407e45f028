"""What traced code changed outside the graph, and the bytecode that makes it happen.

Read `side_effects.py` first (pending changes, replayed after the graph), then `reconstruct.py` (the code generator that
rebuilds values; Dynamo's codegen.py and PyCodegen). `random_inputs.py` runs calls of Python's `random` before the
graph, `aliasing.py` guards that distinct objects stay distinct, and `stack_slots.py` passes the value stack across a
break.
"""
