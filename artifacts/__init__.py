"""Recordings: what they contain, how they are written and read, and how they become text.

Read in this order: `stages.py` (the table of stages) and `records.py` (the typed records, with `record_base.py`,
`guard_records.py`, `run_records.py`), `inner_graphs.py` (graphs inside of graphs), `fx_graphs.py` (torch.fx graphs to
records); `context.py` (what the compiler calls to hand over records and decisions), `recorder.py` (where they go) and
`artifact.py` (the form in which records are stored), `function_times.py`, `decision_kinds.py`, `decision_words.py`,
`decision_links.py`, `subgraph_recorder.py` (records of a part), `external_exceptions.py` and `interruptions.py`
(exceptions of signal handlers, tracing functions and threads); `tables.py` and `store.py` (writing a recording),
`garbage.py`, `open_files.py`, `fork_lock.py`, `signature.py`, `process_liveness.py`.
Then what reads it: `database.py`, `decode.py` and `recording.py`, `selector.py` and `home.py` (which recording),
`files.py`, `facts.py` and `kept_stages.py`, `provenance.py` (which lines of the stages belong together), `summary.py`,
`search.py` with `word_scan.py`, `why.py` with `related_decisions.py`, `break_costs.py`, `break_edits.py`,
`guard_costs.py`, `failures.py`, `cuda_graphs.py`, `rank_groups.py`, `isolated_compiles.py`, `resumed.py` (questions),
`listing.py`, `render.py` and the other `render_*.py` (records to lines of text), `decompile.py` (bytecode to Python),
`diff/` (what differs), `html_report.py`, `chrome_trace.py` and `packing.py` with `redaction.py` (files to send),
`budget.py` (limits for CI).
`measured.py` and `profiles.py` are files beside a recording, `machine_lines.py` knows the lines of compiled kernels.
`input_names.py`, `rounding.py` and `weighted_cache.py` are small tools of these.

Nothing here imports torch, Textual or another room: a recording opens on a machine without torch.
"""
