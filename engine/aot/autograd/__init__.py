"""Training, as in AOTAutograd: a captured graph whose results need gradients becomes two compiled graphs.

Read in this order: `../../graphs/autograd_graphs.py` (the data types), `joint.py` (forward and backward traced together
through autograd, with `result_sources.py`: where each result comes from), `partition.py` (which values are saved for
the backward and which are recomputed, as decisions: `min_cut.py` finds the cheapest cut, with the prices of `costs.py`
and the flow of `max_flow.py`; `extract_forward_backward.py` splits the graph there, and `peak_memory.py` predicts its
memory), `saved_index_compression.py`, `function.py` (the autograd node that runs both halves; `autograd_metadata.py`
has what it must know of them), `split_autograd_nodes.py` (several nodes in its place, where that is observable),
`result_dependence.py` and `dependent_results.py` (edges between results that depend on each other),
`autograd_epilogue.py` (views and new values of inputs, outside of the node), `entry.py` (the callable that does all of
this), `eager.py` (the call repeated in eager, for double backward). `graph_walks.py` walks autograd's own graph, and
`describe.py` makes the record of the partition.
"""
