"""Programs that throw into generators and coroutines, send to them and close them."""
# mypy: ignore-errors

from __future__ import annotations

import contextlib
import warnings

import pytest
import torch

from ..checking import Programs, call, check

program = Programs()
X = torch.ones(2)


def logging_generator(log):
    def generate(n):
        log.append("start")
        try:
            for i in range(n):
                try:
                    got = yield i
                    log.append(("got", got))
                except ValueError as e:
                    log.append(("error", str(e)))
                    got = yield -1
                    log.append(("got", got))
        except GeneratorExit:
            log.append("exit")
            raise
        finally:
            log.append("finally")

    return generate


@program
def thrown_twice_and_not_used(compile):
    log = []
    gen = logging_generator(log)

    def h(x):
        it = gen(3)
        next(it)
        it.throw(ValueError("a"))
        it.throw(RuntimeError("z"))
        return x * 2

    return call(compile(h), X), log


@program
def sent_and_not_used(compile):
    log = []
    gen = logging_generator(log)

    def h(x):
        it = gen(3)
        next(it)
        it.send(4)
        it.send(5)
        next(it, None)
        return x * 2

    return compile(h)(X), log


@program
def closed_at_every_place(compile):
    log = []
    gen = logging_generator(log)

    def h(x):
        it = gen(3)
        it.close()
        it = gen(3)
        next(it)
        it.close()
        it.close()
        try:
            it.throw(KeyError("k"))
        except KeyError as e:
            log.append(repr(e))
        try:
            it.send(1)
        except StopIteration:
            log.append("stop")
        return x * 2

    return compile(h)(X), log


@program
def thrown_before_the_start(compile):
    log = []
    gen = logging_generator(log)

    def h(x):
        it = gen(3)
        try:
            it.throw(RuntimeError("un"))
        except RuntimeError as e:
            log.append(str(e))
        try:
            it.send(3)
        except StopIteration:
            log.append("stop")
        it2 = gen(1)
        try:
            it2.send(3)
        except TypeError as e:
            log.append(str(e))
        return x * 2

    return compile(h)(X), log


@program
def thrown_in_expressions(compile):
    log = []
    gen = logging_generator(log)

    def h(x):
        it = gen(3)
        next(it)
        a = it.throw(ValueError, ValueError("b"))
        b = [it.send(1), it.throw(ValueError("c"))]
        if it.throw(ValueError) == -1:
            log.append("yes")
        print(it.throw(ValueError()) if False else next(it))
        for v in it:
            log.append(v)
        return x * a, b

    return call(compile(h), X), log


@program
def thrown_into_one_that_was_there(compile):
    "a generator that exists before"
    log = []
    gen = logging_generator(log)
    it = gen(5)
    next(it)

    def h(x):
        it.throw(ValueError("w"))
        it.send(1)
        try:
            it.throw(RuntimeError)
        except RuntimeError:
            log.append("c")
        return x * 2

    return compile(h)(X), log


@program
def returned_when_thrown(compile):
    log = []

    def gen():
        try:
            yield 1
        except RuntimeError:
            return 5
        finally:
            log.append("f")

    def h(x):
        it = gen()
        next(it)
        try:
            it.throw(RuntimeError)
        except StopIteration as s:
            v = s.value
        it = gen()
        next(it)
        try:
            it.throw(RuntimeError("q"))
        except StopIteration:
            pass
        return x * v

    return compile(h)(X), log


@program
def thrown_through_a_delegation(compile):
    log = []

    def inner():
        try:
            r = yield 1
            log.append(r)
            yield 2
        except ValueError as e:
            log.append(("in", str(e)))
            yield 9
        finally:
            log.append("inf")

    def gen():
        try:
            yield from inner()
        finally:
            log.append("outf")

    def h(x):
        it = gen()
        next(it)
        it.throw(ValueError("q"))
        it.close()
        it = gen()
        next(it)
        it.send("s")
        it.close()
        it = gen()
        next(it)
        try:
            it.throw(KeyError)
        except KeyError:
            pass
        return x * 2

    return compile(h)(X), log


@program
def thrown_by_a_context(compile):
    log = []

    @contextlib.contextmanager
    def cm():
        log.append("in")
        try:
            yield 3
        except RuntimeError:
            log.append("rt")
        finally:
            log.append("out")

    def h(x):
        with cm() as k:
            y = x * k
        with cm():
            raise RuntimeError
        with contextlib.suppress(KeyError):
            with cm():
                raise KeyError(1)
        return y

    return compile(h)(X), log


@program
def closed_and_not_ended(compile):
    log = []

    def bad():
        try:
            yield 1
        except GeneratorExit:
            yield 2

    def retn():
        try:
            yield 1
        finally:
            log.append("x")

    def h(x):
        it = bad()
        next(it)
        try:
            it.close()
        except RuntimeError as e:
            log.append(str(e))
        it = retn()
        next(it)
        r = it.close()
        return x * 2, r

    return compile(h)(X), log


@program
def tensors_sent_and_thrown(compile):
    log = []

    def gen(x):
        try:
            while True:
                x = x * (yield x)
        except ValueError:
            yield x + 100
        finally:
            log.append("f")

    def h(x):
        it = gen(x)
        next(it)
        it.send(2)
        y = it.send(3)
        z = it.throw(ValueError)
        it.close()
        return y, z

    return compile(h)(X), log


@program
def causes_of_what_is_thrown(compile):
    log = []

    def gen():
        try:
            yield 1
        except ValueError as e:
            raise KeyError("k") from e

    def h(x):
        it = gen()
        next(it)
        try:
            it.throw(ValueError("v"))
        except KeyError as e:
            log.append((repr(e.__cause__), repr(e.__context__), e.__suppress_context__))
        it = gen()
        next(it)
        try:
            try:
                raise IndexError("i")
            except IndexError:
                it.throw(TypeError("t"))
        except TypeError as e:
            log.append((repr(e), repr(e.__context__)))
        return x * 2

    return compile(h)(X), log


@program
def thrown_as_class_and_text(compile):
    log = []
    gen = logging_generator(log)

    def h(x):
        it = gen(4)
        next(it)
        it.throw(ValueError, "text", None)
        it.send(0)
        it.throw(ValueError, ("a", "b"))
        try:
            it.throw(3)
        except TypeError as e:
            log.append(str(e))
        return x

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return compile(h)(X), log


@program
def thrown_around_breaks(compile):
    log = []
    gen = logging_generator(log)

    def h(x):
        it = gen(4)
        next(it)
        torch._dynamo.graph_break()
        it.throw(ValueError("b"))
        print("b")
        it.send(0)
        torch._dynamo.graph_break()
        try:
            it.throw(RuntimeError)
        except RuntimeError:
            pass
        return x * 2

    return compile(h)(X), log


@program
def thrown_in_its_own_loop(compile):
    log = []
    gen = logging_generator(log)

    def h(x):
        it = gen(6)
        for i in it:
            if i == 2:
                it.throw(ValueError("two"))
            x = x + i
        return x

    return compile(h)(X), log


@program
def attributes_of_a_generator(compile):
    log = []
    gen = logging_generator(log)

    def h(x):
        it = gen(2)
        a = it.gi_running, it.gi_frame is None, it.gi_yieldfrom
        next(it)
        it.close()
        return x, a, it.gi_frame is None

    return compile(h)(X), log


@program
def thrown_into_a_coroutine(compile):
    log = []

    class Aw:
        def __await__(self):
            try:
                v = yield 1
            except ValueError:
                v = 5
            return v

    async def c():
        try:
            return await Aw()
        finally:
            log.append("f")

    def h(x):
        co = c()
        co.send(None)
        try:
            co.throw(ValueError)
        except StopIteration as s:
            v = s.value
        co = c()
        co.send(None)
        co.close()
        return x * v

    return compile(h)(X), log


@pytest.mark.parametrize("name", program)
def test_a_program(name):
    check(program[name])
