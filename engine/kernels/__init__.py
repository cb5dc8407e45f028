"""Hand-written C++ kernels for operators where libraries are slow, each behind a custom operator that graphs call.

`custom_kernel.py` builds such a kernel when it is first called. Each kernel has a file with its operator and its Python
entry (`sgemm.py`, `attention.py`, `depthwise.py`, `int8_depthwise.py`; `int8.py` for oneDNN's) and, where it is long,
one with the C++ (`*_template.py`). `unaligned_product.py` needs no C++: it calls the library several times;
`tiled_product.py` stands for what generated loops compute. `mt19937.py` draws eager's random numbers with vector code.
`../passes/extern_kernels/` chooses between these and the libraries' kernels.
"""
