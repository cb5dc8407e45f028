"""The workbench in the terminal.

Read in this order: `session.py` (what is shown; independent of Textual), `outline.py` (the tree as plain rows),
`highlight.py`; then the widgets `line_view.py`, `code_view.py` and `outline_view.py`, which draw only visible rows;
then the screens: `panes.py` (the main one), `breaks_screen.py`, `answer_screen.py` (with the questions of `answers/`),
`act_screen.py` (replay, bisect, ...), `diff_screen.py`, `search_screen.py` and `help_screen.py`; `app.py` connects
them. To add a screen, write it in a file of its own and bind a key to it in `panes.py`. Nothing here imports torch, and
nothing from a recording is executed.
"""
