"""The workbench in the terminal.

Walk through it in this order: `session.py` (what is shown, without a word of Textual), `outline.py` (the tree as plain
rows), `highlight.py`; then the widgets `line_view.py`, `code_view.py` and `outline_view.py`, which draw only the rows
that are seen; then the screens `panes.py`, `breaks_screen.py`, `search_screen.py` and `help_screen.py`; `app.py` puts
them together. Nothing here imports torch, and nothing from a recording is executed.
"""
