"""One module for each command: its docstring is the help, `EXAMPLE` ends it, `add_arguments` declares, `run` does."""
