"""Strings that vary from call to call; constant strings are in `../core/constant.py`.

Read `strings.py` (str and repr, strings with varying numbers), `format_strings.py` (`str.format` and `%`) and
`tensor_strings.py` (strings of tensors' values).
"""
