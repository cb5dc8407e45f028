"""The C++ wrapper: one function that allocates, calls the kernels beside it and ATen, with no Python between them.

It is asked for (`options={"cpp_wrapper": True}`, PyTorch's own name for it) and stands in the same file as the kernels,
so it costs no second compiler call. Everything of torch comes through its stable C interface, whose functions are found
by name in the libraries that are loaded: no header, nothing to link. The Python wrapper (`../wrapper.py`) is made too:
it answers for arguments of a kind that is rare, and raises what a call raises.

Walk: `adding.py` (whether a graph gets one), `shim.py` (what torch's headers declare, and where its functions are),
`memory.py` (which buffers are plain memory and which tensors), `results.py` (what is returned), `magnitude.py` (whether
its numbers fit), `calls.py` (a library call), `attention.py` (a call of our own kernel), `source_writer.py` (the graph
as a C++ function), `caller.py` (what Python calls), `entry.py` (the text that all have in common), `load.py` (how a
library becomes callable). What has no such form keeps the Python wrapper, with the reason as a decision of kind
"python-wrapper".
"""
