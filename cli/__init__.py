"""The commands, the Python interface, and what connects tracer, engine and recorder.

Read in this order: `main.py` (finds the command and loads only that one), `commands/` (one module each), then what
`ptdebug run` is made of: `launch.py` (runs a program as `python` would), `recorded_run.py` (the recording before it,
the summary after it), `interpose.py` (acts when the program imports torch), `torch_compile_patch.py` (replaces
`torch.compile`), `session.py` (the recorder and settings of this process), `wiring.py` (connects the engine to the
tracer). `api.py` is the Python interface, `module.py` a compiled `nn.Module`, `compile_options.py` what `compile`
accepts, `exporting.py` makes packages, `serving.py` warms up and bundles caches. `subprocesses.py` and `child_startup/`
record child processes, `torch_trace_import.py` what PyTorch's own compiler does (`trace_import.py`: from files that it
wrote), `torch_settings.py` says which of PyTorch's settings are honoured, `dynamo_compatibility.py` answers Dynamo's
introspection. `checks.py` is `doctor`, `scripts/` runs a script again and again, for `minify`. The others serve one
command or one option of `run` each, which their first lines name, or all of them (`settings.py`, `printing.py`,
`errors.py`).
"""
