"""Operators that take functions: torch.cond and loops, autograd.Function, checkpoints, torch.func, flex attention.

Read `operator_table.py` (one entry for each operator), `higher_order_ops.py` (functions traced into graphs of their
own) and `autograd_function.py` first; the others are one operator or module of torch each.
"""
