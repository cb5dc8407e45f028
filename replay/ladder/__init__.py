"""The stage ladder: every stage of one compilation on its recorded inputs, and where values first differ.

`rungs.py` has a way of running for each stage, `pairs.py` says which values of a stage belong to which node,
`ladder.py` climbs; `training.py` and `control.py` do so with gradients, and around torch.cond and loops.
"""
