"""Programs of the fuzz with float32 in the place of 16-bit floats, as kernels keep them between operators."""

from __future__ import annotations

from typing import Any

import torch

from .fuzz_programs import LOW, Program, apply


def widened(program: Program) -> list[torch.Tensor]:
    """Results and inputs of a run with float32 in the place of 16-bit floats, rounded at the end."""
    inputs = program.tensors()
    wide = [i.float() if i.dtype in LOW else i for i in inputs]
    values: dict[str, Any] = dict(zip([i.name for i in program.inputs], wide))
    narrow = _dtypes_of_views(program)
    for call in program.calls:
        given = values
        if call.name in narrow:  # a view in another dtype is one of rounded bits
            viewed = call.args[0].name
            given = {**values, viewed: values[viewed].to(narrow[call.name])}
        result = values[call.name] = apply(call, given)
        if isinstance(result, torch.Tensor) and result.dtype in LOW:
            values[call.name] = result.float()
    return [*[values[name] for name in program.results], *wide]


def _dtypes_of_views(program: Program) -> dict[str, torch.dtype]:
    """The dtypes of what the program views in another dtype, by the name of the view; none where it writes in place,
    since memory that is then shared is not in `widened`."""
    if any(call.function.endswith("_") for call in program.calls):
        return {}
    values: dict[str, Any] = dict(zip([i.name for i in program.inputs], program.tensors()))
    found = {}
    for call in program.calls:
        values[call.name] = apply(call, values)
        if call.function.endswith(".view") and isinstance(call.args[1], torch.dtype):
            found[call.name] = values[call.args[0].name].dtype
    return found
