"""torch.utils._pytree: trees of Values are flattened and unflattened as torch does it for the objects that they
represent. A TreeSpec is a constant, made by torch's own functions for one container at a time."""
from __future__ import annotations

from collections import OrderedDict, defaultdict, deque
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

import torch.fx._pytree as fx_pytree
import torch.utils._pytree as pytree

from ...breaks.reasons import Reason
from ...breaks.unsupported import Unsupported
from ...sources.source import Source
from ..containers.deques import DequeValue
from ..containers.lists import ListValue
from ..containers.mappings import DictValue
from ..containers.sequences import TupleValue
from ..core.base import Value
from ..core.constant import ConstantValue, constant
from ..core.handlers import handles
from ..core.registry import OPAQUE_CONSTANTS, builds, from_python
from ..python.objects import ObjectValue

if TYPE_CHECKING:
    from ..core.base import Translator

Args = Sequence[Value]
Kwargs = Mapping[str, Value]
_LEAF = pytree.tree_structure(0)
OPAQUE_CONSTANTS.update((pytree.TreeSpec, type(_LEAF)))


class SpecValue(ConstantValue):
    """A TreeSpec. The lists of its children and of a dict's keys, which never change, are read as the program's own."""

    def getattr(self, tx: Translator, name: str) -> Value:
        """An attribute of the TreeSpec."""
        found = getattr(self.value, name, None)
        if type(found) is not list:
            return super().getattr(tx, name)
        return ListValue([SpecValue(each) if isinstance(each, pytree.TreeSpec) else constant(each) for each in found],
                         list)


@builds(pytree.TreeSpec)
def build_spec(tx: Translator, obj: Any, source: Source | None) -> Value:
    """An existing TreeSpec."""
    if source is not None:
        tx.guards.add(source, "ID_MATCH", obj)
    return SpecValue(obj, source)


# ---- one container ---------------------------------------------------------------------------------------------------
def _shallow(tx: Translator, tree: Value) -> tuple[Any, list[Value]] | None:
    """(a real container with 0, 1, 2, ... in place of the items, the items); None for what is not a container."""
    if type(tree) is ListValue:
        items = list(tree.items)
        return list(range(len(items))), items
    if isinstance(tree, TupleValue):
        items, kind = list(tree.items), tree.kind
        numbers = range(len(items))
        return (kind(*numbers) if hasattr(kind, "_fields") else kind(numbers)), items
    if isinstance(tree, DequeValue):
        items = list(tree.items)
        return deque(range(len(items)), tree.maxlen), items
    if type(tree) is DictValue:
        pairs = tree.pairs(tx)
        keyed = [(key.as_constant(), i) for i, (key, _) in enumerate(pairs)]
        items = [value for _, value in pairs]
        if tree.kind is defaultdict:
            factory = tree.default_factory.as_constant() if tree.default_factory is not None else None
            return defaultdict(factory, keyed), items
        return (OrderedDict if tree.kind is OrderedDict else dict)(keyed), items
    return None


def _flatten_one(tx: Translator, tree: Value) -> tuple[Any, Any, list[Value]] | None:
    """(node type, context, children) of a container in pytree's registry; None for a leaf."""
    shallow = _shallow(tx, tree)
    if shallow is not None:
        real, items = shallow
        kind = pytree._get_node_type(real)
        if kind not in pytree.SUPPORTED_NODES:
            return None
        children, context = pytree.SUPPORTED_NODES[kind].flatten_fn(real)
        return kind, context, [items[i] for i in children]
    kind = tree.python_type() if isinstance(tree, ObjectValue) else None
    if kind not in pytree.SUPPORTED_NODES:
        return None
    parts = from_python(tx, pytree.SUPPORTED_NODES[kind].flatten_fn).call(tx, [tree], {}).iterate(tx)
    return kind, parts[1].as_constant(), list(parts[0].iterate(tx))


def _put_together(tx: Translator, spec: Any, children: list[Value]) -> Value:
    """The container of `children` described by the root of `spec`."""
    rebuild = pytree.SUPPORTED_NODES[spec.type].unflatten_fn
    if spec.type not in pytree.BUILTIN_TYPES and not issubclass(spec.type, (tuple, list, dict, deque)):
        return from_python(tx, rebuild).call(tx, [ListValue(children, list), from_python(tx, _context(spec))], {})
    real = rebuild(range(len(children)), _context(spec))
    if isinstance(real, tuple):
        return TupleValue([children[i] for i in real], type(real))
    if type(real) is list:
        return ListValue([children[i] for i in real], list)
    if type(real) is deque:
        return DequeValue([children[i] for i in real], real.maxlen)
    if type(real) in (dict, OrderedDict, defaultdict):
        made = DictValue(type(real))
        if isinstance(real, defaultdict):
            made.default_factory = constant(real.default_factory)
        for key, i in real.items():
            made.setitem(tx, from_python(tx, key), children[i])
        return made
    return from_python(tx, rebuild).call(tx, [ListValue(children, list), from_python(tx, _context(spec))], {})


def _context(spec: Any) -> Any:
    return spec._context if hasattr(spec, "_context") else spec.context


def _children(spec: Any) -> list[Any]:
    return spec._children if hasattr(spec, "_children") else spec.children_specs


# ---- whole trees -----------------------------------------------------------------------------------------------------
def flatten(tx: Translator, tree: Value, is_leaf: Value | None = None) -> tuple[list[Value], Any]:
    """(leaves, TreeSpec) of a tree of Values, in torch's order."""
    if is_leaf is not None and is_leaf.call(tx, [tree], {}).truth(tx):
        return [tree], _LEAF
    node = _flatten_one(tx, tree)
    if node is None:
        return [tree], _LEAF
    kind, context, children = node
    parts = [flatten(tx, child, is_leaf) for child in children]
    leaves = [leaf for part, _ in parts for leaf in part]
    return leaves, pytree.TreeSpec(kind, context, [spec for _, spec in parts])


def unflatten(tx: Translator, leaves: Sequence[Value], spec: Any) -> Value:
    """The tree with these leaves."""
    if len(leaves) != spec.num_leaves:
        raise Unsupported(
            Reason.UNSUPPORTED_ARGUMENT,
            detail=f"tree_unflatten of {len(leaves)} leaves for a tree of {spec.num_leaves}",
        )
    return _unflattened(tx, iter(leaves), spec)


def _unflattened(tx: Translator, leaves: Iterator[Value], spec: Any) -> Value:
    if spec.is_leaf():
        return next(leaves)
    return _put_together(tx, spec, [_unflattened(tx, leaves, child) for child in _children(spec)])


def flatten_up_to(tx: Translator, tree: Value, spec: Any) -> list[Value]:
    """The parts of `tree` at the leaves of `spec`."""
    if spec.is_leaf():
        return [tree]
    node = _flatten_one(tx, tree)
    if node is None or node[0] is not spec.type or node[1] != _context(spec) or len(node[2]) != len(_children(spec)):
        raise Unsupported(
            Reason.UNSUPPORTED_ARGUMENT, detail="a function of torch.utils._pytree on trees of different structure"
        )
    return [part for child, below in zip(node[2], _children(spec)) for part in flatten_up_to(tx, child, below)]


def flatten_by(tx: Translator, tree: Value, spec: Any) -> list[Value]:
    """The parts of `tree` at the leaves of `spec`, as `torch.fx` takes the arguments of an exported module: a list may
    stand for a tuple, and dicts have their keys in any order."""
    if spec.is_leaf():
        return [tree]
    if spec.type not in fx_pytree.SUPPORTED_NODES:  # has to be the same all the way down
        leaves, real = flatten(tx, tree, None)
        if real != spec:
            raise Unsupported(Reason.UNSUPPORTED_ARGUMENT, detail="tree_flatten_spec of a tree of different structure")
        return leaves
    node, below = _flatten_one(tx, tree), _children(spec)
    if node is None or len(node[2]) != len(below):
        raise Unsupported(Reason.UNSUPPORTED_ARGUMENT, detail="tree_flatten_spec of a tree of different structure")
    parts = node[2]
    if spec.type is dict and node[0] is dict and set(node[1]) == set(_context(spec)):
        parts = [dict(zip(node[1], parts))[key] for key in _context(spec)]
    elif node[0] is not spec.type and {node[0], spec.type} != {list, tuple}:
        raise Unsupported(Reason.UNSUPPORTED_ARGUMENT, detail="tree_flatten_spec of a tree of different structure")
    return [leaf for part, child in zip(parts, below) for leaf in flatten_by(tx, part, child)]


# ---- handlers --------------------------------------------------------------------------------------------------------
def _given(args: Args, kwargs: Kwargs, *names: str) -> list[Value | None]:
    """The arguments by name, None for missing ones (or None)."""
    bound = dict(zip(names, args)) | dict(kwargs)
    if not set(bound) <= set(names) or len(args) > len(names):
        raise Unsupported(Reason.UNSUPPORTED_ARGUMENT, detail="a function of torch.utils._pytree with these arguments")
    found = [bound.get(name) for name in names]
    return [None if v is not None and v.is_constant() and v.as_constant() is None else v for v in found]


def _tree(args: Args, kwargs: Kwargs) -> tuple[Value, Value | None]:
    tree, is_leaf = _given(args, kwargs, "tree", "is_leaf")
    return tree if tree is not None else constant(None), is_leaf


@handles(pytree.tree_flatten)
def _tree_flatten(tx: Translator, args: Args, kwargs: Kwargs) -> Value:
    leaves, spec = flatten(tx, *_tree(args, kwargs))
    return TupleValue([ListValue(leaves, list), SpecValue(spec)], tuple)


@handles(pytree.tree_leaves)
def _tree_leaves(tx: Translator, args: Args, kwargs: Kwargs) -> Value:
    return ListValue(flatten(tx, *_tree(args, kwargs))[0], list)


@handles(pytree.tree_iter)
def _tree_iter(tx: Translator, args: Args, kwargs: Kwargs) -> Value:
    return TupleValue(flatten(tx, *_tree(args, kwargs))[0], tuple).iter(tx)


@handles(pytree.tree_structure)
def _tree_structure(tx: Translator, args: Args, kwargs: Kwargs) -> Value:
    return SpecValue(flatten(tx, *_tree(args, kwargs))[1])


@handles(pytree.tree_unflatten)
def _tree_unflatten(tx: Translator, args: Args, kwargs: Kwargs) -> Value:
    leaves, spec = _given(args, kwargs, "leaves", "treespec")
    if isinstance(leaves, ConstantValue):
        leaves, spec = spec, leaves
    if leaves is None or not isinstance(spec, ConstantValue):
        raise Unsupported(Reason.UNSUPPORTED_ARGUMENT, detail="tree_unflatten")
    return unflatten(tx, leaves.iterate(tx), spec.value)


@handles(pytree.TreeSpec.unflatten)
def _spec_unflatten(tx: Translator, args: Args, kwargs: Kwargs) -> Value:
    return unflatten(tx, args[1].iterate(tx), args[0].as_constant())


@handles(pytree.TreeSpec.flatten_up_to)
def _spec_flatten_up_to(tx: Translator, args: Args, kwargs: Kwargs) -> Value:
    return ListValue(flatten_up_to(tx, args[1], args[0].as_constant()), list)


@handles(fx_pytree.tree_flatten_spec)
def _tree_flatten_spec(tx: Translator, args: Args, kwargs: Kwargs) -> Value:
    tree, spec = _given(args, kwargs, "pytree", "spec")
    if tree is None or not isinstance(spec, ConstantValue):
        raise Unsupported(Reason.UNSUPPORTED_ARGUMENT, detail="tree_flatten_spec")
    return ListValue(flatten_by(tx, tree, spec.value), list)


def _mapped(tx: Translator, args: Args, kwargs: Kwargs) -> tuple[list[Value], Any]:
    """The results of the function for the leaves of a tree and the corresponding parts of the other trees."""
    given, rests = list(islice(args, 2)), args[2:]
    function, tree, is_leaf = _given(given, kwargs, "func", "tree", "is_leaf")
    if function is None:
        raise Unsupported(Reason.UNSUPPORTED_ARGUMENT, detail="tree_map without a function")
    leaves, spec = flatten(tx, tree if tree is not None else constant(None), is_leaf)
    columns = [leaves, *(flatten_up_to(tx, rest, spec) for rest in rests)]
    return [function.call(tx, list(row), {}) for row in zip(*columns)], spec


@handles(pytree.tree_map)
def _tree_map(tx: Translator, args: Args, kwargs: Kwargs) -> Value:
    return unflatten(tx, *_mapped(tx, args, kwargs))


@handles(pytree.tree_map_)
def _tree_map_in_place(tx: Translator, args: Args, kwargs: Kwargs) -> Value:
    _mapped(tx, args, kwargs)
    return args[1] if len(args) > 1 else kwargs["tree"]


@handles(pytree._broadcast_to_and_flatten)
def _broadcast(tx: Translator, args: Args, kwargs: Kwargs) -> Value:
    if kwargs or len(args) != 2:
        raise Unsupported(Reason.UNSUPPORTED_ARGUMENT, detail="_broadcast_to_and_flatten")
    return from_python(tx, pytree._broadcast_to_and_flatten(args[0].as_constant(), args[1].as_constant()))
