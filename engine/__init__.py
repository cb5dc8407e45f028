"""FX graph in, running machine code out: the jobs of AOTAutograd, PrimTorch and TorchInductor.

`compile.py` is the entry point and `stages.py` the table of contents. The folders are floors: each imports only what
stands below it (import-linter checks that). From the ground up:

- `toolchain/`: the C++ compiler call with its cache, and benchmarking of library calls.
- `kernels/`: hand-written C++ kernels (sgemm, flash attention, depthwise convolution gradients, mt19937).
- `graphs/`: the data types of functional graphs, and what is known of them: aliasing, data-dependent errors.
- `ir/`: the loop IR, with printer, parser, verifier and reference interpreter; linear index forms.
- `runtime/`: what generated wrappers call, and the checks before a compiled graph.
- `lowering/`: ATen operators to loop IR, and which values are realized.
- `scheduler/`: fusion, loop order, in-place writes, buffer reuse.
- `codegen/`: C++ and Triton kernels, the Python wrapper and the C++ wrapper.
- `passes/`: graph rewrites, among them freezing and the choice of extern kernels.
- `aot/`: functionalization, decompositions, and training graphs (joint graph, partitioner, autograd node).
- `graph_cache/`: compiled graphs on disk.
- `package/`: exported packages, as they are loaded and called.

A graph goes through them in the order aot, passes, lowering, scheduler, codegen, toolchain. What some stage cannot
compile is an exception of `unsupported.py`, and runs in eager; of an error that nobody expected, `failure_origin.py`
finds the stage and the node.
"""
