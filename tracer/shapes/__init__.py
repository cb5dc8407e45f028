"""Fake tensors and symbolic shapes: which sizes of a frame's inputs are symbols, and what must hold of them.

Read `frame_shapes.py`: `DynamicPolicy` decides what is dynamic, `FrameShapes` makes the fake tensors of one attempt and
states the conditions on its symbols. `wrapper_subclasses.py` makes fake tensors of wrapper subclasses.
"""
