"""What stands for the program's objects while a frame is traced: one class for each kind of object.

Walk through it in this order: `base.py` (the protocol), `constant.py` and `opcode_table.py` (from a real object to a
value by a table of types, with guards on what is read), `operators.py`; then the kinds: `tensor.py`,
`symbolic_numbers.py`, `sequences.py`, `lists.py`, `mappings.py`, `mapping_proxies.py`, `sets.py`, `functions.py`,
`partials.py`, `builtin_functions.py`, `attributes.py` and `objects.py` (instances, with Python's own lookup rules),
`instances.py`, `classes.py`, `enums.py`, `modules.py`, `exceptions.py`, `context_manager.py`. `handlers.py` is the
table of callables that are not interpreted; `builtins.py`, `iterators.py`, `library.py`, `einops.py`,
`torch_functions.py` fill it; `graph_functions.py` says which functions of torch become nodes. `ndarrays.py` and
`numpy_*.py` are NumPy on tensors, with a table each for functions by element, for reductions and for methods.
`build.py` is the door for the interpreter. To teach the tracer a function, add a handler; to teach it a type, add a
builder.
"""
