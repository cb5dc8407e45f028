"""From scheduled groups to source code: `cpp/` for kernels on the CPU, `triton/` for kernels on a GPU, `wrapper.py` for
the Python that allocates and calls them, and `cpp_wrapper/` for the same in C++
(`python_steps.py`: single steps that it leaves to Python)."""
