"""What runs when a compiled graph is called: `entry.py` checks the conditions that kernels do not check, `runtime.py`
has the functions that generated wrappers call. `cuda_graphs/` captures and replays the launches of a GPU's graph,
`eager_twin.py` runs the captured graph instead where that is faster, `spans.py` marks kernels for torch's profiler, and
`complex_constants.py` makes complex constants of a graph. Kernels of a GPU: `triton_launcher.py` calls them through
torch's launcher, `cuda_kernels.py` machine code of a package through the driver (`cuda_driver.py`); `kernel_tables.py`
has the tables of those over many tensors."""
