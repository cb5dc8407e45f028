"""Rewritten bytecode as Python source: the forms that ptdebug itself generates.

Instructions are run on a stack of texts. `try` comes from the exception table, `if` from forward jumps, and the one
loop, which resume functions run in, from the one backward jump. What has another form is not guessed: `Unknown` says
which instruction it is, and the bytecode alone is shown.
"""
from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from .records import Bytecode, ExceptionEntry, Instruction

INDENT = "    "


class Unknown(Exception):
    """Why the bytecode is not shown as Python."""


@dataclass(frozen=True)
class Statement:
    """One line of Python, and the instruction that it ends with."""

    depth: int
    text: str
    instruction: str


@dataclass(frozen=True)
class _Value:
    """A text on the stack. `pure`: it can be computed later just as well; `atom`: it needs no parentheses; `items` are
    those of a tuple that is made here."""

    text: str
    pure: bool = True
    atom: bool = True
    items: tuple[str, ...] | None = None

    @property
    def operand(self) -> str:
        """The text as part of a larger expression."""
        return self.text if self.atom else f"({self.text})"


NULL = _Value("NULL")
ENDS = ("RETURN_VALUE", "RETURN_CONST", "RAISE_VARARGS", "RERAISE")
SKIPPED = ("RESUME", "NOP", "PRECALL", "COPY_FREE_VARS", "MAKE_CELL", "CACHE", "NOT_TAKEN", "TO_BOOL")
UNARY = {"UNARY_NOT": "not ", "UNARY_NEGATIVE": "-", "UNARY_INVERT": "~", "UNARY_POSITIVE": "+"}
BRACKETS = {"BUILD_LIST": ("[", "]"), "BUILD_SET": ("{", "}")}
_FUNCTION = re.compile(r"<(?:function|built-in function) ([\w.<>]+?)(?: at 0x[0-9a-f]+)?>")
_CLASS = re.compile(r"<class '([\w.<>]+)'>")
_CODE = re.compile(r'<code object ([\w<>]+) at 0x[0-9a-f]+, file "(.*)", line (\d+)>')
_JUMP = re.compile(r"to (\d+)")
_NAME = re.compile(r"\w+")
_OWN = re.compile(r"ours_\w+(\[\d+\])?")
_READS = re.compile(r"[\w\])]\[|[A-Za-z_)\]]\w*\.[A-Za-z_]")
"""What a text has in it that reads an attribute or an item."""


def decompiled(record: Bytecode) -> list[Statement]:
    """The statements of a function. Raises Unknown."""
    if record.role != "rewritten":
        raise Unknown("it is the program's own code, from the place where it resumes")
    return _Function(record).statements()


def constant_text(text: str) -> str:
    """A constant as an expression: functions and classes by their names."""
    for pattern in (_FUNCTION, _CLASS):
        if found := pattern.fullmatch(text):
            return found[1].rpartition(".")[2]
    if found := _CODE.fullmatch(text):
        return f"{found[1].strip('<>')}_at_line_{found[3]}"
    return f"recorded({text!r})" if text.startswith("<") or " at 0x" in text else text


@dataclass
class _Function:
    record: Bytecode
    lines: list[Statement] = field(default_factory=list)
    postponed: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.code: Sequence[Instruction] = self.record.instructions
        self.index = {item.id: number for number, item in enumerate(self.code)}
        self.loops = {self.target(item): number for number, item in enumerate(self.code)
                      if item.opname.startswith("JUMP_BACKWARD")}
        self.spilled = 0
        self.keywords: list[str] = []

    def statements(self) -> list[Statement]:
        self.block(0, len(self.code), [], 0, frozenset())
        return self.lines

    # ---- where instructions are
    def target(self, item: Instruction) -> int:
        found = _JUMP.search(item.argument)
        if found is None or found[1] not in self.index:
            raise Unknown(f"the jump at {item.id} leads nowhere")
        return self.index[found[1]]

    def at(self, offset: int) -> int:
        """The first instruction at or after an offset."""
        return next((n for n, item in enumerate(self.code) if int(item.id) >= offset), len(self.code))

    def say(self, depth: int, text: str, number: int) -> None:
        self.lines.append(Statement(depth, text, self.code[min(number, len(self.code) - 1)].id))
        for later in self.postponed:
            self.lines.append(Statement(depth, later, self.code[min(number, len(self.code) - 1)].id))
        self.postponed.clear()

    # ---- structure
    def block(self, start: int, end: int, stack: list[_Value], depth: int, tried: frozenset[int]) -> bool:
        """The instructions from `start` to `end`; whether they never get there."""
        at = start
        while at < end:
            item = self.code[at]
            entry = self.entry_at(at, tried)
            if entry is not None:
                at = self.attempt(entry, at, end, stack, depth, tried)
            elif at in self.loops:
                at = self.loop(at, stack, depth, tried)
            elif item.opname.startswith("POP_JUMP"):
                at = self.branch(at, end, stack, depth, tried)
            elif item.opname == "JUMP_FORWARD":
                if (to := self.target(item)) not in (at + 1, end):
                    raise Unknown(f"the jump at {item.id} is of no known form")
                at = to
            else:
                self.step(at, stack, depth)
                at += 1
                if item.opname in ENDS:
                    return True
        return False

    def entry_at(self, at: int, tried: frozenset[int]) -> ExceptionEntry | None:
        return next((entry for entry in self.record.exceptions
                     if self.at(entry.start) == at and entry.target not in tried), None)

    def attempt(
        self, entry: ExceptionEntry, at: int, end: int, stack: list[_Value], depth: int, tried: frozenset[int]
    ) -> int:
        """A `try` with its handler; returns where it goes on."""
        if entry.depth or entry.lasti:
            raise Unknown(f"the try at {entry.start} is inside of an expression")
        self.spill(stack, depth, at)
        last = max(self.at(other.end) for other in self.record.exceptions if other.target == entry.target)
        handler = self.at(entry.target)
        jump = self.code[last] if last < len(self.code) else None
        after = self.target(jump) if jump is not None and jump.opname == "JUMP_FORWARD" and last < handler else end
        if not at < last <= handler < after <= end or self.code[handler].opname != "STORE_FAST":
            raise Unknown(f"the try at {entry.start} is of no known form")
        self.say(depth, "try:", at)
        inside = tried | {entry.target}
        ended = self.block(at, last, stack, depth + 1, inside)
        if stack and not ended:
            raise Unknown(f"the try at {entry.start} ends inside of an expression")
        self.say(depth, f"except BaseException as {_variable(self.code[handler].argument)}:", handler)
        stack.clear()
        self.block(handler + 1, after, stack, depth + 1, inside)
        if stack:
            raise Unknown(f"the handler at {entry.target} leaves a value")
        return after

    def branch(self, at: int, end: int, stack: list[_Value], depth: int, tried: frozenset[int]) -> int:
        item = self.code[at]
        to, condition = self.target(item), stack.pop()
        if not at < to <= end:
            raise Unknown(f"the jump at {item.id} is of no known form")
        self.spill(stack, depth, at)
        self.say(depth, f"if {_asked(item.opname, condition)}:", at)
        before, lines = list(stack), len(self.lines)
        jump = self.code[to - 1]
        other = self.target(jump) if jump.opname == "JUMP_FORWARD" and to - 1 > at else to
        other = other if other <= end else to
        ended = self.block(at + 1, to - 1 if other != to else to, stack, depth + 1, tried)
        if len(self.lines) == lines:
            self.say(depth + 1, "pass", at)
        if other != to:
            self.say(depth, "else:", to)
            first, stack[:] = list(stack), before
            also = self.block(to, other, stack, depth + 1, tried)
            if not ended and not also and stack != first:
                raise Unknown(f"the two sides of the jump at {item.id} leave different values")
        elif not ended and stack != before:
            raise Unknown(f"the jump at {item.id} is inside of an expression")
        else:
            stack[:] = before
        return other

    def loop(self, at: int, stack: list[_Value], depth: int, tried: frozenset[int]) -> int:
        """`name = value; while condition: ...; name = value`."""
        back = self.loops.pop(at)
        head = self.code[at]
        if head.opname != "STORE_FAST" or len(stack) != 1:
            raise Unknown(f"the loop at {head.id} is of no known form")
        name = _variable(head.argument)
        self.say(depth, f"{name} = {stack.pop().text}", at)
        lines = len(self.lines)
        test = at + 1
        while not self.code[test].opname.startswith("POP_JUMP"):
            self.step(test, stack, depth)
            test += 1
            if test >= back:
                raise Unknown(f"the loop at {head.id} has no condition")
        if len(self.lines) != lines or self.target(self.code[test]) != back + 1:
            raise Unknown(f"the loop at {head.id} is of no known form")
        self.say(depth, f"while {_asked(self.code[test].opname, stack.pop())}:", test)
        self.block(test + 1, back, stack, depth + 1, tried)
        if len(stack) != 1:
            raise Unknown(f"the loop at {head.id} is of no known form")
        self.say(depth + 1, f"{name} = {stack.pop().text}", back)
        return back + 1

    # ---- instructions
    def spill(self, stack: list[_Value], depth: int, at: int, changes: bool = False) -> None:
        """What has effects is computed before the next statement; if that changes an object, so is what reads one."""
        for place, value in enumerate(stack):
            reads = changes and _READS.search(_OWN.sub("ours", value.text))
            if not value.pure or (reads and value.text[0] not in "'\""):
                name = f"value_{self.spilled}"
                self.spilled += 1
                stack[place] = _Value(name)
                self.say(depth, f"{name} = {value.text}", at)

    def store(self, target: str, value: _Value, stack: list[_Value], depth: int, at: int) -> None:
        """An assignment. One that clears a variable which waits on the stack comes after its use."""
        waits = any(target in _NAME.findall(other.text) for other in stack)
        if waits and value.text == "None":
            self.postponed.append(f"{target} = None")
            return
        if waits:
            raise Unknown(f"{target} changes at {self.code[at].id} inside of an expression")
        self.spill(stack, depth, at)
        self.say(depth, f"{target} = {value.text}", at)
        if value.pure:
            stack[:] = [_Value(target) if other == value and not _NAME.fullmatch(other.text) else other
                        for other in stack]  # copies of it, which are read from the variable

    def step(self, at: int, stack: list[_Value], depth: int) -> None:
        item = self.code[at]
        name, argument = item.opname, item.argument
        try:
            made = list(self.values(item, stack))
        except IndexError:
            raise Unknown(f"{name} at {item.id} needs more than is on the stack") from None
        if made != [None]:
            stack += [value for value in made if value is not None]
            return
        if name in ("STORE_FAST", "STORE_DEREF", "STORE_GLOBAL", "STORE_NAME"):
            self.store(_variable(argument), stack.pop(), stack, depth, at)
        elif name in ("DELETE_FAST", "DELETE_DEREF", "DELETE_GLOBAL"):
            self.spill(stack, depth, at)
            self.say(depth, f"del {_variable(argument)}", at)
        elif name in ("STORE_ATTR", "STORE_SUBSCR", "DELETE_SUBSCR", "DELETE_ATTR"):
            self.say_item(item, stack, depth, at)
        elif name == "POP_TOP":
            value = stack.pop()
            self.spill(stack, depth, at, not value.pure)
            if not value.pure:
                self.say(depth, value.text, at)
        elif name in ENDS:
            self.end(item, stack, depth, at)
        elif name not in SKIPPED:
            raise Unknown(f"{name} at {item.id} is of no known form")

    def say_item(self, item: Instruction, stack: list[_Value], depth: int, at: int) -> None:
        owner_and_key = [stack.pop()] if item.opname.endswith("ATTR") else [stack.pop(), stack.pop()]
        owner = owner_and_key[-1].operand
        place = f"{owner}.{item.argument}" if len(owner_and_key) == 1 else f"{owner}[{owner_and_key[0].text}]"
        value = stack.pop() if item.opname.startswith("STORE") else None
        self.spill(stack, depth, at, True)
        self.say(depth, f"{place} = {value.text}" if value is not None else f"del {place}", at)

    def end(self, item: Instruction, stack: list[_Value], depth: int, at: int) -> None:
        if item.opname == "RETURN_CONST":
            text = f"return {constant_text(item.argument)}"
        elif item.opname == "RETURN_VALUE":
            text = f"return {stack.pop().text}"
        elif item.opname == "RAISE_VARARGS" and item.argument not in ("1", "exception instance"):
            raise Unknown(f"RAISE_VARARGS at {item.id} is of no known form")
        else:
            text = f"raise {stack.pop().text}"
        stack.clear()
        self.postponed.clear()  # variables end with the call
        self.say(depth, text, at)

    def values(self, item: Instruction, stack: list[_Value]) -> Iterator[_Value | None]:
        """What an instruction pushes; [None] where it is a statement."""
        name, argument = item.opname, item.argument
        if name in ("LOAD_FAST", "LOAD_FAST_CHECK", "LOAD_FAST_BORROW", "LOAD_DEREF", "LOAD_NAME", "LOAD_CLOSURE"):
            yield _Value(_variable(argument))
        elif name in ("LOAD_FAST_LOAD_FAST", "LOAD_FAST_BORROW_LOAD_FAST_BORROW"):
            yield from (_Value(_variable(part.strip())) for part in argument.split(","))
        elif name == "LOAD_CONST":
            yield _Value(constant_text(argument), atom=not argument.startswith("-"))
        elif name == "PUSH_NULL":
            yield NULL
        elif name in ("LOAD_GLOBAL", "LOAD_ATTR", "LOAD_METHOD"):
            own = argument.replace("NULL|self", "NULL").replace(" ", "").strip("+")
            parts = [part for part in own.split("+") if part != "NULL"]
            owner = "" if name == "LOAD_GLOBAL" else f"{stack.pop().operand}."
            callee = "NULL" in own or name == "LOAD_METHOD"
            yield from ([NULL] if callee else [])
            yield _Value(f"{owner}{parts[0]}")
        elif name in ("COPY", "SWAP"):
            yield from self.moved(item, stack)
        elif name in UNARY:
            yield _Value(f"{UNARY[name]}{stack.pop().operand}", atom=False)
        elif name in ("BINARY_SUBSCR", "BINARY_OP", "COMPARE_OP", "IS_OP", "CONTAINS_OP"):
            yield _binary(item, stack.pop(), stack.pop())
        elif name.startswith("BUILD_"):
            yield self.built(item, stack)
        elif name == "KW_NAMES":
            self.keywords = re.findall(r"'(\w+)'", argument)
            if not self.keywords:
                raise Unknown(f"KW_NAMES at {item.id} was recorded without its names")
        elif name in ("CALL", "CALL_KW", "CALL_FUNCTION_EX"):
            yield self.call(item, stack)
        elif name in ("MAKE_FUNCTION", "SET_FUNCTION_ATTRIBUTE"):
            if argument not in ("", "0", "8", "closure"):
                raise Unknown(f"{name} at {item.id} has defaults")
            function = stack.pop()
            if argument in ("8", "closure"):
                stack.pop()  # the variables, which have the names that they have here
            yield function
        elif name == "LIST_TO_TUPLE":
            yield _Value(f"tuple({stack.pop().text})")
        else:
            yield None

    def moved(self, item: Instruction, stack: list[_Value]) -> Iterator[_Value]:
        if not item.argument.isdecimal():
            raise Unknown(f"{item.opname} at {item.id} was recorded without its number")
        place = len(stack) - int(item.argument)
        if place < 0:
            raise IndexError
        if item.opname == "COPY":
            if not stack[place].pure:
                raise Unknown(f"COPY at {item.id} copies a result")
            yield stack[place]
        else:
            stack[place], stack[-1] = stack[-1], stack[place]

    def built(self, item: Instruction, stack: list[_Value]) -> _Value:
        if not item.argument.isdecimal():
            raise Unknown(f"{item.opname} at {item.id} was recorded without its number")
        count = int(item.argument) * (2 if item.opname == "BUILD_MAP" else 1)
        items = _popped(stack, count)
        texts, pure = [value.text for value in items], all(value.pure for value in items)
        if item.opname == "BUILD_TUPLE":
            return _Value(f"({', '.join(texts)}{',' if len(texts) == 1 else ''})", pure, items=tuple(texts))
        if item.opname == "BUILD_MAP":
            pairs = ", ".join(f"{key}: {value}" for key, value in zip(texts[::2], texts[1::2]))
            return _Value("{" + pairs + "}", False)
        if item.opname == "BUILD_SLICE":
            return _Value(f"slice({', '.join(texts)})", pure)
        if item.opname in BRACKETS and (texts or item.opname == "BUILD_LIST"):
            opening, closing = BRACKETS[item.opname]
            return _Value(f"{opening}{', '.join(texts)}{closing}", False)
        raise Unknown(f"{item.opname} at {item.id} is of no known form")

    def call(self, item: Instruction, stack: list[_Value]) -> _Value:
        if item.opname == "CALL_FUNCTION_EX":
            keywords = f", **{stack.pop().operand}" if item.argument not in ("", "0") else ""
            given = stack.pop()
            arguments = f"*{given.operand}" if given.items is None else ", ".join(given.items)
            return _Value(f"{_callee(stack)}({arguments}{keywords})", False)
        if not item.argument.isdecimal():
            raise Unknown(f"{item.opname} at {item.id} was recorded without its number")
        names = re.findall(r"'(\w+)'", stack.pop().text) if item.opname == "CALL_KW" else self.keywords
        self.keywords = []
        texts = [value.text for value in _popped(stack, int(item.argument))]
        for place, name in enumerate(reversed(names), 1):
            texts[-place] = f"{name}={texts[-place]}"
        callee = _callee(stack, texts)
        return _Value(f"{callee}({', '.join(texts)})", False)


def _callee(stack: list[_Value], arguments: list[str] | None = None) -> str:
    """What is called: below or above its NULL; a method without one has its object as first argument."""
    top = stack.pop()
    if top is NULL:
        return stack.pop().operand
    if stack and stack[-1] is NULL:
        stack.pop()
    elif arguments is None or not stack:
        pass  # CALL_FUNCTION_EX of CPython 3.11 may have no NULL
    else:
        raise Unknown(f"the call of {top.text} is of no known form")
    return top.operand


def _popped(stack: list[_Value], count: int) -> list[_Value]:
    if count > len(stack):
        raise IndexError
    items = stack[len(stack) - count:]
    del stack[len(stack) - count:]
    return items


def _binary(item: Instruction, second: _Value, first: _Value) -> _Value:
    pure = first.pure and second.pure
    if item.opname == "BINARY_SUBSCR" or item.argument == "[]":
        return _Value(f"{first.operand}[{second.text}]", pure)
    if item.opname in ("IS_OP", "CONTAINS_OP"):
        if item.argument not in ("0", "1", "is", "is not", "in", "not in"):
            raise Unknown(f"{item.opname} at {item.id} was recorded without its number")
        plain, inverted = ("is", "is not") if item.opname == "IS_OP" else ("in", "not in")
        sign = inverted if item.argument in ("1", inverted) else plain
    else:
        sign = item.argument.removeprefix("bool(").removesuffix(")")
        if not sign or (sign.endswith("=") and sign not in ("==", "!=", "<=", ">=")):
            raise Unknown(f"{item.opname} {item.argument} at {item.id} is of no known form")
    return _Value(f"{first.operand} {sign} {second.operand}", pure, False)


def _asked(jump: str, condition: _Value) -> str:
    if jump.endswith("NOT_NONE"):
        return f"{condition.operand} is None"
    if jump.endswith("NONE"):
        return f"{condition.operand} is not None"
    return condition.text if jump.endswith("FALSE") else f"not {condition.operand}"


def _variable(name: str) -> str:
    return name.lstrip(".")
