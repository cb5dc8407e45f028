"""Triton kernels from scheduled groups: the same `Group` that the C++ backend reads, as code for a GPU.

Read in this order: `form.py` normalizes a group for tiling; `tiling.py` chooses the tile (a decision); `kernel.py`
writes one kernel, with `emit.py` for statements, `dims.py` and `index.py` for indices and masks, `ops.py`,
`reductions.py` and `dtypes.py` for the tables of operators, reductions and dtypes, `values.py` for names, `prelude.py`
for the functions that kernels call; `split.py` splits rows over several programs; `foreach.py` writes horizontally
fused kernels; `generate.py` ties it together, and `source.py` is its result. `load.py` turns the text into functions,
`launch.py` calls them (on CUDA, or on the CPU in Triton's interpreter, with `interpreter_library.py`); `interpreted.py`
runs a group that has no kernel. `products/` has the kernels of matrix products, whose tiles `timing.py` compares on the
device; `plan_kernels.py` makes all kernels of a graph. `building.py` compiles each distinct kernel once, in a separate
process (`server.py`); `compile.py` compiles for a GPU that need not be present, and makes the records, with every form
on the way (`machine_code.py`) and the occupancy (`occupancy.py`).
"""
from ...unsupported import TritonUnsupported
from .building import warm_up
from .compile import describe_for_target, describe_kernel
from .generate import generate
from .interpreted import InterpretedGroup
from .launch import TritonKernel
from .machine_code import with_sass
from .plan_kernels import finished, kernels_for_plan
from .source import TritonSource
from .timing import begin_timing, generator

__all__ = [
    "InterpretedGroup", "TritonKernel", "TritonSource", "TritonUnsupported", "begin_timing", "describe_for_target",
    "describe_kernel", "finished", "generate", "generator", "kernels_for_plan", "warm_up", "with_sass",
]
