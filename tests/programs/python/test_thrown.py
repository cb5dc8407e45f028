"""Programs that throw into generators, send to them and close them, and let go of them where they then stand."""
# mypy: ignore-errors

from __future__ import annotations

import contextlib
import warnings

import pytest
import torch

from ..checking import Programs, call, check

program = Programs()
X = torch.ones(2)


def handler_inside_finally(x):
    try:
        try:
            yield x
        except RuntimeError:
            yield x * 2
        yield x * 3
    finally:
        print("finally")


def handler_beside_finally(x):
    try:
        yield x
    except RuntimeError:
        yield x * 2
    finally:
        print("finally")


def finally_inside_handler(x):
    try:
        yield x
    except RuntimeError:
        try:
            yield x * 2
        finally:
            print("finally")


def after_a_block(x):
    with contextlib.suppress(RuntimeError):
        yield x
    try:
        yield x * 2
    finally:
        print("finally")


def delegates(x):
    try:
        yield from handler_beside_finally(x)
    finally:
        print("outer")


def loops(x):
    for i in range(3):
        try:
            yield x * i
        except RuntimeError:
            continue
        finally:
            print("finally", i)


GENERATORS = [
    handler_inside_finally, handler_beside_finally, finally_inside_handler, after_a_block, delegates, loops,
]  # fmt: skip


def _thrown(generator, x):
    it = generator(x)
    next(it)
    it.throw(RuntimeError)
    return it


def left(generator, x):
    it = generator(x)
    next(it)
    it.throw(RuntimeError)
    return x * 2


def rebound(generator, x):
    it = generator(x)
    next(it)
    it.throw(RuntimeError)
    print("thrown")
    it = None
    print("end")
    return x * 2, it


def deleted(generator, x):
    it = generator(x)
    next(it)
    y = it.throw(RuntimeError)
    del it
    print("end")
    return y * 2


def left_after_a_break(generator, x):
    it = generator(x)
    next(it)
    it.throw(RuntimeError)
    torch._dynamo.graph_break()
    print("end")
    return x * 2


def held_by_its_method(generator, x):
    it = generator(x)
    next(it)
    throw = it.throw
    throw(RuntimeError)
    del it
    print("end")
    return x + 1


def held_by_a_list(generator, x):
    its = [generator(x)]
    next(its[0])
    its[0].throw(RuntimeError)
    its.clear()
    print("end")
    return x * 2


def left_by_a_loop(generator, x):
    it = generator(x)
    for _ in it:
        it.throw(RuntimeError)
        break
    print("end")
    return x * 2


def left_by_a_callee(generator, x):
    def inner():
        it = generator(x)
        next(it)
        it.throw(RuntimeError)

    inner()
    print("end")
    return x * 2


def left_by_a_handler(generator, x):
    it = generator(x)
    next(it)
    try:
        it.throw(RuntimeError)
        raise KeyError(1)
    except KeyError:
        print("handled")
    return x * 2


def closed(generator, x):
    it = generator(x)
    next(it)
    it.throw(RuntimeError)
    it.close()
    print("end")
    return x * 2


def returned(generator, x):
    return _thrown(generator, x)


def thrown_twice(generator, x):
    it = _thrown(generator, x)
    it.throw(RuntimeError)
    return x * 2


def thrown_through(generator, x):
    it = generator(x)
    next(it)
    it.throw(ValueError("not handled"))
    return x


USES = [
    left, rebound, deleted, left_after_a_break, held_by_its_method, held_by_a_list, left_by_a_loop, left_by_a_callee,
    left_by_a_handler, closed, returned, thrown_twice, thrown_through,
]  # fmt: skip


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("generator", GENERATORS)
def test_what_is_thrown_into_a_generator(generator, use):
    check(lambda compile: call(compile(lambda x: use(generator, x)), X))
    check(lambda compile: call(compile(use), generator, X))


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
def let_go_in_the_middle(compile):
    log = []

    def gen():
        try:
            yield 1
        finally:
            log.append("f")

    def h(x):
        it = gen()
        next(it)
        del it
        log.append("after")
        it = gen()
        next(it)
        it = None
        log.append("after2")
        next(gen())
        log.append("after3")
        for _ in gen():
            break
        log.append("after4")
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


@program
def held_by_another_generator(compile):
    def inner(x):
        try:
            yield x
            yield x + 1
        finally:
            print("inner done")

    def delegates(x):
        yield from inner(x)

    def loops(x):
        held = inner(x)
        yield from (y * 2 for y in held)

    def in_a_loop(x):
        for held in [inner(x)]:
            next(held)
            yield x

    def let_go(x):
        for kind in (delegates, loops, in_a_loop):
            it = kind(x)
            y = next(it)
            it = None
            print("end")
        return y

    def left_behind(x):
        it = delegates(x)
        next(it)
        return x * 3

    return [call(compile(f), X) for f in (let_go, left_behind)]


@program
def sent_into_a_block(compile):
    def g(x):
        y = yield x
        while y is not None:
            try:
                y = yield x * y
            finally:
                print("leaving")

    def rebound(x):
        it = g(x)
        next(it)
        a = it.send(x)
        print("sent")
        it = None
        print("after")
        return a

    def by_its_method(x):
        it = g(x)
        next(it)
        send = it.send
        del it
        print(send(x).sum().item())
        print("sent")
        send = None
        print("after")
        return x

    def in_a_zip(x):
        pairs = zip(g(x), [1, 2])
        next(pairs)
        print("taken")
        pairs = None
        print("after")
        return x + 1

    return [call(compile(f), X) for f in (rebound, by_its_method, in_a_zip)]


@pytest.mark.parametrize("name", program)
def test_a_program(name):
    check(program[name])
