"""The symbolic interpreter: runs a frame's bytecode on Values.

Read `interpreter.py` (frames, inlined calls, exceptions), then `opcodes/` (one handler for each instruction) and
`generators.py` (nested frames that are stepped). `suspended_generators.py` rebuilds generators in flight,
`destructors.py` finds objects whose death is observable, `frame_introspection.py` functions that read their callers'
variables, `coroutines.py` which functions make generators; `limits.py` says how far one frame is traced;
`bytecode_record.py` and `step_log.py` make the records (`value_texts.py` has a value in one line).
"""
