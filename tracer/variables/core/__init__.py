"""The protocol of values and the tables that the other folders fill.

Read `base.py` (Value, and the protocols of what it reaches through `tx`), `constant.py`, `registry.py` (real object to
Value), `handlers.py` (callables that are not interpreted), `operators.py` and `keys.py` (operators, equality, hashing),
`attributes.py` (attribute lookup) and `binding.py` (arguments to parameters). The rest are small: `identity_guards.py`,
`finalizers.py`, `opaque.py`, `disabled_functions.py`.
"""
