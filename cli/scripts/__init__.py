"""Runs a person's script again and again, compiled and in eager, and tells what came of it.

`forks.py` forks this process, which has imported torch and the compiler, for each run; `child.py` is what happens in
the fork; `events.py` are the values that are compared between the two runs; `judge.py` knows which outcome is looked for
and remembers those it has seen. `project.py` finds the files that a script consists of.
"""
