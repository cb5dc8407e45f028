"""What is best told from the program's text at the break: loops over data, items chosen by data, strings.

Which part of a line an instruction is about differs between versions of Python, so the text is the expression and,
below it, its line. The first row of `SITUATIONS` that fits counts.
"""
from __future__ import annotations

import operator
import re
from collections.abc import Callable
from types import BuiltinMethodType, MethodType
from typing import Any

import torch

from .hints import FILE, OPTIMIZER, TURNS, Explanation
from .math_breaks import CALL as MATH_CALL
from .reasons import NUMBER, OUTSIDE, STRINGS, Reason
from .subjects import is_value, type_of
from .unsupported import Unsupported

_ASSERTION = Explanation(
    "this assertion depends on a tensor's values (`{expression}`), which are not known while tracing",
    "check it before the call of the compiled function, or on what it returns"
)
_FOLD = Explanation(
    "`{expression}` compares or tests the items one by one in Python, which depends on a tensor's values",
    "use the tensor's own function, which makes one tensor: x.max(), x.min(), x.sort(), x.any(), x.all(); rows in the "
    "order of a key: torch.stack(rows)[keys.argsort()]",
)
_DECIDES = Explanation(
    "what `{expression}` does depends on a tensor's values: {subject}",
    "use the tensor's own function instead (x.median(), x.sort(), ...), or call it on what the compiled function "
    "returns",
)
_DECIDES_INSIDE = Explanation(_DECIDES.message, OUTSIDE)
COMPUTED = Explanation("`{expression}` needs the value of {subject} in Python, which has to wait for it", NUMBER)
"""`math.sqrt(x)`: what to write for it depends on the function."""
_NEEDED = Explanation(
    "`{expression}` needs a number that is read out of a tensor: Python has to wait for the value", NUMBER
)
_STRING = Explanation(Reason.TENSOR_STRING.message, STRINGS)
_CHOSEN = Explanation(
    "what is taken here is chosen by numbers in a tensor: `{expression}`",
    "index with a tensor that has a dimension (`x[i.view(1)].squeeze(0)` instead of `x[i]`), or use torch.gather",
)
_ITEM = Explanation(
    "which item is taken depends on a number in a tensor: `{expression}`",
    "stack the items (of functions or modules, what each gives) and index with a tensor that has a dimension: "
    "`torch.stack(items)[i.view(1)].squeeze(0)`; or return the number, and take the item after the call",
)
_CLASSES = Explanation(
    "the number of classes depends on a tensor's values: `{expression}`",
    "say how many: one_hot(labels, num_classes=...)",
)
_REPEATED = Explanation(Reason.DATA_DEPENDENT_SHAPE.message, "say how large: output_size=...")
_LENGTHS = Explanation(
    "how much memory `{expression}` takes for its gradient depends on the targets and their lengths",
    "compute the loss on what the compiled function returns",
)
_PARAMETER = Explanation(
    "a parameter is made inside of the function, a new one at each call: `{expression}`",
    "make it once, in __init__ or before the compiled function is called; what takes no gradient can be a plain tensor",
)
_MODULE = Explanation(
    "a module is made inside the function, a new one at each call: `{expression}`",
    "make it once, in __init__ or before the compiled function is called",
)
_TRACEBACK = Explanation(
    "the program reads where an exception was raised: `{expression}`",
    "use the exception itself (its type, str(error)), or handle it around the call of the compiled function",
)
_NO_META = Explanation("torch does not say which shape and dtype the result of {subject} has before it runs", OUTSIDE)
_STEP = Explanation(
    "`{expression}` takes an item of an iterator that was begun before: outside of the function, or before an earlier "
    "break in it",
    "take the item before the call and pass it; after an earlier break: take that away, and this one goes with it",
)
_LEFT = Explanation(
    "a `with` block is left that was entered before an earlier break in it, so Python leaves it",
    "remove the break inside of the block: this one goes with it",
)
_NEXT_TURN = Explanation(
    "the loop resumes an iterator that was begun before an earlier break of this function, so Python takes each next "
    "step of it",
    "remove the break in the loop's body or first line (or in the generator): this one goes with it",
)
_BEGUN_BEFORE = Explanation(
    "the loop goes over an iterator that was begun before the function: `{expression}`",
    "make a list of its items before the call (list(...)), and pass that",
)

Test = Callable[[Unsupported], bool]


def _always(error: Unsupported) -> bool:
    return True


def _of_number(error: Unsupported) -> bool:
    """About a number that the trace does not know."""
    kind = type_of(error.subject)
    return kind is not None and issubclass(kind, (int, float))


def _of_read_number(error: Unsupported) -> bool:
    read = error.text().partition("`")[2]
    return _of_number(error) and (".item(" in read or ".tolist(" in read)


def _of_tensor(error: Unsupported) -> bool:
    return issubclass(type_of(error.subject) or object, torch.Tensor)


def _by_tensor(error: Unsupported) -> bool:
    return any(issubclass(type_of(part) or object, torch.Tensor) for part in error.given)


def _of_parameter(error: Unsupported) -> bool:
    return error.subject is torch.nn.Parameter or error.subject is torch.nn.Buffer


def _about(*subjects: Any) -> Test:
    return lambda error: any(error.subject is subject for subject in subjects)


def _of_step(error: Unsupported) -> bool:
    """About the method `step` of a class of optimizers."""
    found = error.subject.represents() if is_value(error.subject) else error.subject
    return error.member == "step" and isinstance(found, type) and issubclass(found, torch.optim.Optimizer)


def _of_torch(error: Unsupported) -> bool:
    return not isinstance(error.subject, torch._ops.OpOverload) or error.subject.namespace == "aten"


def _asked_inside(error: Unsupported) -> bool:
    return bool(error.context.get("asked_inside"))


def _member(*names: str) -> Test:
    return lambda error: error.member in names


def _of_iterator(name: str) -> Test:
    return lambda error: error.member == name and hasattr(type_of(error.subject), "__next__")


def _leaves(error: Unsupported) -> bool:
    """About what an earlier part of the function has left: the `__exit__` that it looked up."""
    if error.member in ("__next__", "__exit__"):
        return True
    if not is_value(error.subject):
        return False
    found = error.subject.represents()
    if found is not None:
        return getattr(found, "__name__", "") in ("__next__", "__exit__")
    return type_of(error.subject) in (MethodType, BuiltinMethodType)


_CALLS = (
    Reason.UNKNOWN_CALLABLE, Reason.UNSUPPORTED_METHOD, Reason.UNSUPPORTED_BUILTIN, Reason.UNSUPPORTED_CLASS,
    Reason.UNSUPPORTED_ARGUMENT,
)
_VALUE, _BRANCH, _SHAPE = Reason.DATA_DEPENDENT_VALUE, Reason.DATA_DEPENDENT_BRANCH, Reason.DATA_DEPENDENT_SHAPE
_LETTERS = r"""^(f["']|\{|str\(|repr\(|format\(|json\.dumps\()"""
_CALL_THAT_DECIDES = r"\A(?!.*(\.(item|tolist)\(\)$| [<>=!]=? ))[a-z_]+(\.[a-z_]+)+\(.*\)$"
_TAKES_AN_ITEM = r"\A(?!.* for ).*([\w\])}]\[[^\[]*\]|\}\.get\(.*\))$"

SITUATIONS: tuple[tuple[tuple[Reason, ...], Test, str, Explanation], ...] = (
    ((_VALUE,), _always, r"^range\(", TURNS),
    ((_VALUE,), _member("tolist"), r"\bfor\b.*\bin\b.*\.tolist\(\)", TURNS),
    ((_BRANCH, Reason.BRANCH_ON_SIZE), _always, r"^range\(|^while\b", TURNS),
    ((_SHAPE,), _always, r"\bctc_loss\(|_ctc_loss$", _LENGTHS),
    ((_SHAPE,), _about(torch._ctc_loss), "", _LENGTHS),
    ((_SHAPE,), _about(operator.getitem), r"\]$", _CHOSEN),
    ((_SHAPE,), _always, r"\bone_hot\(", _CLASSES),
    ((_SHAPE,), _always, r"\brepeat_interleave\(", _REPEATED),
    ((_BRANCH, Reason.BRANCH_ON_SIZE), _always, r"^assert\b", _ASSERTION),
    ((_BRANCH,), _always, r"^(max|min|sorted|any|all)\(|\.sort\(.*key=", _FOLD),
    ((_BRANCH,), _asked_inside, "", _DECIDES_INSIDE),
    ((_VALUE,), _of_number, _TAKES_AN_ITEM, _ITEM),
    ((Reason.VALUE_READ_BY_OPERATOR,), _about(operator.getitem), _TAKES_AN_ITEM, _ITEM),
    ((Reason.SUBSCRIPT,), _by_tensor, "", _ITEM),
    ((Reason.UNKNOWN_TYPE,), _of_parameter, r"\b(Buffer|Parameter)\(", _PARAMETER),
    ((Reason.UNKNOWN_TYPE,), _of_parameter, r"^([\w.]+\.)?_*[A-Z]\w*\(", _MODULE),
    ((Reason.UNKNOWN_TYPE,), _of_parameter, r"\w\(", _PARAMETER),
    ((Reason.SET_ATTRIBUTE,), _of_step, r"\w\(", OPTIMIZER),
    ((_VALUE,), _of_number, r"""\A["'].*["']( % |\.format\()""", _STRING),
    ((Reason.RECONSTRUCT, Reason.GLOBAL_STATE), _always, r"\btraceback\.\w+\(", _TRACEBACK),
    ((Reason.MISSING_FAKE_KERNEL,), _of_torch, "", _NO_META),
    ((_BRANCH,), _of_number, _CALL_THAT_DECIDES, _DECIDES),
    ((Reason.NOT_A_CONSTANT,), _always, _LETTERS, _STRING),
    ((Reason.NOT_A_CONSTANT,), _of_tensor, rf"{MATH_CALL}|\Acomplex\(", COMPUTED),
    ((Reason.NOT_A_CONSTANT,), _of_read_number, "", _NEEDED),
    (_CALLS, _always, r"\A.*\.(read|write)_(bytes|text)\([^()]*\(?[^()]*\)?\)$", FILE),
    (_CALLS, _member("__next__"), r"\Anext\(", _STEP),
    (_CALLS, _leaves, r"^with\b", _LEFT),
    (_CALLS, _of_iterator("__next__"), "", _NEXT_TURN),
    (_CALLS, _of_iterator("__iter__"), "", _BEGUN_BEFORE),
)
"""(reasons, a test of the break, a regular expression on the program's text, what is said)."""


def situation_of(error: Unsupported, text: str) -> Explanation | None:
    """What is said of a break at `text`; None where nothing in the text says it better."""
    for reasons, applies, pattern, explanation in SITUATIONS:
        if error.reason in reasons and applies(error) and re.search(pattern, text, re.M):
            return explanation
    return None

