"""From records back to what runs: graphs, sizes, inputs, and the state of the process around them.

A recording is not trusted: graphs call only what is on a list (`allowed.py`), sizes are arithmetic (`sizes.py`), and
nothing is unpickled or compiled from its text.
"""
