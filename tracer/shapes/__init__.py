"""Fake tensors and symbolic shapes: which sizes of a frame's inputs are symbols, and what must hold of them.

Read `dynamic_policy.py` (what is dynamic), then `frame_shapes.py` (the fake tensors of one attempt, and the conditions
on its symbols), which is made of `fake_mode.py`, `shape_env.py` and `conditions.py`. `wrapper_subclasses.py` knows
wrapper subclasses, and `fake_wrappers.py` makes fake tensors of them.
"""
