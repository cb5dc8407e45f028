"""The C++ wrapper of a graph on a GPU: the same function around launches of Triton kernels.

A launch is a call of the driver, with what each kernel is on this device (its handle, threads, shared memory) in a
table that `load.py` fills after loading: the text depends on none of it, and is cached. What is rare is done by
Python, which the C++ calls: kernels at unaligned addresses, with indices of 64 bits, over tables, or that no compiler
has made; and ATen calls that have no function in torch's C interface (`../../python_steps.py`). In a package each
kernel is compiled for those addresses and indices too, so that the C++ launches it.

Read `text.py` (the C++ that these wrappers share), `writer.py` (the graph), `launches.py` (how a graph gets one),
`load.py` (how it becomes callable, also from a package).
"""
