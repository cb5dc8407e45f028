"""An ATen call through torch's C interface: its arguments in the form that the declaration requires."""
from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import sympy
import torch

from ...ir.ir import ExternCall, View
from ...unsupported import NoCppWrapper
from ..cpp.indices import c_expression
from .shim import Parameter, dtype_code, parameters_of

FUNCTIONS = {
    "aten.mm.default": "aoti_torch_cpu_mm_out",
    "aten.addmm.default": "aoti_torch_cpu_addmm_out",
    "aten.bmm.default": "aoti_torch_cpu_bmm_out",
    "aten.baddbmm.default": "aoti_torch_cpu_baddbmm_out",
    "aten.convolution.default": "aoti_torch_cpu_convolution",
    "aten.convolution_backward.default": "aoti_torch_cpu_convolution_backward",
    "aten._scaled_dot_product_flash_attention_for_cpu.default":
        "aoti_torch_cpu__scaled_dot_product_flash_attention_for_cpu",
    "aten._scaled_dot_product_flash_attention_for_cpu_backward.default":
        "aoti_torch_cpu__scaled_dot_product_flash_attention_for_cpu_backward",
    "aten._scaled_dot_product_flash_attention.default": "aoti_torch_cuda__scaled_dot_product_flash_attention",
    "aten._scaled_dot_product_flash_attention_backward.default":
        "aoti_torch_cuda__scaled_dot_product_flash_attention_backward",
    "aten._scaled_dot_product_efficient_attention.default": "aoti_torch_cuda__scaled_dot_product_efficient_attention",
    "aten._scaled_dot_product_efficient_attention_backward.default":
        "aoti_torch_cuda__scaled_dot_product_efficient_attention_backward",
    "aten._scaled_dot_product_cudnn_attention.default": "aoti_torch_cuda__scaled_dot_product_cudnn_attention",
    "aten._scaled_dot_product_cudnn_attention_backward.default":
        "aoti_torch_cuda__scaled_dot_product_cudnn_attention_backward",
    "aten.sort.stable": "aoti_torch_cpu_sort_stable",
    "aten.topk.default": "aoti_torch_cpu_topk",
    "mkldnn._linear_pointwise.default": "aoti_torch_cpu_mkldnn__linear_pointwise",
    "mkldnn._convolution_pointwise.default": "aoti_torch_cpu_mkldnn__convolution_pointwise",
    "mkl._mkl_linear.default": "aoti_torch_cpu__mkl_linear",
    "onednn.qconv_pointwise.default": "aoti_torch_cpu__qconv_pointwise_tensor",
    "onednn.qconv2d_pointwise.binary": "aoti_torch_cpu__qconv2d_pointwise_binary_tensor",
    "onednn.qlinear_pointwise.binary": "aoti_torch_cpu__qlinear_pointwise_binary_tensor",
    **dict.fromkeys(("onednn.qlinear_pointwise.default", "onednn.qlinear_pointwise.tensor"),
                    "aoti_torch_cpu__qlinear_pointwise_tensor"),
}
"""The function for an operator; where it is the CPU's, that of another device is called alike. Only operators that
cannot raise once shapes are right: the C interface writes errors to stderr before the Python wrapper can raise it."""

_RESULT = re.compile(r"ret\d+")

TensorText = Callable[[View], str]


class Arguments:
    """Writes the arguments of one call. `tensor(view)` is the C++ of a tensor, `scalar(number)` that of one with a
    number, `statement` adds a line before the call, `unique(name)` makes the name of a variable."""

    def __init__(
        self, tensor: TensorText, scalar: Callable[[float], str], statement: Callable[[str], None],
        unique: Callable[[str], str], whole_numbers: bool,
    ) -> None:
        self.tensor, self.scalar, self.statement, self.unique = tensor, scalar, statement, unique
        self.whole_numbers = whole_numbers

    def of(self, call: ExternCall, parameters: tuple[Parameter, ...]) -> list[str]:
        """The C++ of all arguments but the results, in order. Raises NoCppWrapper."""
        values = bound(call)
        texts: list[str] = []
        rest = list(parameters)
        for value in values:
            parameter = rest.pop(0)
            if rest and rest[0].name.endswith("_len_"):
                rest.pop(0)
                texts += self._list(value, parameter)
            else:
                texts.append(self._one(value, parameter))
        if rest:
            raise NoCppWrapper(f"{call.target} has other arguments in torch's C interface")
        return texts

    def _one(self, value: Any, parameter: Parameter) -> str:
        kind = parameter.kind
        if kind.endswith("*") and kind != "const char*":
            if value is None:
                return "nullptr"
            inner = kind.removesuffix("*")
            inner = inner if inner.endswith("*") else inner.removeprefix("const ")
            name = self.unique(parameter.name)
            self.statement(f"{inner} {name} = {self._one(value, Parameter(inner, parameter.name))};")
            return f"&{name}"
        match kind, value:
            case "Tensor", View():
                return self.tensor(value)
            case "Tensor", int() | float() if not isinstance(value, bool):
                return self.scalar(float(value))
            case "int32", torch.dtype():
                return str(dtype_code(value))
            case "int32", bool():
                return str(int(value))
            case "int64", int() | sympy.Expr() if not isinstance(value, bool):
                return c_expression(sympy.sympify(value))
            case "double", int() | float() if not isinstance(value, bool):
                if self.whole_numbers:  # a double where the operator would see an integer
                    raise NoCppWrapper("a number beside integers")
                return double(float(value))
            case "const char*", str():
                return f'"{value}"'
        raise NoCppWrapper(f"an argument {parameter.name} of type {type(value).__name__}")

    def _list(self, value: Any, parameter: Parameter) -> tuple[str, str]:
        if value is None and parameter.kind.endswith("**"):
            return "nullptr", "0"
        if not isinstance(value, (list, tuple)):
            raise NoCppWrapper(f"an argument {parameter.name} of type {type(value).__name__}")
        if parameter.kind == "const int64**" and value:  # a list that may be absent
            inner = self.unique(parameter.name)
            items, length = self._list(value, Parameter("const int64*", parameter.name))
            self.statement(f"const int64* {inner} = {items};")
            return f"&{inner}", length
        if not value and not parameter.kind.endswith("int64**"):
            return "nullptr", "0"
        if parameter.kind.endswith("**") and parameter.kind != "const double**":
            raise NoCppWrapper(f"a list of optional values ({parameter.name})")
        inner = parameter.kind.removesuffix("*").removeprefix("const ")  # of optional numbers, pointers to them
        name = self.unique(parameter.name)
        items = ", ".join([self._one(item, Parameter(inner, parameter.name)) for item in value])
        self.statement(f"const {inner} {name}[] = {{{items}}};")
        return name, str(len(value))


def function_of(call: ExternCall, device: str = "cpu") -> tuple[str, tuple[Parameter, ...], bool]:
    """The function that a library call on a `device` becomes, its parameters but those for results, and whether it
    writes its result to a tensor that it is given (its first parameter, left out too). Raises NoCppWrapper."""
    function = FUNCTIONS.get(str(call.target))
    if function is not None:
        function = function.replace("aoti_torch_cpu_", f"aoti_torch_{device}_", 1)
    if function is None:
        raise NoCppWrapper(f"{call.target} is not called through torch's C interface")
    if call.mutates or call.binds:
        raise NoCppWrapper(f"{call.target} mutates an argument, or returns a size")
    parameters = parameters_of(function)
    if parameters[0].name == "out":
        return function, parameters[1:], True
    count = len(call.target._schema.returns)
    results = [p for p in parameters if _RESULT.fullmatch(p.name)]
    kinds = {p.kind for p in results}
    if [p.name for p in results] != [f"ret{k}" for k in range(count)] or kinds - {"Tensor*", "int64*"}:
        raise NoCppWrapper(f"{function} has other results")
    whole = [p.kind == "int64*" for p in results]
    if len(call.outputs) != count or any(n is not None and number for n, number in zip(call.outputs, whole)):
        raise NoCppWrapper(f"{call.target} returns numbers that are used")
    return function, parameters[: -count], False


def bound(call: ExternCall) -> list[Any]:
    """The value of each argument of the operator's schema."""
    values = []
    for position, argument in enumerate(call.target._schema.arguments):
        if position < len(call.args):
            values.append(call.args[position])
        else:
            values.append(call.kwargs.get(argument.name, argument.default_value))
    return values


def double(value: float) -> str:
    """The C++ of a double."""
    if value != value:
        return '__builtin_nan("")'
    if value in (float("inf"), float("-inf")):
        return f"{'-' if value < 0 else ''}__builtin_inf()"
    return value.hex()
