"""nn.Module: read `modules.py` first, then `hook_tables.py` (module hooks) and `recurrent.py` (recurrent layers over
sequences of varying length)."""
