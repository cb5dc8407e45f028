"""What is known of ATen operators that torch's schemas, tags and fake kernels do not say: one ground for all rooms.

Capture, the engine and replay ask here, and only here: what eager refuses, where a fake kernel promises another result
than eager's kernel gives, what an operator does beyond its result, and what it costs.

**To add a fact about an operator**, add its name to a row of `traits.py`, or add a row. A kind of check or layout that
no row mentions yet is one more function in `argument_checks.py` (what eager refuses), `untrusted.py` (results that no
layout can correct), `layouts.py` (strides; `size1_strides.py` where sizes are one) or `symbolic_meta.py` (meta kernels
for sizes that vary).

Walk through it in this order: `traits.py` (the record of one operator, and the table), `checks.py` (raises where eager
raises), `meta.py` (corrects what fake kernels say), `fake_mode.py` (a fake tensor mode that does both), `effects.py`
(random numbers, writes, data-dependent errors), `probing.py` (asks eager itself, on a few zeros: needs no list; try it
first), `overlap.py` and `refused_writes.py` (elements that share memory), `unbacked.py` (unbacked symbols),
`custom_ops.py` (operators that are not torch's). `autograd_plans.py` and `graph_calls.py` hold what a graph may call
that is no operator: ptdebug's own. `dynamo_stubs.py` lets torch's fake tensors and guard tree work without importing
TorchDynamo.

Nothing here imports another room but artifacts.
"""
