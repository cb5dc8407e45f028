"""What runs when a compiled graph is called: `entry.py` checks the conditions that kernels do not check, `runtime.py`
has the functions that generated wrappers call."""
