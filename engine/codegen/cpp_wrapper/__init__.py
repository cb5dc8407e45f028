"""The C++ wrapper: one function that allocates, calls the kernels beside it and ATen, with no Python in between.

It is enabled by `options={"cpp_wrapper": True}`, PyTorch's own name for it, and by default on a GPU and for graphs with
int8 layers. On the CPU it is part of the kernels' file, so it costs no second compiler call; for a GPU see `gpu/`.
Everything of torch is called through its stable C interface, whose functions are looked up by name in the libraries
that are loaded: no headers, nothing to link. The Python wrapper (`../wrapper.py`) is generated too: it handles rare
kinds of arguments, and raises the errors of a call.

Read `adding.py` (whether a graph gets one), `shim.py` (what torch's headers declare, and where its functions are),
`memory.py` (which buffers are plain memory and which tensors), `results.py` (what is returned), `magnitude.py` (whether
its integers fit 64 bits), `calls.py` (an ATen call; `dispatched.py`: one through the dispatcher), `attention.py` (a
call of ptdebug's kernel; `int8_calls.py`: of an int8 layer), `writer.py` (the graph as a C++ function), `caller.py`
(what Python calls), `entry.py` (the text that all wrappers share), `load.py` (how a library becomes callable),
`state.py` (what it needs besides, as data).
What has no such form keeps the Python wrapper, with the reason as a decision of kind "python-wrapper".
"""
