"""What two values, and two runs, are to each other: equal, apart by rounding, or different, and why.

`compare.py` has the verdict, `classes.py` what made two values differ, `nonfinite.py` where NaN is born, `unwritten.py`
what of a value nobody has written.
"""
