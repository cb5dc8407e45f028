"""Containers and iterators: dicts, lists, tuples, sets, deques, slices, and what steps over them.

Read `sequences.py` (what sequences share; tuples), `lists.py`, `deques.py`, `slices.py`; `mappings.py` with `dicts.py`,
`dict_methods.py`, `dict_views.py`, `dict_iterators.py` and `mapping_proxies.py`; `sets.py` with `set_views.py`; then
`iterators.py`, `sequence_iterators.py`, `object_iterators.py` and itertools (`itertools_combinations.py`,
`itertools_splitting.py`). Items of an existing container are read, and guarded, when traced code first reads them.
"""
