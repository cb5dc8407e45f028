"""What a recording is.

Walk through this room in this order: `records.py` (the typed records, one for each stage), `inner_graphs.py` (graphs
inside of graphs), `context.py` (how a compilation hands records and decisions over while it runs),
`external_exceptions.py` and `interruptions.py` (what the program's signal handlers, tracing functions and threads raise
meanwhile), `store.py` and `open_files.py` (how a recording lies on disk), then what reads it back: `recording.py`
(queries), `render.py` (records to lines of text), `provenance.py` (which line of one stage belongs to which line of
another).

Nothing here imports torch, Textual or any other room: a recording opens on a machine without torch.
"""
