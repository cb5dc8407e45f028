"""Which decisions are to blame: the smallest set of them whose forcing makes a failure go away.

`candidates.py` says what can be forced and what is suspected first, `search.py` is delta debugging, `narrow.py` applies
it to decisions. `blame.py` does so for one graph, `recorded.py` for a recording, `script.py` for a whole script.
"""
