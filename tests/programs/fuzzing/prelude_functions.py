"""The functions that random programs call: managers, decorators, functions that raise, generators, coroutines."""
from __future__ import annotations

FUNCTIONS = '''

class Manager:
    def __init__(self, name, swallow=()):
        self.name, self.swallow = name, swallow

    def __enter__(self):
        LOG.append(("enter", self.name))
        return self

    def __exit__(self, kind, value, traceback):
        LOG.append(("exit", self.name, kind.__name__ if kind else None))
        return bool(self.swallow) and kind is not None and issubclass(kind, self.swallow)


@contextlib.contextmanager
def managed(x, name="m"):
    LOG.append(("in", name))
    try:
        yield x + 1
    except KeyError:
        LOG.append(("key", name))
    finally:
        LOG.append(("out", name))


@contextlib.contextmanager
def printing(name):
    print("begin", name)
    yield len(name)
    print("end", name)


def logged(function):
    @functools.wraps(function)
    def wrapper(*args, **kwargs):
        LOG.append(function.__name__)
        return function(*args, **kwargs)
    return wrapper


def scaled_by(factor):
    def decorate(function):
        def inner(x, *rest):
            return function(x, *rest) * factor
        return inner
    return decorate


def plain(x, n=1, *rest, flag=False, **more):
    y = x * n
    for extra in rest:
        y = y + extra
    if flag:
        y = -y
    return y + len(more)


@logged
@scaled_by(2)
def decorated(x, n=3):
    return x - n


def noisy(x, name="noisy"):
    y = x + 1
    print(name, tuple(y.shape))
    return y * 2


def deep(x, level):
    y = x + level
    if level == 0:
        print("bottom")
        return y
    return deep(y * 2, level - 1) - 1


def quiet_deep(x, level):
    return x if level <= 0 else quiet_deep(x + level, level - 1) * 0.5


def failing(x, n):
    if n % 3 == 0:
        raise ValueError(f"bad {n}")
    if n % 3 == 1:
        raise Boom(n)
    return x + n


def checked(x, n):
    try:
        return failing(x, n)
    except ValueError as error:
        raise KeyError("wrapped", n) from error
    finally:
        LOG.append("checked")


def numbers(n):
    for i in range(n):
        got = yield i
        if got is not None:
            LOG.append(("got", got))
    LOG.append("numbers done")
    return n * 10


def catching(n):
    for i in range(n):
        try:
            got = yield i
        except KeyError as error:
            LOG.append(("thrown", str(error)))
        else:
            LOG.append(("sent", got))


def closing(x, n):
    LOG.append("opened")
    try:
        for i in range(n):
            with managed(x, "inside") as y:
                yield y * i
    finally:
        LOG.append("closed")


def tensors(x, n):
    for i in range(n):
        x = x + 1
        yield x * i


def talking(x, n):
    for i in range(n):
        print("talking", i)
        yield x + i


def delegating(n):
    total = yield from numbers(n)
    yield total


@functools.lru_cache(maxsize=None)
def cached(n):
    return n * n + 1


@functools.singledispatch
def described(value):
    return "something"


@described.register
def _(value: int):
    return f"int {value}"


@described.register(list)
def _(value):
    return f"list of {len(value)}"


def bump(by=1):
    global COUNT
    COUNT += by
    return COUNT


def remember(key, value, store={}):
    store[key] = store.get(key, 0) + value
    return store[key]


def make_counter(start):
    total = start

    def add(n):
        nonlocal total
        total += n
        return total

    def get():
        return total
    return add, get


async def waiting(x):
    return x + 1


async def chain_waiting(x, n):
    for _ in range(n):
        x = await waiting(x)
    return x


def drive(coroutine):
    try:
        coroutine.send(None)
    except StopIteration as stop:
        return stop.value


def classify(value):
    match value:
        case []:
            return "empty"
        case [1 | 2, *rest]:
            return f"starts small, {len(rest)}"
        case [int(first), second] if first > second:
            return "falling"
        case {"name": str(name), **rest}:
            return name + str(sorted(rest))
        case Frozen(n=n, name="frozen"):
            return f"frozen {n}"
        case Point(a, b):
            return f"point {a} {b}"
        case (0, _) | (_, 0):
            return "axis"
        case Color.RED:
            return "red"
        case str() | bytes():
            return "text"
        case None | True | False:
            return "constant"
        case int() | float() as number:
            return f"number {number}"
        case _:
            return type(value).__name__
'''
