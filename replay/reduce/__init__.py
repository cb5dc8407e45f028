"""Makes what fails smaller, as long as it fails in the same way.

`ddmin.py` is the search, which knows nothing of what it reduces. For a person's Python: `source.py` is the text that
edits are applied to; `statements.py`, `expressions.py`, `unused.py` and `values.py` list edits, `units.py` puts one
function in the place of the whole, and `script.py` is the order in which all are tried. For a captured graph:
`subgraph.py` takes parts out of it, `graph.py` and `inputs.py` are the order. `minify.py` writes and verifies.
`loops.py` reduces the loops of one kernel.
"""
