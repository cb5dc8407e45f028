"""The data types of the engine's graphs, without the code that makes them: a graph loaded from disk needs only these.

Read `functional_graph.py` (the functional ATen graph and where each result comes from), `autograd_graphs.py` (joint
graph and its two halves), `wrapper_source.py` (generated Python with provenance). The others answer one question each
about a graph: `aliasing.py`, `data_dependent_errors.py`, `random_fills.py`. `on_device.py` moves a captured one to
another device.
"""
