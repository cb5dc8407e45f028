"""One module for each command: docstring and EXAMPLE are its help, `add_arguments` declares arguments, `run` runs it.

The table of commands is in `main.py`.
"""
