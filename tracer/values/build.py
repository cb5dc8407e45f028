"""The room's door for the interpreter: real objects, results of nodes, and what the bytecode makes, as Values.

Importing this module imports every kind of value, which fills the tables of `registry.py` and `handlers.py`.
"""
from __future__ import annotations

from . import (  # noqa: F401  (they fill the tables)
    accessors,
    assigned_tensors,
    autograd_function,
    builtins,
    checkpoint,
    chosen_rows,
    class_statements,
    classes,
    combining,
    context_variables,
    copying,
    dict_methods,
    drawn,
    einops_patterns,
    floats,
    functional,
    functorch,
    hook_tables,
    iterators,
    legacy_constructors,
    library,
    mapping_proxies,
    math_functions,
    modules,
    numpy_creation,
    numpy_functions,
    numpy_indexing,
    numpy_methods,
    numpy_reductions,
    numpy_reversed,
    numpy_scalars,
    numpy_shapes,
    numpy_ufuncs,
    optimizers,
    pytree,
    recurrent,
    regions,
    rewritten,
    splitting,
    tensor_hooks,
    tensor_subclasses,
    text_templates,
    torch_function_modes,
    torch_functions,
    torch_modes,
    weak_references,
    written_in_c,
)
from .base import Value
from .builtins import format_value
from .constant import REGISTRY, constant
from .exceptions import make_exception
from .functions import make_function
from .lists import make_list
from .mappings import make_dict
from .registry import build, from_python, wrap_result
from .sequences import make_tuple
from .sets import make_set
from .slices import SliceValue
from .texts import joined

__all__ = [
    "build", "constant", "format_value", "from_python", "joined", "make_dict", "make_exception", "make_function",
    "make_list", "make_set", "make_slice", "make_tuple", "wrap_result",
]  # fmt: skip


def make_slice(tx: object, parts: list[Value]) -> Value:
    """A slice made by BUILD_SLICE."""
    padded = [*parts, constant(None)] if len(parts) == 2 else parts
    return SliceValue(padded)


REGISTRY["make_tuple"] = make_tuple
REGISTRY["make_dict"] = make_dict
REGISTRY["make_list"] = make_list
