"""The workbench in the terminal.

Read in this order: `session.py` (what is shown; independent of Textual), `outline.py` (the tree as plain rows),
`highlight.py`; then the widgets `line_view.py`, `code_view.py` and `outline_view.py`, which draw only visible rows;
then the screens: `panes.py` (the main one), `breaks_screen.py`, `answer_screen.py` (with the questions of `answers/`),
`act_screen.py` (replay, bisect, ...: the commands are in `acts.py`), `diff_screen.py`, `search_screen.py`,
`help_screen.py` and `palette.py`, with `key_bar.py` below each; `screens.py` loads them, `app.py` connects them,
`web.py` serves them to a browser, `editor.py` opens the person's editor, `plain.py` keeps recorded text plain. To add a
screen, write it in a file of its own and bind a key to it in `panes.py`. Nothing here imports torch, and nothing from a
recording is executed.
"""
