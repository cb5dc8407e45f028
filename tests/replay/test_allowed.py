"""The list of what replay runs without trust, held against what the tracer makes nodes of."""
from __future__ import annotations

import ast
import builtins
import importlib
import pkgutil
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import ptdebug
import ptdebug.tracer
import pytest
import torch
from ptdebug.artifacts.fx_graphs import target_name
from ptdebug.engine.lowering import LOWERINGS
from ptdebug.replay.recorded.allowed import ATTRIBUTES, METHODS, REFUSED, _functions, allowed, allowed_method
from ptdebug.replay.recorded.graphs import BOUNDED, resolve
from ptdebug.tracer.frames import dispatch
from ptdebug.tracer.variables.torch import graph_functions, tensor

KNOWN = frozenset((
    "torch._from_blob", "torch.from_file", "torch.from_numpy", "torch.frombuffer", "torch._print", "torch._pin_memory",
    "torch._cufft_clear_plan_cache", "torch._cufft_set_plan_cache_max_size", "torch._C._add_docstr",
    "torch._C._nn._parse_to", "torch._C._nested.nested_tensor", "torch._jit_internal.unused",
    "torch._jit_internal._overload", "object.__new__", "torch._reshape_alias_copy",
    "torch._nested_view_from_buffer", "torch._nested_view_from_buffer_copy", "torch._nested_view_from_jagged",
    "torch._nested_view_from_jagged_copy",
))  # fmt: skip
"""What the tracer would make a node of, and replay runs with --trust only: it does not compute on tensors."""


def test_functions_that_are_one_node() -> None:
    """The tracer's own table, but for what reads files, takes addresses, or is there for torch's tests."""
    left = set()
    for function in graph_functions._functions().values():
        name = target_name(function)
        if allowed(name) is not function:
            left.add(name)
    assert {name for name in left if not name.startswith("__") and "._test_" not in name} == KNOWN


def test_names_lead_to_their_functions() -> None:
    """Those of functions that another function created (behind `boolean_dispatch`), and of tensors' methods, too."""
    for function in {id(f): f for f in _functions().values()}.values():
        assert resolve(target_name(function)) in (function, BOUNDED.get(function)), target_name(function)
    for name in ("max_pool1d", "adaptive_max_pool3d", "fractional_max_pool2d"):
        assert target_name(getattr(torch.nn.functional, name)) == f"torch.nn.functional.{name}"


def _modules() -> Iterator[ModuleType]:
    for info in pkgutil.walk_packages(ptdebug.tracer.__path__, "ptdebug.tracer."):
        if not info.name.endswith(("py312", "py313")):
            yield importlib.import_module(info.name)


def _named(tree: ast.expr, module: ModuleType) -> Any:
    """What `torch.ops.aten.alias.default` is in a module; None for what only a run tells."""
    if isinstance(tree, ast.Name):
        return getattr(module, tree.id, getattr(builtins, tree.id, None))
    if isinstance(tree, ast.Attribute):
        owner = _named(tree.value, module)
        return None if owner is None else getattr(owner, tree.attr, None)
    return tree.value if isinstance(tree, ast.Constant) else None


def _written_nodes() -> Iterator[tuple[str, Any]]:
    """Functions that the tracer's own text hands to `graph.call`, `graph.make` and `mode_node`."""
    for module in _modules():
        for call in ast.walk(ast.parse(Path(str(module.__file__)).read_text())):
            if not isinstance(call, ast.Call):
                continue
            name = ast.unparse(call.func)
            if name.endswith(("graph.call", "graph.make")) and call.args:
                yield module.__name__, _named(call.args[0], module)
            elif name == "mode_node":
                yield module.__name__, _named(call.args[1], module)


def test_functions_that_the_tracer_names() -> None:
    found = [(place, target) for place, target in _written_nodes() if target is not None]
    assert len(found) > 60
    for place, target in found:
        if isinstance(target, str):
            assert allowed_method(target), (place, target)
        else:
            assert allowed(target_name(target)) is not None, (place, target_name(target))


def test_operators_that_the_engine_lowers() -> None:
    for operator in LOWERINGS:
        assert allowed(str(operator)) is operator


def test_methods_have_an_operator_or_are_named() -> None:
    assert allowed_method("sin") and allowed_method("view") and allowed_method("add_") and allowed_method("__and__")
    for name in METHODS:
        assert allowed_method(name) == hasattr(torch.Tensor, name)
    for name in ("apply_", "map_", "__reduce_ex__", "__setstate__", "__class__", "__init__", "numpy", "data_ptr",
                 "untyped_storage", "register_hook", "backward", "share_memory_", "__torch_function__", "save"):
        assert not allowed_method(name), name
    assert "from_file" in REFUSED


def test_attributes_are_the_tracers() -> None:
    assert tensor._VIEW_ATTRIBUTES == ATTRIBUTES


PROGRAMS: dict[str, Callable[[torch.Tensor], Any]] = {
    "modes": lambda x: _modes(x),
    "pools": lambda x: torch.nn.functional.max_pool2d(x.view(1, 1, 4, 4), 2, return_indices=True)[0],
    "transforms": lambda x: torch.func.vmap(torch.func.grad(lambda row: (row * row).sum()))(x),
    "unique": lambda x: torch.unique(x.round()).sum(),
    "packets": lambda x: torch.ops.aten.sin(x),
    "math": lambda x: x * x.shape[0] ** 2 + abs(x.sum()) - round(x.shape[1] / 2),
    "attributes": lambda x: x.T.real + x.mT.data,
    "cond": lambda x: torch.cond(x.sum() > 0, lambda a: a.sin(), lambda a: a.cos(), (x,)),
    "in place": lambda x: x.clone().add_(1).mul_(2).clamp_(min=0),
    "indices": lambda x: x[[1, 0], ..., None, 1:] + torch.linspace(0, 1, 4)[x.argmax(0) % 4].sum(),
    "factories": lambda x: torch.zeros_like(x) + torch.tensor(2.0) + torch.arange(4) + torch.as_tensor([1.0] * 4),
}


def _modes(x: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        y = x.sin()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = y @ y
    with torch.inference_mode():
        z = x.cos()
    return y.float() + z


@pytest.mark.parametrize("name", PROGRAMS)
def test_what_is_captured_is_on_the_list(name: str, tmp_path: Path) -> None:
    dispatch.reset()
    x = torch.linspace(-1, 1, 16).view(4, 4)
    with ptdebug.record("r", str(tmp_path)) as recording:
        ptdebug.compile(PROGRAMS[name])(x)
        graphs = [recording.artifact(info.id, "capture") for info in recording.compiles()
                  if "capture" in recording.stages(info.id)]
    assert graphs
    for graph in graphs:
        for node in graph.nodes:
            if node.op == "call_function":
                resolve(node.target)
            elif node.op == "call_method":
                assert allowed_method(node.target)
