"""Makes what fails smaller, as long as it fails in the same way.

`ddmin.py` is the search, which knows nothing of what it reduces; `source.py` is the person's Python as text that edits
are applied to, `statements.py` and `expressions.py` list edits, `script.py` is the order in which they are tried.
`graph.py` and `inputs.py` do the same for a captured graph.
"""
