"""Functions that a module of this package calls of one that builds on it, bound when that one is imported.

Everything in Python can hold everything else: a constant's method returns a tuple, a tuple's items are tensors, a
tensor's index is a tuple. What a file needs of files above it stands here, one typed slot each; the file that has the
function fills it (`late.make_tuple = make_tuple`), and `build.py` imports all files.
"""
from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import sympy

    from ...breaks.unsupported import Unsupported
    from ...sources.source import Source
    from .base import Translator, Value

Args = Sequence["Value"]
Kwargs = Mapping[str, "Value"]


class Late:
    """The slots. A value of a class that is above this file is `Any` here."""

    # ---- real objects
    from_python: Callable[[Translator, Any], Value]
    existing: Callable[[Translator, Any], Value]
    existing_function: Callable[[Translator, Any], Value]
    build_object: Callable[[Translator, Any, Source | None], Value]
    build_tensor_subclass: Callable[[Translator, Any, Source], Value]
    build_wrapper: Callable[[Translator, Any, Source], Value]
    symbolic_int: Callable[[Translator, int, Source], Value | None]
    symbolic_float: Callable[[Translator, float, Source], Value | None]
    carried_string: Callable[[Translator, str, Source], Value]
    class_dict: Callable[[Translator, type, Source | None], Value]

    # ---- containers and iterators
    make_tuple: Callable[[Translator, Args], Value]
    make_list: Callable[[Translator, Args], Value]
    make_dict: Callable[[Translator, Args, Args], Value]
    sequence_iterator: Callable[[Any, int], Value]
    dict_iterator: Callable[[Translator, Any, str, int], Value]
    index_iterator: Callable[[Value], Value]
    next_of: Callable[[Translator, Any], Value | None]
    with_views: Callable[[Translator, Callable[..., Any], Value, Value], Value | None]
    fromkeys: Callable[..., Value]

    # ---- numbers and strings
    apply_numbers: Callable[[Translator, Callable[..., Any], Args], Value]
    compute_from_ints: Callable[[Translator, Callable[..., Any], Args], Value]
    computed_from_random: Callable[[Translator, Any, Any], Value]
    check_at_run_time: Callable[[Translator, Iterable[sympy.Expr], Unsupported], None]
    ragged_size: Callable[[Translator, Any, Value, Any, int | None], Value]
    string_of: Callable[[Translator, Value, Callable[[Any], str]], Value]
    format_string: Callable[[Translator, str, Args, Kwargs], Value]
    format_percent: Callable[[Translator, str, Value], Value]

    # ---- objects
    python_method: Callable[[Translator, Value, Any], Value]
    base_method: Callable[[Translator, Value, Any, Args, Kwargs], Value]
    attribute_of_member: Callable[[Translator, Any, str], Value | None]
    truth_of_member: Callable[[Translator, Any], bool]
    instance_dict: Callable[[Translator, Any], Value]
    partial_keywords: Callable[[Translator, Any], Value]
    make_exception: Callable[[Translator, type[BaseException], Args], Value]
    make_generator: Callable[[Any], Value]
    push_generator: Callable[[Any, Any], None]

    # ---- tensors
    make_tensor: Callable[[Translator, type, Args, Kwargs], Value]
    new_tensor: Callable[[Translator, type, Args], Value]
    make_wrapper: Callable[[Translator, type, Args, Kwargs], Value]
    wrapper_attribute: Callable[[Translator, Any, str], Value | None]
    is_parameter: Callable[[Translator, Any], bool]
    arrays_as_places: Callable[[Translator, Value], Value]
    take_rows: Callable[[Translator, Any, Value], Value | None]
    written_at: Callable[[Translator, Any, Value, Value], tuple[Value, Value]]
    torch_function_override: Callable[[Translator, Callable[..., Any], Args, Kwargs], Value | None]
    is_overridable: Callable[[Any], bool]


late = Late()
