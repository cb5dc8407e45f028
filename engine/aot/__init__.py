"""AOTAutograd's job: from a captured graph of torch calls to functional ATen graphs.

Read `aten_graph.py` (functionalization and decomposition) with `decompositions/`; `output_aliasing.py` and
`mutation_layout.py` (what a functional graph cannot express: aliases, mutations, layouts). `autograd/` is training
(joint graph, min-cut partitioner, autograd node), `subclasses/` wrapper subclasses, and `control_flow.py` splits graphs
with torch.cond and loops. `describe.py` makes the records. Where fake tensors and ATen's kernels disagree is known in
`operators/`.
"""
