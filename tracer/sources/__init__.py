"""Sources: where each traced value comes from, as an expression over the frame's locals `L` and globals `G`.

Read `source.py` first: each kind of source says how it is read, loaded by bytecode, named, and reached by torch's C++
guard tree. `roots.py` has those that start at the frame, `computed.py` numbers that bytecode computes. `shelves.py`
divides large containers in the guard tree, `source_functions.py` has what sources call, `cached_results.py` reads
functools caches, `display_names.py` names locations as the user would. `mapping_proxies.py`, `weak_proxies.py` and
`array_memory.py` reach the object behind a proxy, and an array's memory as a tensor.
"""
