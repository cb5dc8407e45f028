"""Values: what represents the user's objects while a frame is traced (Dynamo's VariableTrackers), one class for each
kind of object.

Read `core/` first: `core/base.py` is the protocol, `core/registry.py` builds a Value from a real object by a table of
types, with guards on what is read, `core/handlers.py` is the table of callables that are not interpreted,
`core/operators.py` applies Python's operators. Then the kinds, one folder each: `containers/`, `strings/`, `python/`
(functions, classes, instances with Python's own attribute lookup, builtins and the standard library), `numpy/` (arrays
as tensors), `torch/` (tensors, functions, modes; modules in `torch/nn/`, and `torch/higher_order/` operators) and
`third_party/`. Generators are nested frames, in `../interpreter/generators.py`. `build.py` is the entry point for the
interpreter. To support a function, add a handler; to support a type, add a builder.
"""
