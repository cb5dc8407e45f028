"""Parts of a captured FX graph that need no running trace.

Read `subgraphs.py` (graphs inside the graph and what they lift), `autograd_plans.py` (what a node calls for a
torch.autograd.Function) and `backend_call.py` (what a backend receives, and what it returns).
"""
