"""Programs about the chains of exceptions, closed ones too, their attributes and notes."""
# ruff: noqa: B904, F821, UP031 - programs as people write them
# mypy: ignore-errors

from __future__ import annotations

import contextlib

import pytest
import torch

from ..checking import Programs, call, check

program = Programs()
X = torch.ones(2)


@program
def a_context_that_is_its_own(compile):
    def h(x):
        try:
            try:
                raise ValueError(1)
            except ValueError as e:
                e.__context__ = e
                raise TypeError(2)
        except TypeError as t:
            return x * 2, repr(t.__context__), t.__context__.__context__ is t.__context__

    return call(compile(h), X)


@program
def a_context_that_is_its_own_leaves(compile):
    def h(x):
        try:
            raise ValueError(1)
        except ValueError as e:
            e.__context__ = e
            raise TypeError(2)

    return call(compile(h), X)


@program
def two_contexts_of_each_other(compile):
    def h(x):
        a = ValueError("a")
        b = KeyError("b")
        a.__context__ = b
        b.__context__ = a
        try:
            try:
                raise a
            except ValueError:
                raise b
        except KeyError as e:
            return x * 2, repr(e.__context__), repr(e.__context__.__context__)

    return call(compile(h), X)


@program
def a_chain_that_ends_in_a_circle(compile):
    def h(x):
        a = ValueError("a")
        b = KeyError("b")
        c = IndexError("c")
        a.__context__ = b
        b.__context__ = c
        c.__context__ = b
        try:
            try:
                raise a
            except ValueError:
                raise TypeError("t")
        except TypeError as e:
            return x * 2, repr(e.__context__), repr(e.__context__.__context__), repr(c.__context__)

    return call(compile(h), X)


@program
def a_cause_that_is_its_own(compile):
    def h(x):
        try:
            try:
                raise ValueError(1)
            except ValueError as e:
                e.__cause__ = e
                raise TypeError(2) from e
        except TypeError as t:
            return x * 2, repr(t.__cause__), t.__cause__.__cause__ is t.__cause__

    return call(compile(h), X)


@program
def two_causes_of_each_other(compile):
    def h(x):
        a = ValueError("a")
        b = KeyError("b")
        a.__cause__ = b
        b.__cause__ = a
        raise a

    def f(x):
        try:
            h(x)
        except ValueError as e:
            return x * 2, repr(e.__cause__.__cause__)

    r = call(compile(f), X)
    return r, call(compile(h), X)


@program
def raised_again_inside(compile):
    def h(x):
        try:
            raise ValueError(1)
        except ValueError as e:
            try:
                raise KeyError(2)
            except KeyError as k:
                try:
                    raise e
                except ValueError as v:
                    return x * 2, repr(v.__context__), repr(k.__context__)

    return call(compile(h), X)


@program
def raised_again_at_once(compile):
    def h(x):
        try:
            raise ValueError(1)
        except ValueError as e:
            try:
                raise e
            except ValueError as v:
                return x * 2, repr(v.__context__), v is e

    return call(compile(h), X)


@program
def a_closed_chain_from_outside(compile):
    e = ValueError("out")
    e.__context__ = e
    k = KeyError("k")
    k.__context__ = e

    def h(x):
        try:
            try:
                raise k
            except KeyError:
                raise TypeError(3)
        except TypeError as t:
            return x * 2, repr(t.__context__)

    def g(x):
        try:
            raise e
        except ValueError:
            raise TypeError(3)

    return call(compile(h), X), call(compile(g), X)


@program
def a_closed_chain_over_a_break(compile):
    def h(x):
        try:
            raise ValueError(1)
        except ValueError as e:
            e.__context__ = e
            torch._dynamo.graph_break()
            raise TypeError(2)

    return call(compile(h), X)


@program
def a_closed_chain_in_a_generator(compile):
    def gen():
        try:
            yield 1
        except ValueError as e:
            e.__context__ = e
            raise KeyError(2)

    def h(x):
        it = gen()
        next(it)
        try:
            it.throw(ValueError(1))
        except KeyError as k:
            return x * 2, repr(k.__context__)

    return call(compile(h), X)


@program
def a_closed_chain_in_exit(compile):
    class CM:
        def __enter__(self):
            return self

        def __exit__(self, t, v, tb):
            v.__context__ = v
            raise KeyError("exit")

    def h(x):
        try:
            with CM():
                raise ValueError(1)
        except KeyError as k:
            return x * 2, repr(k.__context__), k.__context__.__context__ is k.__context__

    return call(compile(h), X)


@program
def raised_by_a_callback(compile):
    def h(x):
        def bad():
            raise KeyError("cb")

        try:
            with contextlib.ExitStack() as s:
                s.callback(bad)
                raise ValueError(1)
        except KeyError as k:
            return x * 2, repr(k.__context__)

    return call(compile(h), X)


@program
def a_cause_hides_the_context(compile):
    def h(x):
        err = ValueError(1)
        a = err.__suppress_context__
        err.__cause__ = None
        b = err.__suppress_context__
        err.__suppress_context__ = False
        c = err.__cause__, err.__suppress_context__
        err.__cause__ = KeyError(2)
        return x * 2, a, b, c, repr(err.__cause__), err.__suppress_context__, err

    r = call(compile(h), X)
    e = r[-1]
    return r, e.__suppress_context__, repr(e.__cause__)


@program
def a_cause_of_one_from_outside(compile):
    err = ValueError(1)

    def h(x):
        err.__cause__ = None
        return x * 2, err.__suppress_context__

    return call(compile(h), X), err.__suppress_context__, err.__cause__


@program
def what_links_cannot_be(compile):
    def h(x):
        err = ValueError(1)
        try:
            del err.__cause__
        except TypeError as e:
            m = str(e)
        try:
            err.__cause__ = 3
        except TypeError as e:
            n = str(e)
        try:
            err.__context__ = "x"
        except TypeError as e:
            o = str(e)
        try:
            err.__traceback__ = "x"
        except TypeError as e:
            p = str(e)
        return x * 2, m, n, o, p

    return call(compile(h), X)


@program
def raised_from_none(compile):
    def h(x):
        try:
            try:
                raise ValueError(1)
            except ValueError:
                raise KeyError(2) from None
        except KeyError as k:
            return x * 2, k.__suppress_context__, k.__cause__, repr(k.__context__)

    return call(compile(h), X)


@program
def raised_from_a_class(compile):
    def h(x):
        try:
            raise ValueError(1) from KeyError
        except ValueError as k:
            r = repr(k.__cause__), k.__suppress_context__
        try:
            raise ValueError(1) from 3
        except TypeError as k:
            return x * 2, r, str(k)

    return call(compile(h), X)


@program
def arguments_and_notes(compile):
    def h(x):
        e = ValueError(1, 2)
        e.args = (3,)
        e.args += (4,)
        e.foo = 7
        e.add_note("n1")
        e.add_note("n2")
        return x * 2, e.args, str(e), repr(e), e.foo, e.__notes__, e

    r = call(compile(h), X)
    return r, vars(r[-1])


@program
def tracebacks_set_and_taken(compile):
    def h(x):
        e = ValueError(1).with_traceback(None)
        try:
            raise e
        except ValueError as v:
            t = v.__traceback__ is not None
        e.__traceback__ = None
        return x * 2, t, e.__traceback__

    return call(compile(h), X)


@program
def attributes_of_builtin_exceptions(compile):
    nothing = None

    def h(x):
        out = []
        for make in (
            lambda: {}["a"],
            lambda: [][1],
            lambda: int("q"),
            lambda: (1).foo,
            lambda: 1 / 0,
            lambda: next(iter([])),
            lambda: undefined_name,
            lambda: "a" + 1,
            lambda: nothing(),
        ):
            try:
                make()
            except Exception as e:
                out.append((type(e).__name__, str(e), e.args))
        try:
            raise OSError(2, "no", "file")
        except OSError as e:
            out.append((type(e).__name__, e.errno, e.strerror, e.filename))
        try:
            raise StopIteration(4)
        except StopIteration as e:
            out.append(e.value)
        try:
            raise SystemExit(3)
        except SystemExit as e:
            out.append(e.code)
        try:
            raise KeyError("k")
        except LookupError as e:
            out.append(str(e))
        try:
            raise AttributeError("a", name="n", obj=3)
        except AttributeError as e:
            out.append((e.name, e.obj))
        try:
            raise ImportError("a", name="n", path="p")
        except ImportError as e:
            out.append((e.name, e.path, e.msg))
        return x * 2, out

    return call(compile(h), X)


@program
def exceptions_with_methods(compile):
    class E(Exception):
        def __init__(self, code, **kw):
            super().__init__(f"code {code}")
            self.code = code
            self.kw = kw

        def __str__(self):
            return f"<{self.code}>"

        @property
        def double(self):
            return self.code * 2

        @classmethod
        def make(cls, c):
            return cls(c, z=1)

        @staticmethod
        def helper():
            return 5

        def __eq__(self, o):
            return isinstance(o, E) and self.code == o.code

        def __hash__(self):
            return hash(self.code)

        def __bool__(self):
            return False

    class F(E):
        def __init__(self):
            super().__init__(9)

    def h(x):
        try:
            raise E.make(4)
        except E as e:
            r = e.code, e.kw, str(e), e.args, e.double, e.helper(), repr(e), e == E(4), bool(e)
        try:
            raise F
        except E as e:
            r2 = e.code, type(e).__name__, f"{e}", "%s" % e
        return x * r[0], r, r2

    return call(compile(h), X)


@pytest.mark.parametrize("name", program)
def test_a_program(name):
    check(program[name])
