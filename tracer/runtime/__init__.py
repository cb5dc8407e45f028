"""The ground floor: what the tracer needs of CPython and torch while a frame is compiled, and nothing of the trace.

Read `eval_frame.py` first: the frame evaluation hook, and the only file that touches all of `torch._C._dynamo`'s
private interface to it. `skips.py` then says which frames are left alone, `global_modes.py` which modes of torch a
trace sets and restores. The rest protects the user's process while a frame is compiled: `rng_ops.py` (generators of
random numbers), `warning_filters.py`, `tracebacks.py`, `dispatch_modes.py` (other observers of the frame),
`device_guard.py`, and `dynamo_settings.py` (settings of Dynamo that are honoured). `per_code.py` and
`compile_wrappers.py` recognize code objects and compiled functions, `class_versions.py` and `tensor_members.py` classes
of torch that the program has changed; `statistics.py` counts.
"""
