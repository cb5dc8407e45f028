"""Runs a person's script again and again, compiled and in eager, and tells what came of it.

`forks.py` forks this process, which has imported torch and the compiler, for each run; `child.py` is what happens in
the fork; `events.py` are the values that are compared between the two runs, `calls.py` the arguments of the script's
own functions; `compared_calls.py` and `served_calls.py` compare single calls, and `blaming.py` says what of a
compilation a wrong call comes from; `copies.py` runs something in a copy of this process. `judge.py` knows which
outcome is looked for and remembers those that it has seen; `minify.py` reduces a script, and `report.py` writes and
verifies the result.
"""
