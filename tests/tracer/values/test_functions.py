"""Functions, closures, iterators, builtins and the standard library against eager."""
from __future__ import annotations

import contextlib
import copy
import dataclasses
import functools
import inspect
import itertools
import math
import operator
import sys
import typing

import pytest
import torch

X = torch.arange(6.0).reshape(2, 3)


def decorated(function):
    @functools.wraps(function)
    def wrapper(*args, **kwargs):
        return function(*args, **kwargs) * 2

    return wrapper


@decorated
def doubled(x, *, shift=1):
    """Doc."""
    return x + shift


def signatures(x):
    def f(a, b=2, /, c=3, *rest, d=4, **more):
        return a, b, c, rest, d, more

    return f(1), f(1, 5, 6, 7, d=x, e=9), f(*[1, 2], **dict(zip("cz", (0, 1)))), doubled(x, shift=3)


def wrong_arguments(x):
    def f(a, b, *, c):
        return a

    found = []
    for call in (lambda: f(), lambda: f(1, 2, 3, c=1), lambda: f(1, 2), lambda: f(1, a=1)):
        try:
            call()
        except TypeError as error:
            found.append(str(error))
    return x, found


def unknown_argument(x):
    try:
        return doubled(x, shifted=1)
    except TypeError as error:
        return x + 1, str(error)


def closures(x):
    count = 0

    def step(by):
        nonlocal count
        count += by
        return x * count

    return step(1), step(2), count, [f() for f in [lambda i=i: i for i in range(3)]]


def partials(x):
    add = functools.partial(torch.add, x, alpha=2)
    return add(1), functools.partial(add, 3)(), functools.reduce(operator.mul, [1, 2, x]), add.keywords


def iterators(x):
    pairs = list(zip("ab", [x, 1]))
    counted = list(enumerate(pairs, start=5))
    mapped = list(map(lambda a, b: a + b, [1, 2], [10, 20]))
    kept = list(filter(None, [0, 1, "", 2]))
    it = iter([1, 2, 3])
    first = next(it)
    return counted, mapped, kept, first, list(it), next(it, "end"), list(reversed([1, 2])), dict(zip("xy", range(2)))


def itertools_functions(x):
    return (
        list(itertools.chain([1], (2, x), "a")), list(itertools.islice(itertools.count(3, 2), 3)),
        list(itertools.product([1, 2], "ab")), list(itertools.combinations(range(3), 2)),
        list(itertools.accumulate([1, 2, 3])), list(itertools.takewhile(lambda v: v < 3, [1, 2, 3, 1])),
        list(itertools.dropwhile(lambda v: v < 3, [1, 3, 1])), list(itertools.repeat(x, 2)),
        list(itertools.zip_longest([1, 2], [3], fillvalue=0)), list(itertools.starmap(pow, [(2, 3)])),
        [(k, list(g)) for k, g in itertools.groupby([1, 1, 2])], list(itertools.pairwise([1, 2, 3])),
    )  # fmt: skip


def generators(x):
    def numbers(n):
        for i in range(n):
            received = yield i * x
            if received:
                yield received

    g = numbers(3)
    return next(g), g.send("hello"), list(g), sum(i for i in range(4) if i % 2), any(v > 1 for v in [1, 2, 3])


def builtin_functions(x):
    return (
        len(x), isinstance(x, torch.Tensor), issubclass(bool, int), min(3, 1, 2), max([1, 5], key=lambda v: -v),
        sum([1, 2], 3), any([0, 1]), all([]), sorted([3, 1, 2], reverse=True), abs(-3), round(2.567, 1), divmod(7, 2),
        int("12"), float("1.5"), str(3), bool([]), repr("a"), callable(len), type(x).__name__, getattr(x, "nope", 7),
        hasattr(x, "shape"), f"{3.14159:.2f} {len(x)!r}", "a,b".split(","), "-".join(["x", "y"]),
        math.sqrt(16), math.pi, operator.add(1, 2), chr(65), ord("A"), pow(2, 5), 7 // 2, -7 % 3, 1 < 2 < 3,
        list(map(str, range(2))), "abc"[1:], "abc".upper().startswith("AB"), min([], default=4), hash("a") == hash("a"),
    )  # fmt: skip


def tensor_min_max(x):
    return max(x.sum(), x.sum(), key=lambda v: 1), sum([x, x])


def signature_of_a_function(x):
    names = list(inspect.signature(doubled).parameters)
    return x, names, inspect.signature(doubled).parameters["shift"].default, doubled.__name__, doubled.__doc__


@dataclasses.dataclass
class Config:
    width: int = 3
    names: list = dataclasses.field(default_factory=list)
    scale: float = dataclasses.field(init=False)

    def __post_init__(self):
        self.scale = self.width / 2


def dataclass_functions(x):
    c = Config(4)
    return [f.name for f in dataclasses.fields(c)], dataclasses.is_dataclass(c), x * c.scale, c


def copies(x):
    a = [1, [2]]
    b, c = copy.copy(a), copy.deepcopy(a)
    b[1].append(3)
    return x, a, b, c, typing.cast(int, 3)


@contextlib.contextmanager
def scaled(log):
    log.append("enter")
    try:
        yield 3
    finally:
        log.append("exit")


def context_managers(x):
    log = []
    with scaled(log) as factor, contextlib.nullcontext(5) as five:
        y = x * factor + five
    with contextlib.suppress(KeyError):
        {}["missing"]
    with contextlib.ExitStack() as stack:
        stack.enter_context(scaled(log))
    return y, log


def grad_modes(x):
    with torch.no_grad():
        a = x * 2
        inside = torch.is_grad_enabled()
    with torch.enable_grad():
        b = x * 3
    return a, b, inside, torch.is_grad_enabled()


@torch.no_grad()
def without_gradients(x):
    return x * 2, torch.is_grad_enabled()


def decorated_mode(x):
    return without_gradients(x), torch.is_grad_enabled()


@functools.lru_cache
def cached(n):
    return n * 2


def cached_function(x):
    return x * cached(3) + cached(3)


def exceptions(x):
    log = []
    try:
        try:
            raise ValueError("bad", 3)
        except ValueError as error:
            log.append((error.args, str(error)))
            raise KeyError("k") from error
        finally:
            log.append("finally")
    except KeyError as error:
        log.append(repr(error))
    else:
        log.append("never")
    return x, log


class CodeError(Exception):
    kind = "code"

    def __init__(self, code):
        super().__init__(f"code {code}")
        self.code = code


def exceptions_of_the_program(x):
    try:
        raise CodeError(3)
    except CodeError as error:
        return x * error.code, error.args, str(error), error.kind, isinstance(error, Exception)


@pytest.mark.parametrize(
    "function",
    [
        signatures, wrong_arguments, closures, partials, iterators, itertools_functions, generators, builtin_functions,
        tensor_min_max, signature_of_a_function, dataclass_functions, copies, context_managers, grad_modes,
        decorated_mode, cached_function, exceptions,
        exceptions_of_the_program,
    ],
)  # fmt: skip
def test_as_in_eager(check, function):
    check(lambda x: (x + 1, function(x)), X)


def test_an_argument_that_no_parameter_takes(check):
    """From Python 3.13 on the message guesses which was meant: the call is left to Python."""
    check(unknown_argument, X, graphs=1 if sys.version_info < (3, 13) else None)


def test_questions_about_the_compiler(check):
    def asks(x):
        return x + 1 if torch.compiler.is_compiling() else x + 1 + 0 * x

    check(asks, X)
    assert len(check.targets) == 1


def test_print_breaks(check, capsys):
    def shows(x):
        y = x + 1
        print("hello")
        return y * 2

    check(shows, X, graphs=None)
    assert capsys.readouterr().out == "hello\n" * 4


def test_function_defined_elsewhere_is_guarded():
    from ptdebug.tracer.frames.dispatch import optimize
    from ptdebug.tracer.fx.backend_call import CompileOptions

    def outer(x, function):
        return function(x)

    fast = optimize(outer, CompileOptions(lambda captured, context: captured.module.forward))
    for function in (torch.sin, torch.cos, lambda v: v + 1, lambda v: v + 2, torch.sin):
        assert torch.equal(fast(X, function), function(X))
