"""Parts of a captured FX graph that need no running trace.

Read `subgraphs.py` (graphs inside the graph and what they lift) and `backend_call.py` (what a backend receives, and
what it returns).
"""
