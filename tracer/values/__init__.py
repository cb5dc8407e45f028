"""What stands for the program's objects while a frame is traced: one class for each kind of object.

`base.py` has the protocol; `build.py` turns a real object that the frame reads into a value, installing guards on what
was read.
"""
