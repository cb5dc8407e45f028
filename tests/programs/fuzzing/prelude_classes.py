"""What every random program begins with: its imports, its state and classes of many kinds."""
from __future__ import annotations

CLASSES = '''\
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
'''
