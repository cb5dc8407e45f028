"""Kernels of matrix products: a tile of the result for each program, with `tl.dot`.

`form.py` finds the operands of the product in a group; `tiling.py` has the tiles that are worth trying, and chooses one
by estimates or by what was measured; `kernel.py` writes the kernel.
"""
