"""A suite of planted bugs: what ptdebug says of each (`run.py`)."""
