"""Training: what AOTAutograd does. A captured graph whose results need gradients becomes two compiled graphs.

Walk through it in this order: `autograd_graphs.py` (the records that flow between the steps), `joint.py` (forward and
backward traced together through autograd; `results.py` says where each result comes from), `partition.py` (which values
the forward saves and which the backward computes again, as decisions: `min_cut.py` finds the cheapest choice, with the
prices of `costs.py` and the flow of `max_flow.py`, `extract_forward_backward.py` splits the graph there,
`peak_memory.py` predicts its memory), `function.py` (the autograd node that stands in the program's own graph and runs
both; `autograd_metadata.py` says what it must know of them), `split_autograd_nodes.py` (several nodes in its place,
where that makes a difference), `result_dependence.py` and `dependent_results.py` (edges between results that depend on
each other), `autograd_epilogue.py` (views and new values of inputs, made around the node), `entry.py` (the callable
that does all of this), `eager.py` (the call repeated in eager, for a backward that must be differentiable itself).
"""
