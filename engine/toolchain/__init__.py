"""The ground floor: what turns C++ text into loaded functions, and what measures library calls on this machine.

Read `cpp_build.py` (compiler, flags, cache of shared libraries), then `benchmarking.py` (times of extern kernels, kept
on disk; `device_benchmarking.py` for a GPU). `triton_cache.py` is where compiled Triton kernels are.
`device_guard.py` lets graphs of a GPU be traced where there is none.
"""
