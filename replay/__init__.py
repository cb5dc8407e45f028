"""Runs recordings again: stage by stage, compared with eager, on any device.

Floors, from the ground up: `recorded` (from records back to something that runs), `verdicts` (what two values are to
each other), `program` (the program itself, up to the recorded call), `ladder` (all stages on one input), `failures`
(what counts as the same failure), `workers` (cases in processes of their own), `repro` (anything recorded as a script
that runs by itself), `measure` (how long kernels take), `bisect` (which decisions are to blame) and `reduce` (a failure
in a few lines).

Recordings from elsewhere are not trusted: graphs call only what is on a list, and nothing is unpickled. Kernels are
generated again from the recorded graph and decisions and compared with the recorded ones; source text from a recording
is never compiled.
"""
