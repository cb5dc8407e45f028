"""The top floor: what happens to a frame that the hook intercepts.

Read `convert.py` first (the stages of one frame, from its code object to the code that replaces it;
`root_interpreter.py` is the outermost interpreter), then
`output_code.py` (how the new code ends: return, or break and resume), `continuation.py` (how the parts of a broken
frame call each other), `eager_fallback.py` (a graph that raises is repeated in eager), `compilation.py` (one attempt,
with its record) and `dispatch.py` (the hook's callback, recompilation limits, the public functions).
`visible.py` gives each callable a frame that the hook sees, `break_search.py`, `break_records.py` and
`frame_records.py` report breaks and frames, `function_modes.py` handles modes that are active around a call,
`random_state.py` keeps Python's `random` as the program left it,
`stances.py` what calls do instead of compiling, and `registry.py` holds what was compiled.
"""
