"""The front door: one file for each command, and what wires tracer to engine to recorder.

Walk through this room in this order: `main.py` (finds the command and loads only that one), `commands/` (one file
each), then what `ptdebug run` is made of: `launch.py` (runs a program as `python` would), `recorded_run.py` (the
recording before it, the summary after it), `interpose.py` (acts when the program imports torch),
`torch_compile_patch.py` (what takes the place of `torch.compile`), `session.py` (this process's recorder and settings),
`wiring.py` (hands the engine to the tracer). `api.py` is the Python interface, `module.py` a compiled `nn.Module`,
`torch_trace_import.py` records what PyTorch's own compiler does, `subprocesses.py` takes multiprocessing's children
along.
"""
