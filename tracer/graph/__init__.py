"""The FX graph of one attempt to trace a frame.

Read `graph.py`: every node is made there, with its fake result (`nodes.py`: what nodes are made of). `current_gpu.py`
guards which GPU "cuda" without a number was. `data_dependent_errors.py` finds operators that raise for some data only,
where the user's code would catch the error.
"""
