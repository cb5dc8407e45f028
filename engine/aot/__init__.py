"""AOTAutograd's job: from a captured graph of torch calls to functional ATen graphs.

Read `aten_graph.py` (functionalization and decomposition) with `decompositions/`; `output_aliasing.py` and
`mutation_layout.py` (what a functional graph cannot express: aliases, mutations, layouts). `autograd/` is training
(joint graph, min-cut partitioner, autograd node), `attention/` chooses kernels for attention, `subclasses/` unwraps
wrapper subclasses. Two cut a graph into parts (`segments.py`): `control_flow.py` at torch.cond and loops,
`ddp_buckets.py` where a bucket of DistributedDataParallel is full. `real_tensors.py` lets a trace compute on real
tensors; `describe.py` makes the records. Where fake tensors and ATen's kernels disagree is known in `operators/`.
"""
