"""Graphs with wrapper subclasses: tensors that hold other tensors (`__tensor_flatten__`), and define operators in
`__torch_dispatch__`.

The captured graph runs once on wrappers of fakes, and what their classes do is recorded as a graph of plain tensors
(`trace.py`), which is compiled like any other. Around it, inputs are flattened and results unflattened (`layout.py`,
`call.py`; `inputs.py`, `sizes.py`, `results.py` and `views.py` say of each where it comes from). Where gradients are
needed, autograd works on the wrappers, as in eager: forward and backward are two graphs of plain tensors around one
autograd node (`node.py`).
"""
