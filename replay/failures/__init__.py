"""What counts as the same failure: a case to be run, what came of it, and the signature by which failures are compared.

`case.py` has what is run (a graph with its inputs, or a script), `outcome.py` what can come of it, `signature.py` when
two outcomes are one failure, `observe.py` runs a graph's case in this process (`rebuild.py` makes its graph again,
`decisions.py` lists what its compilation decides). Searches (bisect, minify) change cases and look for the same
signature; they run them through `workers`.
"""
