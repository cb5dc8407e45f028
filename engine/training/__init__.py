"""Training: what AOTAutograd does. A captured graph whose results need gradients becomes two compiled graphs.

Walk through it in this order: `graphs.py` (the records that flow between the steps), `joint.py` (forward and backward
traced together through autograd), `partition.py` (which values the forward saves and which the backward computes again:
a minimum cut, with `costs.py`), `function.py` (the autograd node that stands in the program's own graph and runs both).
"""
