"""Why tracing stops, as data: `Unsupported(Reason, subject, member)` is raised anywhere in the tracer.

Read in this order: `reasons` (the closed table of reasons, with code, message and hint of each: add one there),
`unsupported` (the exception), `hints` (what is said of particular functions, classes and modules), `situations` (what
is told from the program's text), `math_breaks` (what to write instead of a function of `math`), `explain` (the message
and hint of one break), `subjects` (how objects are named), `raised_errors` (the errors that the program itself sees).
"""
