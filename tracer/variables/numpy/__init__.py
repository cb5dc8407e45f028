"""NumPy on tensors: an array is the memory of a tensor of the graph.

Read `ndarrays.py` first (arrays and their numbers), `dtypes.py` (NumPy's own promotion rules), `ufuncs.py` (element by
element, with one table), then `reductions.py`, `methods.py`, `shapes.py`, `indexing.py`, `creation.py`, `functions.py`.
`scalars.py` is for NumPy's scalars, `reversed.py` for views with negative steps.
"""
