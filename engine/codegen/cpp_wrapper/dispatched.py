"""An ATen call through torch's dispatcher, for operators that have no function of their own in the C interface.

Its arguments stand in an array of 64 bits each (`StableIValue`, torch/csrc/stable/stableivalue_conversions.h), which
the call replaces by the results; it takes ownership of tensors and lists. Only where nothing can run without it: a
graph that Python alone calls has Python's binding, which raises the operator's own error and prints nothing.
"""
from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

import sympy
import torch

from ...graphs.random_fills import fill_of
from ...ir.ir import ExternCall, View
from ...unsupported import NoCppWrapper
from ..cpp.indices import c_expression
from .calls import TensorText, bound, double
from .shim import parameters_of

FUNCTIONS = ("torch_call_dispatcher", "torch_new_list_reserve_size", "torch_list_push_back")
OF_OPTIONAL = "torch_new_stable_ivalue"
"""What arguments that may be None need besides; since torch 2.13."""

HELPERS = """\
// Arguments of the dispatcher.
static bool given(Tensor tensor, uint64* place) { return aoti_torch_new_tensor_handle(tensor, (Tensor*)place) == 0; }
static uint64 bits(double value) { uint64 copy; __builtin_memcpy(&copy, &value, 8); return copy; }
static bool list(const uint64* values, int64 count, uint64* place) {
  List made;
  if (torch_new_list_reserve_size(count, &made)) return false;
  for (int64 k = 0; k < count; k++)
    if (torch_list_push_back(made, values[k])) return false;
  *place = (uint64)made;
  return true;
}"""
HELPERS_OF_OPTIONAL = """\
static bool present(uint64* place) {  // of an argument that may be None
  uint64* inner;
  if (torch_new_stable_ivalue(&inner)) return false;
  *inner = *place;
  *place = (uint64)inner;
  return true;
}"""


def helpers(functions: Collection[str]) -> list[str]:
    """The C++ text that calls of these functions need."""
    return [HELPERS] * (FUNCTIONS[0] in functions) + [HELPERS_OF_OPTIONAL] * (OF_OPTIONAL in functions)


class Dispatched:
    """Writes one such call. `tensor(view)` is the C++ of a tensor, `statement` adds a line, `must` a condition without
    which the call fails, `unique(name)` makes the name of a variable."""

    def __init__(
        self, tensor: TensorText, statement: Callable[[str], None], must: Callable[[str], None],
        unique: Callable[[str], str],
    ) -> None:
        self.tensor, self.statement, self.must, self.unique = tensor, statement, must, unique
        self.called = list(FUNCTIONS)

    def write(self, call: ExternCall, version: int) -> list[str]:
        """The C++ of each result, a tensor that is owned. Raises NoCppWrapper."""
        schema = call.target._schema
        if schema.name.startswith("ptdebug::") or fill_of(call.target) is not None or call.binds:
            raise NoCppWrapper(f"{call.target} is called by Python only")
        if any(str(each.type) != "Tensor" for each in schema.returns):
            raise NoCppWrapper(f"{call.target} returns other things than tensors")
        stack, arguments = self.unique("stack"), schema.arguments
        self.statement(f"uint64 {stack}[{max(len(arguments), len(schema.returns), 1)}] = {{}};")
        for k, (argument, value) in enumerate(zip(arguments, bound(call))):
            try:
                self._one(value, argument.real_type, f"{stack}[{k}]")
            except _Unknown:
                raise NoCppWrapper(f"{call.target} has an argument {argument.name} ({argument.real_type}) that torch's "
                                   "C interface does not take") from None
        for function in self.called:
            parameters_of(function)  # raises where this torch has no such function
        name, overload = schema.name, schema.overload_name
        self.must(f'torch_call_dispatcher("{name}", "{overload}", {stack}, {version}UL) == 0')
        return [f"(Tensor){stack}[{k}]" for k in range(len(schema.returns))]

    def _one(self, value: Any, kind: Any, place: str) -> None:
        """Put `value` of the type `kind` at `place`."""
        if isinstance(kind, torch.OptionalType):
            if value is not None:
                self.called.append(OF_OPTIONAL)
                self._one(value, kind.getElementType(), place)
                self.must(f"present(&{place})")
            return
        match kind, value:
            case torch.TensorType(), View():
                self.must(f"given({self.tensor(value)}, &{place})")
            case torch.BoolType(), bool():
                self.statement(f"{place} = {int(value)};")
            case torch.IntType() | torch._C.SymIntType(), int() | sympy.Integer() | sympy.Expr():
                self.statement(f"{place} = (uint64)({c_expression(sympy.sympify(value))});")
            case torch.FloatType(), int() | float():
                self.statement(f"{place} = bits({double(float(value))});")
            case torch.ListType(), list() | tuple():
                items = self.unique("items")
                self.statement(f"uint64 {items}[{max(len(value), 1)}] = {{}};")
                for k, item in enumerate(value):
                    self._one(item, kind.getElementType(), f"{items}[{k}]")
                self.must(f"list({items}, {len(value)}, &{place})")
            case _:
                raise _Unknown


class _Unknown(Exception):
    """A value has no form in the array."""
