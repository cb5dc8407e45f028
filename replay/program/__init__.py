"""The program itself, run again in eager in a process of its own, up to the recorded calls."""
