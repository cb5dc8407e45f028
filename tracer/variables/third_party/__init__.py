"""Packages other than torch and NumPy, one file each. What is not here is interpreted like any Python."""
