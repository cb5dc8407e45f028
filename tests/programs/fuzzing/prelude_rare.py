"""What `grammar_rare.py` and `grammar_rare_torch.py` name: classes, functions and operators of the features that real
programs use now and then, and a second module whose globals are used from the first."""
from __future__ import annotations

RARE_CLASSES = '''
import asyncio, contextvars, ctypes, io, logging, signal, sys, threading

CONTEXT = contextvars.ContextVar("context", default=1)
LOCK = threading.RLock()


class Kept(logging.Handler):
    def emit(self, record):
        LOG.append((record.levelname, record.getMessage()))


LOGGER = logging.Logger("program")
LOGGER.addHandler(Kept())


def rung(x, handler=None):
    """x, after a signal was handled: by what notes it, by `handler`, or by what raises where it is no function."""
    def noted(number, frame):
        LOG.append(("signal", int(number), frame.f_code.co_name))

    def refused(number, frame):
        raise ValueError(f"signal {int(number)}")

    if threading.current_thread() is not threading.main_thread():
        return x
    chosen = noted if handler is None else (lambda number, frame: handler(x)) if callable(handler) else refused
    before = signal.signal(signal.SIGUSR1, chosen)
    try:
        signal.raise_signal(signal.SIGUSR1)
        LOG.append(signal.getsignal(signal.SIGUSR1) is chosen)
    finally:
        signal.signal(signal.SIGUSR1, before)
    return x


class Movie(typing.TypedDict, total=False):
    size: int
    name: str
    year: int


@typing.runtime_checkable
class Steppable(typing.Protocol):
    def step(self, x): ...


class Meta(type):
    @classmethod
    def __prepare__(mcls, name, bases, **more):
        return {"prepared": len(bases)}

    def __new__(mcls, name, bases, space, tag="none"):
        cls = super().__new__(mcls, name, bases, space)
        cls.tag = tag
        return cls

    def __init__(cls, name, bases, space, tag="none"):
        super().__init__(name, bases, space)

    def __instancecheck__(cls, other):
        return super().__instancecheck__(other) or getattr(other, "count", 0) > 2

    def __len__(cls):
        return len(cls.tag)

    def __contains__(cls, n):
        return n == cls.prepared

    def __getitem__(cls, n):
        return cls.tag * (n % 3)


class Family(metaclass=Meta, tag="family"):
    members = []

    def __init_subclass__(cls, **more):
        super().__init_subclass__()
        Family.members.append(cls.__name__)


class Left(Base):
    def step(self, x, *args, by=1, **more):
        self.tags.append("left")
        return super().step(x, *args, by=by + 1, **more)


class Right(Base):
    def step(self, x, *args, by=1, **more):
        self.tags.append("right")
        return super().step(x * 2, *args, by=by, **more)


class Both(Left, Right):
    triple = functools.partialmethod(Base.step, by=3)

    @functools.singledispatchmethod
    def told(self, value):
        return "other"

    @told.register
    def _(self, value: int):
        return f"number {value} of {self.count}"

    @functools.lru_cache(maxsize=4)
    def squared(self, n):
        self.tags.append(n)
        return n * n


class Once:
    made = None

    def __new__(cls):
        if cls.made is None:
            cls.made = super().__new__(cls)
            cls.made.count = 0
        return cls.made

    def shifted(self, x):
        self.count += 1
        return x + self.count


class Proxy:
    def __init__(self, inner):
        object.__setattr__(self, "inner", inner)

    def __getattr__(self, name):
        return getattr(self.inner, name)

    def __setattr__(self, name, value):
        LOG.append("set " + name)
        setattr(self.inner, name, value)

    def __call__(self, *args, **kwargs):
        return self.inner(*args, **kwargs)


class Vector:
    __match_args__ = ("items",)

    def __init__(self, items):
        self.items = list(items)

    def __getitem__(self, index):
        return Vector(self.items[index]) if isinstance(index, slice) else self.items[index]

    def __setitem__(self, index, value):
        self.items[index] = value

    def __delitem__(self, index):
        del self.items[index]

    def __len__(self):
        return len(self.items)

    def __reversed__(self):
        return iter(self.items[::-1])

    def __matmul__(self, other):
        return sum(a * b for a, b in zip(self.items, other.items)) % 1000

    def __mul__(self, n):
        return Vector([a * n % 1000 for a in self.items])

    __rmul__ = __mul__

    def __imul__(self, n):
        self.items[:] = [a * n % 1000 for a in self.items]
        return self

    def __divmod__(self, n):
        return Vector([a // n for a in self.items]), Vector([a % n for a in self.items])

    def __invert__(self):
        return Vector([~a for a in self.items])

    def __le__(self, other):
        return self.items <= other.items

    def __eq__(self, other):
        return isinstance(other, Vector) and self.items == other.items

    __hash__ = None

    def __enter__(self):
        self.items.append(1)
        return self

    def __exit__(self, kind, value, traceback):
        self.items.append(-1)

class Doubling:
    def __set_name__(self, owner, name):
        self.name = name

    def __get__(self, item, owner=None):
        return self if item is None else item.__dict__.get(self.name, 0)

    def __set__(self, item, value):
        item.__dict__[self.name] = value * 2

    def __delete__(self, item):
        item.__dict__[self.name] = -1


class Described:
    size = Doubling()

    def __init__(self, n):
        self.size = n

    @property
    def grown(self):
        return self.__dict__.get("grown", 3)

    def grow(self, n):
        self.__dict__["grown"] = self.grown + n
        return self


DESCRIBED = Described(1)


class Extent(typing.NamedTuple):
    n: int
    m: int = 2

    @staticmethod
    def unit(k=1):
        return Extent(k, k)

    @classmethod
    def square(cls, n):
        return cls(n, n)

    def __add__(self, other):
        return Extent(self.n + other.n, self.m + other.m)


def handling(x):
    try:
        try:
            yield x
        except ValueError:
            yield x * 2
        yield x * 3
    finally:
        LOG.append("ended")


def thrown(generator, error=ValueError):
    next(generator)
    generator.throw(error)
    return generator


class Timed(contextlib.ContextDecorator):
    def __init__(self, name):
        self.name = name

    def __enter__(self):
        LOG.append(("start", self.name))
        return self

    def __exit__(self, *error):
        LOG.append(("stop", self.name, error[0] is not None))


class Waits:
    def __init__(self, n):
        self.n = n

    def __aiter__(self):
        return self

    async def __anext__(self):
        if self.n <= 0:
            raise StopAsyncIteration
        self.n -= 1
        return self.n

    async def __aenter__(self):
        LOG.append("async in")
        return self

    async def __aexit__(self, *error):
        LOG.append("async out")
'''

RARE_FUNCTIONS = '''

elsewhere = types.ModuleType("elsewhere")
elsewhere.__file__ = __file__
sys.modules["elsewhere"] = elsewhere
exec("""
import torch
COUNT = 0
OFFSET = 2
STATE = {"n": 1}
PARTS = [1, 2]
def moved(x, by=None):
    return x + (OFFSET if by is None else by)
def bump(n):
    global COUNT
    COUNT += n % 5
    STATE["n"] = COUNT
    return COUNT
""", vars(elsewhere))


@functools.lru_cache(maxsize=2)
def remembered(n):
    LOG.append(("asked", n))
    return n * n % 50


@functools.cache
def kept_tensor(n):
    return torch.full((2, 3), float(n))


def positional(a, /, b=1, *, c=2, **more):
    return a * b + c + len(more)


def even_steps(x, n):
    return x if n <= 0 else odd_steps(x + 1, n - 1)


def odd_steps(x, n):
    return x * 2 if n <= 0 else even_steps(x - 1, n - 1)


def walk(x, depth):
    if depth:
        yield x
        yield from walk(x + 1, depth - 1)
        yield from walk(x * 2, depth - 1)


def in_thread(function, *args):
    found = []

    def run():
        try:
            found.append(function(*args))
        except Exception as error:
            found.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        thread.join()
    except BaseException:  # the time is over: the thread must not go on
        ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident), ctypes.py_object(SystemExit))
        raise
    if isinstance(found[0], Exception):
        raise found[0]
    return found[0]


def warned(text, category=UserWarning):
    warnings.warn("warned: " + text, category, stacklevel=2)


async def async_total(x, n):
    async with Waits(n % 4) as waits:
        async for i in waits:
            x = x + i
    return x + sum([i async for i in Waits(2)])


def entered(manager):
    with manager as inside:
        return inside
'''
