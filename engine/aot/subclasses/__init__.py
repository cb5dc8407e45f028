"""Graphs of wrapper tensors: those of classes that hold other tensors, and say in `__torch_dispatch__` what operators
make of them (`__tensor_flatten__`).

The captured graph runs once on wrappers of fakes, and what their classes do is written down as a graph of plain tensors
(`trace.py`), which is compiled like any other. Around it, inputs are taken apart and results put together
(`operand_layout.py`, `call.py`). Where gradients are needed, autograd works on the wrappers, as in eager: forward and
backward are two graphs of plain tensors around one autograd node (`node.py`).
"""
