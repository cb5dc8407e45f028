"""The commands, the Python interface, and what connects tracer, engine and recorder.

Read in this order: `main.py` (finds the command and loads only that one), `commands/` (one module each), then what
`ptdebug run` is made of: `launch.py` (runs a program as `python` would), `recorded_run.py` (the recording before it,
the summary after it), `interpose.py` (acts when the program imports torch), `torch_compile_patch.py` (replaces
`torch.compile`), `session.py` (the recorder and settings of this process), `wiring.py` (connects the engine to the
tracer). `api.py` is the Python interface, `module.py` a compiled `nn.Module`, `torch_trace_import.py` records what
PyTorch's own compiler does, `subprocesses.py` records multiprocessing's children.
"""
