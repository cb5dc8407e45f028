"""Python itself: functions, classes, instances, exceptions, numbers, builtins and the standard library.

Read `functions.py`, `partials.py` and `builtin_functions.py` (callables), `objects.py`, `instances.py` and `classes.py`
(instances and classes), `exceptions.py`, then numbers: `symbolic_numbers.py` (SymInt), `floats.py` (floats as inputs),
`python_random.py`. `builtins.py`, `library.py` and `functional.py` are handlers of builtins and the standard library;
`c_polyfills.py` has Python versions of functions written in C. The rest are small, one topic each.
"""
