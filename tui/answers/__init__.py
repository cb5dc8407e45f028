"""The questions that people bring to a recording, each answered by rows with details: plain functions, no Textual.

`answer.py` has the types; `questions.py` the table of all questions: to add one, write a function that makes its rows,
in a file of its own, and add an entry. `../answer_screen.py` shows any of them.
"""
