"""What every random program begins with: classes and functions of many kinds, and the state that programs change."""
from __future__ import annotations

import random

MARK = "# ---- the program"
"""The line between what all programs share and the program itself."""

PRELUDE = '''\
import abc, bisect, collections, contextlib, copy, dataclasses, enum, functools, heapq, itertools, json, math, operator
import random, re, string, types, typing, zlib
import torch

LOG = []
TABLE = {}
COUNT = 0
CACHE = collections.OrderedDict()
RNG = random.Random(4)


class Boom(Exception):
    def __init__(self, code, text="boom"):
        super().__init__(text, code)
        self.code = code


class Boomer(Boom):
    pass


class Color(enum.Enum):
    RED = 1
    GREEN = 2
    BLUE = 4

    @property
    def factor(self):
        return self.value + 1

    @classmethod
    def pick(cls, n):
        return list(cls)[n % 3]


class Mask(enum.Flag):
    A = 1
    B = 2
    C = 4


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 3


class Pair(typing.NamedTuple):
    t: torch.Tensor
    n: int = 3

    def scaled(self):
        return self.t * self.n


Point = collections.namedtuple("Point", "a b", defaults=[7])


class Options(typing.TypedDict, total=False):
    size: int
    name: str


class Registered(type):
    made = []

    def __new__(mcls, name, bases, space, **kwargs):
        cls = super().__new__(mcls, name, bases, space)
        cls.label = name.lower()
        return cls

    def __call__(cls, *args, **kwargs):
        made = super().__call__(*args, **kwargs)
        Registered.made.append(cls.__name__)
        return made

    @property
    def title(cls):
        return cls.__name__.title()


class Positive:
    def __set_name__(self, owner, name):
        self.name = "_" + name

    def __get__(self, owner, cls=None):
        if owner is None:
            return self
        return getattr(owner, self.name, 1)

    def __set__(self, owner, value):
        if value < 0:
            raise ValueError(f"{self.name[1:]} is negative")
        setattr(owner, self.name, value)


class Base:
    scale = 2
    made = 0

    def __init__(self, t, n=1):
        self.t = t
        self.count = n
        self.items = [t, t + 1]
        self.tags = []
        Base.made += 1

    def __call__(self, x):
        self.count += 1
        return x + self.t * self.scale

    def step(self, x, *args, by=1, **more):
        self.tags.append(len(args) + by)
        return self(x) - by

    @property
    def size(self):
        return self.count * 2

    @size.setter
    def size(self, value):
        if value > 40:
            raise Boom(value, "too big")
        self.count = value // 2

    @size.deleter
    def size(self):
        self.count = 0

    def __len__(self):
        return len(self.items)

    def __iter__(self):
        for item in self.items:
            yield item

    def __getitem__(self, index):
        return self.items[index]

    def __setitem__(self, index, value):
        self.items[index] = value

    def __contains__(self, n):
        return n == self.count

    def __add__(self, other):
        if isinstance(other, Base):
            return type(self)(self.t + other.t, self.count + other.count)
        if isinstance(other, int):
            return type(self)(self.t, self.count + other)
        return NotImplemented

    def __radd__(self, other):
        return type(self)(self.t - 1, self.count)

    def __iadd__(self, other):
        self.count += 1
        self.t = self.t + 1
        return self

    def __eq__(self, other):
        return isinstance(other, Base) and self.count == other.count

    def __hash__(self):
        return hash(self.count)

    def __bool__(self):
        return self.count > 0

    def __repr__(self):
        return f"{type(self).__name__}({self.count})"

    def __format__(self, spec):
        return f"<{self.count:{spec}}>" if spec else repr(self)

    @classmethod
    def build(cls, t, n):
        return cls(t * 2, n)

    @staticmethod
    def twice(x):
        return x * 2

    @functools.cached_property
    def weight(self):
        self.tags.append(-1)
        return self.t * 3


class Child(Base):
    scale = 3
    limit = Positive()

    def __init__(self, t, n=1, *, bias=1):
        super().__init__(t, n)
        self.bias = bias
        self.limit = n * n

    def __call__(self, x):
        y = super().__call__(x)
        return y + self.bias

    def __getattr__(self, name):
        if name.startswith("auto_"):
            return len(name)
        raise AttributeError(name)

    @property
    def size(self):
        return super().size + 1

    @classmethod
    def build(cls, t, n):
        made = super().build(t, n)
        made.bias = 5
        return made


class Guarded(Base):
    def __setattr__(self, name, value):
        if name == "count":
            value = min(value, 50)
        object.__setattr__(self, name, value)

    def __getattribute__(self, name):
        if name == "secret":
            return 42
        return super().__getattribute__(name)

    def __delattr__(self, name):
        LOG.append("del " + name)
        super().__delattr__(name)


class Slotted:
    __slots__ = ("t", "count", "tags", "items")
    scale = 1

    def __init__(self, t, n=1):
        self.t, self.count, self.tags, self.items = t, n, [], (t, t * 2)

    def __call__(self, x):
        self.tags.append("called")
        return x * self.scale + self.t

    def step(self, x, *args, by=1, **more):
        self.count += by
        return x - self.t

    size = property(lambda self: self.count + 1, lambda self, value: setattr(self, "count", value))

    def __len__(self):
        return 2

    def __iter__(self):
        return iter(self.items)

    def __getitem__(self, index):
        return self.items[index]

    def __contains__(self, n):
        return n in (1, 2)

    def __neg__(self):
        return Slotted(-self.t, self.count)

    def __lt__(self, other):
        return self.count < other.count


@functools.total_ordering
class Ranked(metaclass=Registered):
    def __init__(self, n):
        self.n = n

    def __eq__(self, other):
        return self.n == other.n

    def __lt__(self, other):
        return self.n < other.n

    def __hash__(self):
        return self.n

    def __index__(self):
        return self.n

    def __class_getitem__(cls, item):
        return (cls, item)


@dataclasses.dataclass
class Record:
    t: torch.Tensor
    count: int = 2
    tags: list = dataclasses.field(default_factory=list)

    def __post_init__(self):
        self.items = [self.t]

    def __call__(self, x):
        return x * self.count

    def step(self, x, *args, by=1, **more):
        self.tags.append(by)
        return x + self.t


@dataclasses.dataclass(frozen=True, order=True)
class Frozen:
    n: int
    name: str = "frozen"


@dataclasses.dataclass(slots=True, kw_only=True)
class Config:
    width: int = 3
    rate: float = 0.5
    names: tuple = ("a", "b")


class Shape(abc.ABC):
    @abc.abstractmethod
    def area(self, x): ...

    def both(self, x):
        return self.area(x) + self.area(x + 1)


class Square(Shape):
    def area(self, x):
        return x * x


class Counter0(dict):
    def __missing__(self, key):
        self[key] = len(self)
        return self[key]


class Stack(list):
    def push(self, item):
        self.append(item)
        return self


class Steps:
    def __init__(self, n):
        self.n = n

    def __iter__(self):
        return self

    def __next__(self):
        if self.n <= 0:
            raise StopIteration
        self.n -= 1
        return self.n


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

_CALLS = '''
def make_calls():
    def t(a, b):
        return (torch.arange(6.0).reshape(2, 3) - a) * b

    made = []
    shared = {made_object}
    for i in range({count}):
        x = t({a} + {grow} * i, 0.5)
        xs = [t(j, 0.25 * (i + 1)) for j in range({length} + {longer} * (i == 2))]
        {alias}
        ns = [{ints}][: {ints_kept} + (i > 1)] + [i]
        dn = {{"a": {n} + i, "b": 2, "cc": -i}}
        dt = {{"a": x{view}, "b": t(1, 2.0)}}
        o = shared if {share} else {made_object_again}
        made.append((x, y, {n} + {n_step} * i, {k} + (i == 2), i % 2 == {parity}, {words}[i % 2], xs, ns, dn, dt, o,
                     {v} + i * {v_step}))
    return made
'''

_OBJECTS = (
    "Base(t(1, 1.0), {n})", "Child(t(2, 1.0), {n})", "Child(t(2, 1.0), {n}, bias=4)", "Guarded(t(0, 1.0), {n})",
    "Slotted(t(1, 2.0), {n})", "Record(t(3, 1.0), {n})",
)  # fmt: skip


def make_calls(rng: random.Random) -> str:
    """`make_calls()`: the arguments of two or three calls, which differ in values, numbers and lengths."""
    n = rng.randint(0, 5)
    made = rng.choice(_OBJECTS).format(n=rng.randint(0, 4))
    return _CALLS.format(
        count=rng.choice([2, 3, 3]), a=rng.randint(0, 5), grow=rng.randint(0, 2), length=rng.randint(1, 3),
        longer=rng.randint(0, 1), alias=rng.choice(["y = t(i, 1.0)", "y = t(i, 1.0)", "y = x", "y = xs[0]"]),
        ints=", ".join(str(rng.randint(-3, 9)) for _ in range(5)), ints_kept=rng.randint(0, 4),
        n=n, n_step=rng.choice([0, 0, 1, 2]), k=rng.randint(0, 4), parity=rng.randint(0, 1),
        view=rng.choice(["", ".view(2, 3)", " + 1"]), share=rng.choice(["True", "False", "i < 2"]), made_object=made,
        made_object_again=made, v=rng.choice(["0.5", "2.0", "-1.25"]), v_step=rng.choice(["0", "0", "0.5"]),
        words=repr(rng.choice([("ab", "ab"), ("Hello", "wörld"), ("", "x y z"), ("key", "name")])),
    ).rstrip()  # fmt: skip
