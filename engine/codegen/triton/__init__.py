"""Triton kernels from scheduled groups: the same `Group` that the C++ side reads, as code for a GPU.

Walk through it in this order: `form.py` brings a group into the shape that tiles want; `tiling.py` chooses the tile (a
decision); `kernel.py` writes one kernel, with `emit.py` for statements, `dims.py` for positions and masks, `ops.py` and
`reductions.py` for the tables of operators; `split.py` lets several programs share a row; `generate.py` ties it all
together. `load.py` makes functions of the text, `launch.py` calls them (on CUDA, or on the CPU in the interpreter).
`building.py` has them compiled, each kind of kernel once, by `server.py`, another process; `compile.py` compiles them
for a GPU that need not be there and records every form on the way.
"""
from ...unsupported import TritonUnsupported
from .building import warm_up
from .compile import describe_for_target, describe_kernel
from .generate import generate
from .launch import TritonKernel, kernels_for_plan
from .source import TritonSource

__all__ = [
    "TritonKernel", "TritonSource", "TritonUnsupported", "describe_for_target", "describe_kernel", "generate",
    "kernels_for_plan", "warm_up",
]
