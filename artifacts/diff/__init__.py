"""What differs between two stages, two compilations or two recordings, by structure and not by text.

From the ground up: `changes.py` (a difference, and the differences of two keyed lists), `matching.py` (which node of
one graph is which of the other), `program_text.py` (by the program's own lines), `write_order.py` (reads that a write
moved past), `graphs.py` and `code.py` (the differences of two graphs, and of two texts of code), `kernels.py` (kernels
that were split or joined), `stages.py` (a table: how each type of record is compared), `compilations.py` (two
compilations), `recordings.py` (which compilation is which, and two recordings), `ranks.py` (the ranks of a distributed
program), `summary.py` (sentences that a person reads in ten seconds), `render.py` (listings).
"""
