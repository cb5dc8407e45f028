"""FX graph in, running machine code out: the jobs of AOTAutograd, PrimTorch and TorchInductor.

Walk through it in the order of the stages, which `compile.py` lists like a table of contents: `aten_graph.py`
(functionalize and decompose), `passes/` (graph rewrites), `lowering/` (ATen to loop IR), `ir.py` (the loop IR itself,
with printer, parser, verifier and interpreter beside it), `scheduler/` (what is fused with what), `cpp/` and `triton/`
(code generation), `cpp_build.py` (the compiler call and its cache), `wrapper.py` (what allocates and calls;
`runtime.py`: what it calls), `graph_cache/` (whole graphs on disk, for the next process). `wrappers/` comes before all
of these where tensors are made of others.
"""
