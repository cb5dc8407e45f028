"""The graph cache: compiled graphs on disk, so that a second process runs what the first one compiled.

Read `cache.py` (find a graph, or compile and keep it), `key.py` (the key: a hash of everything that a compilation
depends on, with `values.py` and `state.py`), `half.py` and `parts.py` (a compiled graph as data, and back; `gpu.py` and
`kernel_data.py` for its Triton kernels, `found_kernels.py` for those whose machine code is on disk), `sizes.py` (guards
that compiling added) and `disk.py` (the files); for packages `flow.py` and `control_flow.py` (a graph with torch.cond
or loops as data) and `machine_code.py` (what Triton's compiler makes of its kernels). `history.py` knows what this
process has compiled, and `bundle.py` puts it into one file for other machines (`checked_zip.py`). Why a graph is not
cached is a decision of kind "cache". A recorded run keeps the stages' records beside the graph, and loads both or
compiles: a graph that was compiled unrecorded has no records, and a recording shows every stage.
"""
