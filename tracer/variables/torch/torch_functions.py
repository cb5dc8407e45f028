"""Handlers of torch functions whose result is not a tensor, or that query the compiler and the modes of torch."""
from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.modules.module as nn_module
import torch.overrides

from ...breaks.reasons import Reason
from ...breaks.unsupported import Unsupported
from ...sources.roots import ModuleGlobalSource
from ..containers.dicts import make_dict
from ..containers.lists import make_list
from ..containers.sequences import make_tuple
from ..core.base import Value
from ..core.constant import ConstantValue, constant, fold
from ..core.handlers import MEANINGS, NAMED, handles, pure
from ..core.operators import apply
from ..core.registry import build, from_python
from ..python.functions import FunctionValue
from ..python.symbolic_numbers import NumberValue
from .context_manager import boolean, guard_autocast_dtype, set_grad_mode
from .runtime_asserts import assume
from .tensor import TensorValue

if TYPE_CHECKING:
    from ..core.base import Translator

Args = Sequence[Value]
Kwargs = Mapping[str, Value]


def _always(result: Any) -> Callable[..., Value]:
    """A handler whose result is always the same."""

    def handler(tx: Translator, args: Args, kwargs: Kwargs) -> Value:
        return constant(result)

    return handler


for _result, _functions in (
    (False, (torch.compiler.is_exporting, torch.jit.is_scripting, torch.jit.is_tracing, torch._C._is_tracing,
             torch.overrides.is_tensor_method_or_property)),
    (0, (torch._C._len_torch_dispatch_stack,)),
    (None, (torch._C._get_tracing_state, torch._C._log_api_usage_once)),
):  # fmt: skip
    handles(*_functions)(_always(_result))


@handles(torch.compiler.is_compiling, torch.compiler.is_dynamo_compiling)
def _is_compiling(tx: Translator, args: Args, kwargs: Kwargs) -> Value:
    """True; except in torch.func's function transforms, which would skip functools.wraps, and in a call of a module
    with hooks that must also run after an exception, which would be skipped."""
    asks = tx.f_globals.get("__name__")
    return constant(asks != "torch._functorch.apis" and not (asks == nn_module.__name__ and _always_hooked(tx)))


def _always_hooked(tx: Translator) -> bool:
    """Whether there are forward hooks with `always_call=True`, on the called module or global ones."""
    name = "_global_forward_hooks_always_called"
    tables = [build(tx, vars(nn_module)[name], ModuleGlobalSource(nn_module.__name__, name))]
    if "self" in tx.cells:  # of nn.Module._call_impl, which calls this
        tables.append(tx.load_cell("self").getattr(tx, "_forward_hooks_always_called"))
    return any(table.truth(tx) for table in tables)


def _has_process_group(tx: Translator, args: Args, kwargs: Kwargs) -> Value:
    """Whether this process has joined a process group (libraries check before they exchange results), which is
    guarded."""
    now = torch.distributed.is_initialized()
    words = f"torch.distributed.is_initialized() is {now}"
    tx.guards.add(None, "LAMBDA", (lambda _: torch.distributed.is_initialized() is now, words))
    return constant(now)


def _isinstance(tx: Translator, args: Args, kwargs: Kwargs) -> Value:
    """torch.jit.isinstance: Python that looks at types, and into containers."""
    return from_python(tx, torch._jit_internal._isinstance).call(tx, args, kwargs)


NAMED.update({
    ("torch.jit", "isinstance"): _isinstance,
    ("torch.distributed", "is_available"): _always(torch.distributed.is_available()),
    ("torch.distributed.distributed_c10d", "is_initialized"): _has_process_group,
    ("torch._dynamo.external_utils", "is_compiling"): _always(True),
    ("torch.onnx", "is_in_onnx_export"): _always(False),
    ("torch.onnx.utils", "is_in_onnx_export"): _always(False),
    ("torch.onnx._internal.torchscript_exporter.utils", "is_in_onnx_export"): _always(False),
    ("torch.fx._symbolic_trace", "is_fx_tracing"): _always(False),
    ("torch.fx._symbolic_trace", "is_fx_symbolic_tracing"): _always(False),
    ("torch._dynamo.decorators", "mark_static_address"): _always(None),
})  # fmt: skip


def requested_break(tx: Translator, args: Args, kwargs: Kwargs) -> Value:
    """The user requests one."""
    raise Unsupported(Reason.GRAPH_BREAK_REQUESTED, detail="torch._dynamo.graph_break()")


NAMED["torch._dynamo.decorators", "graph_break"] = requested_break
MEANINGS["graph break"] = lambda _: requested_break


def _now(function: Callable[..., Any]) -> None:
    """A mode of torch that guards check: its value at this point of the trace."""

    @handles(function)
    def handler(tx: Translator, args: Args, kwargs: Kwargs) -> Value:
        if function is torch.is_grad_enabled:
            tx.graph.refuse_of_two_runs("torch.is_grad_enabled()")
        return fold(tx, function, args, kwargs)


for _function in (
    torch.is_grad_enabled, torch.is_inference_mode_enabled, torch.get_default_dtype, torch.is_autocast_enabled,
    torch.is_autocast_cache_enabled, torch.is_autocast_cpu_enabled, torch._C._is_any_autocast_enabled,
    torch.are_deterministic_algorithms_enabled, torch.is_deterministic_algorithms_warn_only_enabled,
    torch.get_float32_matmul_precision, torch.get_num_threads, torch.amp.is_autocast_available,
    torch._C._are_functorch_transforms_active, torch.get_default_device, torch._C._get_privateuse1_backend_name,
):  # fmt: skip
    _now(_function)


def _autocast_dtype(function: Callable[..., Any], device: str = "") -> None:
    """A function that returns autocast's dtype, on the device of its argument or on `device`."""

    @handles(function)
    def handler(tx: Translator, args: Args, kwargs: Kwargs) -> Value:
        given = [value.as_constant() for value in (*args, *kwargs.values())]
        if len(given) <= 1 and isinstance(kind := (given or [device])[0], str) and kind in ("cpu", "cuda"):
            guard_autocast_dtype(tx, kind)
        return fold(tx, function, args, kwargs)


_autocast_dtype(torch.get_autocast_dtype)
_autocast_dtype(torch.get_autocast_cpu_dtype, "cpu")
_autocast_dtype(torch.get_autocast_gpu_dtype, "cuda")

pure(
    torch.device, torch.finfo, torch.iinfo, torch.promote_types, torch.can_cast,
    torch.cuda.is_available, torch.cuda.device_count,
    torch.backends.mps.is_available, torch.xpu.is_available, torch.backends.mkldnn.is_available,
    torch.backends.cudnn.is_available, torch.cuda.is_bf16_supported, torch.cuda.get_device_capability,
    torch._C._jit_set_profiling_executor, torch.broadcast_shapes, torch.utils.data.get_worker_info,
)  # fmt: skip


@handles(torch.typename)
def _typename(tx: Translator, args: Args, kwargs: Kwargs) -> Value:
    if len(args) == 1 and isinstance(args[0], TensorValue):
        return args[0].call_method(tx, "type", [], {})
    return fold(tx, torch.typename, args, kwargs)


@handles(torch.is_tensor)
def _is_tensor(tx: Translator, args: Args, kwargs: Kwargs) -> Value:
    return constant(issubclass(args[0].python_type(), torch.Tensor))


def _as_method(function: Callable[..., Any], name: str) -> None:
    """A function whose result is a constant although its argument is a tensor."""

    @handles(function)
    def handler(tx: Translator, args: Args, kwargs: Kwargs) -> Value:
        owner = args[0] if args else kwargs["input"]
        if not isinstance(owner, TensorValue):
            return fold(tx, function, args, kwargs)
        return owner.call_method(tx, name, args[1:], {k: v for k, v in kwargs.items() if k != "input"})


for _name in (
    "is_floating_point", "is_complex", "is_signed", "numel", "is_nonzero", "is_conj", "is_neg", "is_inference", "equal",
    "allclose", "is_same_size",
):  # fmt: skip
    _as_method(getattr(torch, _name), _name)


@handles(torch.result_type)
def _result_type(tx: Translator, args: Args, kwargs: Kwargs) -> Value:
    real = [arg.fake if isinstance(arg, TensorValue) else arg.as_constant() for arg in args]
    return constant(torch.result_type(*real))


@handles(torch._C._set_grad_enabled)
def _set_grad_enabled(tx: Translator, args: Args, kwargs: Kwargs) -> Value:
    set_grad_mode(tx, boolean(args[0], "torch._C._set_grad_enabled"))
    return constant(None)


def _checked_later(tx: Translator, condition: Value, args: Args, kwargs: Kwargs) -> Value:
    """A check of a data-dependent condition: it holds from here on. Without a user-defined message, a number's is an
    operator that raises RuntimeError as torch._check does; else the frame is rerun for the message."""
    if args or kwargs or isinstance(condition, TensorValue):
        assume(tx, condition, Unsupported(Reason.DATA_DEPENDENT_BRANCH, torch._check))
        return constant(None)
    message = constant("Expected cond to be True, but got False. (Could this error message be improved? "
                       "If so, please report an enhancement request to PyTorch.)")
    tx.graph.call(torch.ops.aten._assert_scalar.default, [condition, message], {}, tx)
    return constant(None)


@handles(torch._check_is_size)
def _check_is_size(tx: Translator, args: Args, kwargs: Kwargs) -> Value:
    if not isinstance(args[0], NumberValue) or kwargs:
        return fold(tx, torch._check_is_size, args, kwargs)
    return _check(tx, [apply(tx, operator.ge, args[0], constant(0)), *args[1:]], {})


@handles(torch._assert, torch._check, torch._check_value, torch._check_index, torch._check_type, torch._check_with)
def _check(tx: Translator, args: Args, kwargs: Kwargs) -> Value:
    by_data = isinstance(args[0], NumberValue) and isinstance(args[0].symbol, torch.SymBool)
    if by_data or isinstance(args[0], TensorValue):
        return _checked_later(tx, args[0], args[1:], kwargs)
    if not args[0].truth(tx):
        raise Unsupported(Reason.RAISES, detail="torch._check failed")
    return constant(None)


@handles(torch.ops.aten._assert_scalar.default)
def _assert_scalar(tx: Translator, args: Args, kwargs: Kwargs) -> Value:
    """What `torch.export` states of sizes: no operator where it is known to hold (a guard says so)."""
    if len(args) == 2 and isinstance(args[0], ConstantValue) and args[0].truth(tx):
        return constant(None)
    return tx.graph.call(torch.ops.aten._assert_scalar.default, args, kwargs, tx)


@handles(torch._check_tensor_all, torch._check_tensor_all_with)
def _check_tensor_all(tx: Translator, args: Args, kwargs: Kwargs) -> Value:
    """It holds from here on; where it does not, the frame is rerun for the error."""
    conditions = [arg for arg in args[:2] if isinstance(arg, TensorValue)]
    if kwargs or len(conditions) != 1 or conditions[0].fake.dtype != torch.bool:
        raise Unsupported(Reason.UNSUPPORTED_TORCH_FUNCTION, torch._check_tensor_all)
    why = Unsupported(Reason.DATA_DEPENDENT_BRANCH, torch._check_tensor_all)
    assume(tx, tx.graph.call(torch._is_all_true, conditions, {}, tx), why)
    return constant(None)


def _valid(tx: Translator, args: Args, kwargs: Kwargs) -> Value:
    """The condition for which torch.distributions raises otherwise: as `assert`."""
    why = Unsupported(Reason.DATA_DEPENDENT_BRANCH, detail="the arguments of a distribution")
    assume(tx, tx.graph.call(torch._is_all_true, args[:1], {}, tx), why)
    return constant(True)


def _lazy_property(tx: Translator, args: Args, kwargs: Kwargs) -> Value:
    """A lazy property of a distribution, read from the class: only its type is used."""
    function = args[0].function if len(args) == 1 and isinstance(args[0], FunctionValue) else None
    if function is None or kwargs:
        raise Unsupported(Reason.UNSUPPORTED_ARGUMENT, detail="a lazy property of a function that the trace made")
    return ConstantValue(torch.distributions.utils._lazy_property_and_property(function))


NAMED["torch.distributions.distribution", "_all_true_or_runtime_assert"] = _valid
NAMED["torch.distributions.utils", "_lazy_property_and_property"] = _lazy_property


@handles(torch.sym_int)
def _sym_int(tx: Translator, args: Args, kwargs: Kwargs) -> Value:
    return _symbolic(tx, int, args[0])


@handles(torch.sym_float)
def _sym_float(tx: Translator, args: Args, kwargs: Kwargs) -> Value:
    return _symbolic(tx, float, args[0])


def _symbolic(tx: Translator, kind: type, value: Value) -> Value:
    return value.converted(tx, kind) if isinstance(value, NumberValue) else fold(tx, kind, [value])


@handles(torch.jit.annotate)
def _annotate(tx: Translator, args: Args, kwargs: Kwargs) -> Value:
    return args[1]


@handles(torch.jit._unwrap_optional)
def _unwrap(tx: Translator, args: Args, kwargs: Kwargs) -> Value:
    return args[0]


def _sets_state(function: Callable[..., Any]) -> None:
    @handles(function)
    def handler(tx: Translator, args: Args, kwargs: Kwargs) -> Value:
        raise Unsupported(Reason.GLOBAL_STATE, function)

    NAMED[function.__module__, function.__name__] = handler  # TorchDynamo, once loaded, wraps some of them


_SETTERS: tuple[Callable[..., Any], ...] = (
    torch.manual_seed, torch.seed, torch.set_default_dtype, torch.set_default_device, torch.set_num_threads,
    torch.use_deterministic_algorithms, torch.set_float32_matmul_precision, torch.set_rng_state, torch.get_rng_state,
    torch.cuda.synchronize, torch.save, torch.load,
)  # fmt: skip
for _setter in _SETTERS:
    _sets_state(_setter)


@handles(torch.func.linearize)
def _linearize(tx: Translator, args: Args, kwargs: Kwargs) -> Value:
    """It traces the function itself, and makes modules."""
    raise Unsupported(Reason.SKIPPED_FUNCTION, torch.func.linearize)


def _quantizes(function: Callable[..., Any]) -> None:
    """Functions that return quantized tensors: their fake tensors have another dtype, and do not know that they are
    quantized."""

    @handles(function)
    def handler(tx: Translator, args: Args, kwargs: Kwargs) -> Value:
        raise Unsupported(Reason.MISSING_FAKE_KERNEL, function)


_QUANTIZERS: tuple[Callable[..., Any], ...] = (
    torch.quantize_per_tensor, torch.quantize_per_channel, torch.quantize_per_tensor_dynamic,
    torch.empty_quantized, torch._empty_affine_quantized, torch._empty_per_channel_affine_quantized,
    torch._make_per_tensor_quantized_tensor, torch._make_per_channel_quantized_tensor,
    torch.quantized_max_pool1d, torch.quantized_max_pool2d, torch.quantized_batch_norm,
)  # fmt: skip
for _quantizer in _QUANTIZERS:
    _quantizes(_quantizer)


@handles(torch._C._group_tensors_by_device_and_dtype)
def _grouped(tx: Translator, args: Args, kwargs: Kwargs) -> Value:
    """torch's own result, groups in its order, on what represents the tensors (torch.nn.utils.clip_grad_norm_)."""
    rows = [part.iterate(tx) for part in args[0].iterate(tx)]
    lists = [[item if isinstance(item, TensorValue) else None for item in row] for row in rows]
    known = {id(value.fake): value for part in lists for value in part if value is not None}
    with_indices = (args[1] if len(args) > 1 else kwargs.get("with_indices", constant(False))).as_constant()
    fakes = [[None if value is None else value.fake for value in part] for part in lists]
    try:
        found = torch._C._group_tensors_by_device_and_dtype(fakes, with_indices)
    except RuntimeError as error:  # without tensors
        raise Unsupported(Reason.RAISES, detail=f"RuntimeError: {error}") from error
    keys, groups = [], []
    for key, (parts, indices) in found.items():
        keys.append(constant(key))
        values = [[constant(None) if f is None else known[id(f)] for f in part] for part in parts]
        numbers = make_list(tx, [constant(index) for index in indices])
        groups.append(make_tuple(tx, [make_list(tx, [make_list(tx, part) for part in values]), numbers]))
    return make_dict(tx, keys, groups)
