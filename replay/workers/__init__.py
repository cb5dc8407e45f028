"""Runs cases in processes of their own, several at once, and remembers what came of them.

`server.py` is a process that has imported torch and the engine, and forks a child for each case (`in_child.py`: for a
whole command; `warm.py`: what is imported before); `client.py` and `pool.py` hand it cases, `scripts.py` runs scripts;
`memo.py` keeps outcomes by content; `progress.py` says how far a search is. `forked.py` answers one question in a
fork.
"""
