"""A recorded graph as the Python function that a person would write."""
from __future__ import annotations

import ast
import re
import textwrap
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ...artifacts.decode import form_of
from ...artifacts.listing import printable, short_place
from ...artifacts.records import AutogradFunction, Graph, Node, NodeRef, TensorMeta
from ...artifacts.render_graph import argument_text, source_text, value_text
from ..recorded.graphs import ReplayError, size_value
from .autograd_source import INDENT, autograd_class
from .names import RESERVED, Source, identifier, variables
from .spelling import BINARY, IMPORTS, IN_PLACE, OPERATORS, UNARY, arithmetic, spelled

LONGEST_LINE = 120
LONGEST_INLINE = 48  # characters of an expression that stands inside of another
_ENTER, _EXIT = ("torch.amp.autocast_mode._enter_autocast", "torch.amp.autocast_mode._exit_autocast")


def no_source(_file: str) -> str | None:
    """Where no source files are known."""
    return None


class GraphSource:
    """The text of a graph. `imports` are lines for the head of the file; `constants` tensors that it names as globals,
    as the record holds them; `symbols` values of sizes that have no Python. `any_strides`: views may have to copy,
    since a pass chose strides for ptdebug's kernels, which ATen's do not read."""

    def __init__(self, symbols: Mapping[str, float] | None = None, source: Source = no_source,
                 any_strides: bool = False) -> None:
        self.any_strides = any_strides
        self.symbols = dict(symbols or {})
        self.source = source
        self.imports: dict[str, None] = {}
        self.constants: dict[str, dict[str, Any]] = {}
        self.classes: list[str] = []

    def function(self, graph: Graph, name: str, parameters: Sequence[str] = ()) -> list[str]:
        """The lines of `graph` as a function; `parameters` are better names for its placeholders."""
        return _Function(self, graph, parameters).lines(name)

    def need(self, spelling: str) -> str:
        """Note the import that a spelling needs."""
        head = spelling.partition(".")[0]
        if head in IMPORTS:
            self.imports[IMPORTS[head]] = None
        return spelling


class _Function:
    def __init__(self, out: GraphSource, graph: Graph, parameters: Sequence[str]) -> None:
        self.out = out
        self.graph = graph
        self.nodes = graph.nodes
        self.wanted = variables(graph.nodes, out.source)
        self.text: dict[str, str] = {}  # of each node's value
        self.holders: dict[str, int] = {}  # variable -> position from which on it is free again
        self.sizes: dict[str, str] = {}  # symbol -> how to read it off the parameters
        self.body: list[str] = []
        self.depth = 1
        self.uses: Counter[str] = Counter()
        self.last_use: dict[str, int] = {}
        for position, node in enumerate(self.nodes):
            for used in references((node.args, node.kwargs)):
                self.uses[used] += 1
                self.last_use[used] = position
        self.blocks = _autocast_blocks(self.nodes)
        placeholders = [node for node in self.nodes if node.op == "placeholder"]
        for number, node in enumerate(placeholders):
            wanted = parameters[number] if number < len(parameters) else identifier(node.id.strip("_"), self.holders)
            self.holders[wanted] = self.last_use.get(node.id, -1)
            self.text[node.id] = wanted
            self._read_sizes(node, wanted)
        self.parameters = [self.text[node.id] for node in placeholders]

    def lines(self, name: str) -> list[str]:
        """The whole function."""
        shown: object = None
        for position, node in enumerate(self.nodes):
            if node.op == "placeholder":
                continue
            if node.op != "output" and node.target != _EXIT and _line(node) not in (None, shown):
                shown = _line(node)
                self._program_line(node)
            self._node(position, node)
        used = {word for line in self.body for word in re.findall(r"[A-Za-z_]\w*", line.partition("  # ")[0])}
        sizes = [f"{INDENT}{symbol} = {read}" for symbol, read in self.sizes.items()
                 if symbol in used and symbol not in self.parameters]
        return [*_signature(name, self.parameters), *sizes, *self.body]

    def _read_sizes(self, node: Node, name: str) -> None:
        meta = node.value
        if isinstance(meta, TensorMeta):
            for dimension, size in enumerate(meta.shape):
                if isinstance(size, str) and size.isidentifier():
                    self.sizes.setdefault(size, f"{name}.size({dimension})")
        elif isinstance(meta, str) and meta.isidentifier():
            self.sizes.setdefault(meta, name)

    # ---- statements
    def _emit(self, text: str, node: Node | None = None) -> None:
        comment = value_text(node.value).replace(" requires_grad", "") if node is not None else ""
        self.body.append(INDENT * self.depth + text + (f"  # {printable(comment)}" if comment else ""))

    def _program_line(self, node: Node) -> None:
        where = node.stack[-1]
        text = source_text(where, self.out.source)
        if text:
            self._emit(printable(f"# {short_place(where)}: {text}"))

    def _node(self, position: int, node: Node) -> None:
        held = self.graph.inner.get(node.id)
        if node.op == "output":
            self._emit(f"return {self._value(_tuples(node.args[0]))}")
        elif isinstance(held, Graph):
            name = self._name(position, node)
            inner = self.out.function(held, name)
            self.body += [INDENT * self.depth + line for line in inner]
        elif node.op == "get_attr":
            self._constant(node)
        elif node.id in self.blocks or (node.target == _EXIT and self._closes(node)):
            self._block(node)
        elif isinstance(held, AutogradFunction):
            self._assign(position, node, f"{self._class(node, held)}.apply({self._arguments(node)})")
        elif not self._in_place(node):
            self._assign(position, node, self._expression(node))

    def _assign(self, position: int, node: Node, text: str) -> None:
        if self._is_inline(position, node, text):
            self.text[node.id] = text
            return
        if not self.uses[node.id]:
            self._emit(text, node)
            return
        name = self._name(position, node)
        self._emit(f"{name} = {text}", node)

    def _name(self, position: int, node: Node) -> str:
        """A variable for the value: the program's, where the value that it had before is not needed any more."""
        base = identifier(self.wanted.get(node.id, node.id))
        name, number = base, 1
        while self.holders.get(name, -1) > position or name in self.sizes or name in RESERVED:
            number += 1
            name = f"{base}_{number}"
        self.holders[name] = self.last_use.get(node.id, position)
        self.text[node.id] = name
        return name

    def _is_inline(self, position: int, node: Node, text: str) -> bool:
        """Whether the value is written where it is used: once, in the statement that follows, on the same line of the
        program, which gave it no name."""
        following = self.nodes[position + 1]
        return (
            self.uses[node.id] == 1 and node.id not in self.wanted and self.last_use[node.id] == position + 1
            and following.op in ("call_function", "call_method") and len(text) <= LONGEST_INLINE
            and bool(node.stack) and _line(following) == _line(node)
            and following.id not in self.graph.inner and not _writes(following) and not _writes(node)
            and following.target not in (_ENTER, _EXIT)
        )

    def _in_place(self, node: Node) -> bool:
        """Write `a += b` and `a[i] = b`, whose value is `a`; whether the node is one of these."""
        name = node.target.removeprefix("operator.")
        if node.op != "call_function" or not node.target.startswith("operator."):
            return False
        if name == "setitem":
            self._emit(f"{self._atom(node.args[0])}[{self._index(node.args[1])}] = {self._value(node.args[2])}")
            return True
        if name not in IN_PLACE or not isinstance(node.value, TensorMeta) or not isinstance(node.args[0], NodeRef):
            return False
        target = self._value(node.args[0])
        if not target.isidentifier():
            return False
        self._emit(f"{target} {IN_PLACE[name]} {self._value(node.args[1])}", node)
        self.text[node.id] = target
        self.holders[target] = max(self.holders.get(target, -1), self.last_use.get(node.id, -1))
        return True

    # ---- autocast
    def _closes(self, node: Node) -> bool:
        return bool(node.args) and isinstance(node.args[0], NodeRef) and node.args[0].node in self.blocks

    def _block(self, node: Node) -> None:
        if node.target == _EXIT:
            self.depth -= 1
            return
        device, dtype, enabled, cache = (list(node.args) + [None] * 4)[:4]
        parts = [self._value(device)]
        parts += [f"dtype={self._value(dtype)}"] if dtype is not None else []
        parts += [f"enabled={enabled!r}"] if enabled is False else []
        parts += [f"cache_enabled={cache!r}"] if cache is False else []
        self._emit(f"with torch.autocast({', '.join(parts)}):")
        self.depth += 1
        if self.blocks[node.id]:
            self._emit("pass")

    # ---- constants and classes
    def _constant(self, node: Node) -> None:
        if not node.args:
            raise ReplayError(f"the recording lacks the constant {node.id}: it was too large to be recorded")
        data = node.args[0]
        name = identifier(node.id.strip("_").upper(), self.out.constants)
        for known, other in self.out.constants.items():
            name = known if other == data else name
        self.out.constants[name] = data
        self.text[node.id] = name

    def _class(self, node: Node, held: AutogradFunction) -> str:
        name = identifier(node.target)
        taken = [line.partition("class ")[2].partition("(")[0] for line in self.out.classes if line.startswith("class")]
        name = identifier(name, taken)
        self.out.classes += ["", "", *autograd_class(self.out.function, name, held)]
        return name

    # ---- expressions
    def _expression(self, node: Node) -> str:
        if node.op == "call_method":
            owner, *rest = node.args
            return f"{self._atom(owner)}.{identifier_of(node.target)}({self._listed(rest, node.kwargs)})"
        head, _, name = node.target.partition(".")
        args = node.args
        if head == "operator" and name in BINARY and len(args) == 2 and not node.kwargs:
            return f"{self._operand(args[0])} {BINARY[name]} {self._operand(args[1])}"
        if head == "operator" and name in UNARY and len(args) == 1:
            return f"{UNARY[name]}{self._operand(args[0])}"
        if head == "operator" and name == "getitem":
            return f"{self._atom(args[0])}[{self._index(args[1])}]"
        if node.target == "aten.sym_size.int" and len(args) == 2:
            return f"{self._atom(args[0])}.size({self._value(args[1])})"
        if node.target == "builtins.getattr" and isinstance(args[1], str):
            return f"{self._atom(args[0])}.{identifier_of(args[1])}"
        target = "aten.reshape.default" if self.out.any_strides and node.target == "aten.view.default" else node.target
        spelling = spelled(target)
        if not all(part.isidentifier() for part in spelling.split(".")):
            raise ReplayError(f"the recorded graph calls {node.target!r}, which has no name in Python")
        if spelling.partition(".")[0] not in (*OPERATORS, *IMPORTS, "torch", *dir(__builtins__)):
            self.out.imports[f"import {spelling.rpartition('.')[0]}"] = None
        return f"{self.out.need(spelling)}({self._arguments(node)})"

    def _arguments(self, node: Node) -> str:
        return self._listed(node.args, node.kwargs)

    def _listed(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> str:
        named = [f"{identifier_of(key)}={self._value(value)}" for key, value in kwargs.items()]
        return ", ".join([*map(self._value, args), *named])

    def _operand(self, tree: Any) -> str:
        text = self._value(tree)
        return text if _is_atom(text) else f"({text})"

    def _atom(self, tree: Any) -> str:
        text = self._value(tree)
        return text if _is_atom(text) and not text[0].isdigit() else f"({text})"

    def _index(self, tree: Any) -> str:
        if isinstance(tree, (list, tuple)):
            inside = ", ".join(map(self._index_part, tree))
            return inside + ("," if len(tree) == 1 else "") if tree else "()"
        return self._index_part(tree)

    def _index_part(self, tree: Any) -> str:
        form = form_of(tree) if isinstance(tree, dict) else None
        if form is not None and form[0] == "slice":
            start, stop, step = ("" if part is None else self._value(part) for part in form[1])
            return f"{start}:{stop}" + (f":{step}" if step else "")
        return self._value(tree)

    def _value(self, tree: Any) -> str:
        if isinstance(tree, NodeRef):
            return self.text[tree.node]
        if isinstance(tree, list):
            return "[" + ", ".join(map(self._value, tree)) + "]"
        if isinstance(tree, tuple):
            return "(" + ", ".join(map(self._value, tree)) + ("," if len(tree) == 1 else "") + ")"
        if not isinstance(tree, dict):
            return repr(tree)
        form = form_of(tree)
        if form is not None:
            return self._form(*form)
        if "tensor" in tree and "dtype" in tree:
            raise ReplayError("the recorded graph has a tensor as an argument")
        return "{" + ", ".join(f"{k!r}: {self._value(v)}" for k, v in tree.items()) + "}"

    def _form(self, kind: str, content: Any) -> str:
        if kind == "symbol":
            return self._symbol(content)
        if kind == "list":
            return self._value(list(content))
        if kind == "slice":
            return f"slice({', '.join(map(self._value, content))})"
        if kind == "float":
            return f"float({content!r})"
        if kind == "torch" and re.fullmatch(r"[a-z]{2,20}(:\d{1,3})?", content):
            return f"torch.device({content!r})"
        text = argument_text({kind: content})
        if kind == "torch" and not re.fullmatch(r"torch\.\w+", text):
            raise ReplayError(f"the recorded graph has an argument that has no Python: {content!r}")
        return text

    def _symbol(self, text: str) -> str:
        try:
            python, symbols = arithmetic(text)
        except ValueError:
            return repr(size_value(text, self.out.symbols))
        if not symbols <= self.sizes.keys():
            return repr(size_value(text, self.out.symbols))
        for symbol in symbols:
            if self.sizes[symbol].isidentifier():  # an input itself
                python = re.sub(rf"\b{symbol}\b", self.sizes[symbol], python)
        return self.out.need(python)


def _signature(name: str, parameters: Sequence[str]) -> list[str]:
    """`def name(parameters):`, on several lines if it is long."""
    line = f"def {name}({', '.join(parameters)}):"
    if len(line) <= LONGEST_LINE:
        return [line]
    wrapped = textwrap.wrap(", ".join(parameters), LONGEST_LINE - len(INDENT), break_long_words=False)
    return [f"def {name}(", *(INDENT + part for part in wrapped), "):"]


def _line(node: Node) -> tuple[str, int] | None:
    return (node.stack[-1].file, node.stack[-1].line) if node.stack else None


def references(tree: Any) -> Iterator[str]:
    """The nodes that an argument tree refers to."""
    if isinstance(tree, NodeRef):
        yield tree.node
    elif isinstance(tree, dict):
        for value in tree.values():
            yield from references(value)
    elif isinstance(tree, (list, tuple)):
        for value in tree:
            yield from references(value)


def identifier_of(name: str) -> str:
    """`name`, which must be an identifier. Raises ReplayError."""
    if not name.isidentifier():
        raise ReplayError(f"the recorded graph has a name that is not an identifier: {name!r}")
    return name


def _is_atom(text: str) -> bool:
    """Whether an expression needs no parentheses as an operand: a name, a number, a call, an element."""
    body = ast.parse(text, mode="eval").body
    return isinstance(body, (ast.Name, ast.Attribute, ast.Call, ast.Subscript, ast.Constant, ast.Tuple, ast.List))


def _tuples(tree: Any) -> Any:
    return tuple(map(_tuples, tree)) if isinstance(tree, list) else tree


def _writes(node: Node) -> bool:
    """Whether a node changes one of its arguments, as far as its name tells."""
    name = node.target.split(".")[1 if node.target.startswith("aten.") else -1]
    return (name.endswith("_") and not name.endswith("__")) or name == "setitem" or (
        node.target.startswith("operator.i") and name in IN_PLACE) or "out" in node.kwargs or (
        name.startswith("__i") and name not in ("__index__", "__invert__"))


def changed_inputs(graph: Graph) -> set[str]:
    """Placeholders that a graph writes to, as far as names tell, through views or not."""
    roots = {node.id: node.id for node in graph.nodes if node.op == "placeholder"}
    written: set[str] = set()
    for node in graph.nodes:
        first = next(references(node.args), "") if node.op in ("call_function", "call_method") else ""
        if first in roots:
            roots[node.id] = roots[first]  # maybe a view of it
            if _writes(node):
                written.add(roots[first])
    return written


def _autocast_blocks(nodes: Sequence[Node]) -> dict[str, bool]:
    """The nodes that enter an autocast region that can be a `with` statement, and whether it is empty."""
    opened: list[int] = []
    blocks: dict[str, bool] = {}
    for position, node in enumerate(nodes):
        if node.target == _ENTER:
            opened.append(position)
        elif node.target == _EXIT:
            entered = next(references(node.args), "")
            if not opened or nodes[opened[-1]].id != entered:
                return {}
            start = opened.pop()
            blocks[entered] = position == start + 1
    return {} if opened else blocks
