"""CUDA graphs: a compiled graph's launches are captured once and then replayed, each call with one launch.

`policy.py` decides what a call does (run the wrapper, capture it, replay a capture) from addresses and from which
results are still in use: it knows nothing of CUDA. `capture.py` does it with torch's CUDA graphs. `runner.py` is the
callable between them, `made.py` one capture, `statistics.py` what became of all of them, for `ptdebug cudagraphs`.
`conditions.py` says which graphs can be captured, `facts.py` what must be known of one.

Memory: captures for one stream share a pool (`pool.py`), and write nothing else but the inputs that their graphs
mutate. What a replay could spoil is known, and it does not run while any of that is in use.
"""
