"""One module for each command: its docstring and EXAMPLE are the help, `add_arguments` declares arguments, `run` runs it.

The table of commands is in `main.py`.
"""
