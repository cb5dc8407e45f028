"""What a handler, a tracing function or another thread raises while we compile or run reaches the program."""
from __future__ import annotations

import ctypes
import functools
import random
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import ptdebug
import pytest
import torch
from ptdebug.artifacts.external_exceptions import came_from_outside
from ptdebug.tracer.frames import dispatch, random_state
from ptdebug.tracer.runtime import eval_frame


class TimeLimit(Exception):
    pass


@pytest.fixture(autouse=True)
def alarm() -> Iterator[None]:
    before = signal.getsignal(signal.SIGALRM)
    dispatch.reset()
    yield
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)
    sys.settrace(None)
    sys.setprofile(None)
    assert torch._C._len_torch_dispatch_stack() == 0 and eval_frame.current_callback() is None


def out_of_time(number: int, frame: Any) -> None:
    raise TimeLimit


class OutOfTime:
    def __call__(self, number: int, frame: Any) -> None:
        raise TimeLimit("an object")

    def method(self, *args: Any) -> None:
        raise TimeLimit("a method")


HANDLERS: list[Any] = [
    out_of_time, OutOfTime(), OutOfTime().method, functools.partial(out_of_time), lambda *_: out_of_time(*_),
]


def set_from_another_thread(kind: type[BaseException]) -> None:
    me = threading.get_ident()
    setting = ctypes.pythonapi.PyThreadState_SetAsyncExc
    thread = threading.Thread(target=lambda: setting(ctypes.c_ulong(me), ctypes.py_object(kind)))
    thread.start()
    thread.join()


def as_it_is(module: Any, inputs: Any) -> Any:
    return module.forward


def interrupted_backend(act: Callable[[], Any], in_the_run: bool = False) -> Callable[..., Any]:
    def backend(module: Any, inputs: Any) -> Any:
        if not in_the_run:
            act()
            return module.forward

        def run(*args: Any) -> Any:
            act()
            return module.forward(*args)

        return run

    return backend


def ring() -> None:
    signal.raise_signal(signal.SIGALRM)


def function(x: torch.Tensor, how: dict[str, float]) -> Any:
    y = x.sin() * how["scale"]
    if y.shape[0] > 2:
        y = y.cos()
    return y.sum(), {"y": y}


@pytest.mark.parametrize("handler", HANDLERS, ids=["function", "object", "method", "partial", "lambda"])
@pytest.mark.parametrize("in_the_run", [False, True], ids=["compiling", "running"])
def test_what_a_handler_raises_reaches_the_program(handler: Any, in_the_run: bool) -> None:
    signal.signal(signal.SIGALRM, handler)
    compiled = ptdebug.compile(function, backend=interrupted_backend(ring, in_the_run))
    with pytest.raises(TimeLimit):
        compiled(torch.ones(3), {"scale": 2.0})
    assert signal.getsignal(signal.SIGALRM) is handler


@pytest.mark.parametrize("kind", [
    TimeLimit, TimeoutError, KeyboardInterrupt, AssertionError, NotImplementedError, RecursionError, StopIteration,
])  # fmt: skip
@pytest.mark.parametrize("in_the_run", [False, True], ids=["compiling", "running"])
def test_what_another_thread_sets_reaches_the_program(kind: type[BaseException], in_the_run: bool) -> None:
    backend = interrupted_backend(lambda: set_from_another_thread(kind), in_the_run)
    with pytest.raises(kind):
        ptdebug.compile(function, backend=backend)(torch.ones(3), {"scale": 2.0})
    later = ptdebug.compile(lambda x: x.cos() + 2)
    assert torch.equal(later(torch.ones(3)), torch.ones(3).cos() + 2)
    assert ptdebug.stats()["graphs"] == 1 + in_the_run


@pytest.mark.parametrize("backend", [as_it_is, "ptdebug"], ids=["capture", "engine"])
def test_a_time_limit_ends_a_compilation_wherever_it_is(backend: Any, tmp_path: Any, monkeypatch: Any) -> None:
    monkeypatch.setenv("PTDEBUG_CACHE_DIR", str(tmp_path))
    signal.signal(signal.SIGALRM, out_of_time)
    arguments = torch.ones(3, requires_grad=True), {"scale": 2.0}

    def fresh(number: int) -> Callable[..., Any]:
        dispatch.reset()
        return ptdebug.compile(lambda x, how: function(x * number, how), backend=backend)

    fresh(1)(*arguments)
    start = time.perf_counter()
    fresh(2)(*arguments)
    span, trials = time.perf_counter() - start, 15
    for trial in range(trials):
        with pytest.raises(TimeLimit):
            compiled = fresh(3 + trial)
            signal.setitimer(signal.ITIMER_REAL, max(span * (trial + 0.5) / trials, 1e-4))
            compiled(*arguments)
            while True:  # the call may have been done before
                time.sleep(0.01)
        assert torch._C._len_torch_dispatch_stack() == 0 and eval_frame.current_callback() is None
        assert type(torch.ones(2)) is torch.Tensor and torch.is_grad_enabled()


def test_a_handler_finds_the_program_as_it_is() -> None:
    seen: dict[str, Any] = {}
    other = ptdebug.compile(lambda x: x.exp() - 1, backend=as_it_is)

    def handler(number: int, frame: Any) -> None:
        seen["handler"] = signal.getsignal(number)
        seen["line"] = frame.f_code.co_filename
        made = torch.ones(3, requires_grad=True) * 2
        seen["values"] = made.tolist(), made.requires_grad, type(made)
        seen["compiled"] = other(torch.zeros(2)).tolist(), compiled(torch.zeros(1), {"scale": 1.0})[0].item()

    signal.signal(signal.SIGALRM, handler)
    rings = iter([True])
    backend = interrupted_backend(lambda: next(rings, False) and ring())
    compiled = ptdebug.compile(function, backend=backend)
    with torch.no_grad():
        x, how = torch.ones(3), {"scale": 2.0}
        assert compiled(x, how)[0] == function(x, how)[0]
        assert not torch.is_grad_enabled()
    assert seen.pop("line") == __file__
    assert seen == {
        "handler": handler, "values": ([2.0, 2.0, 2.0], False, torch.Tensor), "compiled": ([0.0, 0.0], 0.0),
    }


def test_signals_without_end_do_not_keep_a_function_from_being_compiled() -> None:
    handled = []
    signal.signal(signal.SIGALRM, lambda number, frame: handled.append(number))
    signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
    compiled = ptdebug.compile(function)
    compiled(torch.ones(3), {"scale": 2.0})
    assert handled and ptdebug.stats()["graphs"] == 1


@pytest.mark.skipif(sys.platform != "linux", reason="the layout of Linux's struct")
def test_what_c_knows_of_a_signal_stays() -> None:
    """`siginterrupt`, which setting a handler would undo."""
    libc, before, after = ctypes.CDLL(None), ctypes.create_string_buffer(1024), ctypes.create_string_buffer(1024)
    signal.signal(signal.SIGALRM, out_of_time)
    signal.siginterrupt(signal.SIGALRM, False)
    libc.sigaction(int(signal.SIGALRM), None, before)
    ptdebug.compile(function, backend=as_it_is)(torch.ones(3), {"scale": 2.0})
    libc.sigaction(int(signal.SIGALRM), None, after)
    handler_and_flags = slice(0, 8), slice(136, 140)  # between them lies the mask, of which Linux writes a part
    assert [before.raw[part] for part in handler_and_flags] == [after.raw[part] for part in handler_and_flags]


@pytest.mark.parametrize("watch", [sys.settrace, sys.setprofile])
def test_tracing_functions_do_not_see_the_compiler(watch: Any) -> None:
    files = set()

    def see(frame: Any, event: str, argument: Any) -> Any:
        files.add(frame.f_code.co_filename)
        return see

    def backend(module: Any, inputs: Any) -> Any:
        return of_the_program(module)

    def of_the_program(module: Any) -> Any:
        files.add("compiled")
        return module.forward

    compiled = ptdebug.compile(function, backend=backend)
    watch(see)
    compiled(torch.ones(3), {"scale": 2.0})
    now = {sys.settrace: sys.gettrace, sys.setprofile: sys.getprofile}[watch]()
    watch(None)
    assert now is see and {"compiled", __file__} <= files
    assert not [file for file in files if file.endswith(("convert.py", "interpreter.py", "fake_tensor.py"))]


def test_what_a_tracing_function_raises_in_a_compiled_call_reaches_the_program() -> None:
    def see(frame: Any, event: str, argument: Any) -> Any:
        if frame.f_code.co_name == "run":
            raise TimeLimit
        return None

    compiled = ptdebug.compile(function, backend=interrupted_backend(lambda: None, in_the_run=True))
    compiled(torch.ones(3), {"scale": 2.0})
    sys.settrace(see)
    with pytest.raises(TimeLimit):
        compiled(torch.ones(3), {"scale": 2.0})


def test_errors_of_our_own_do_not_come_from_outside() -> None:
    def raised(call: Callable[[], Any]) -> BaseException:
        try:
            call()
        except BaseException as error:
            return error
        raise AssertionError

    class Own(Exception):
        pass

    def own() -> None:
        raise Own

    calls = [own, lambda: torch.ones(2) + torch.ones(3), lambda: {}["a"], lambda: next(iter(())), lambda: int("x")]
    assert not [call for call in calls if came_from_outside(raised(call))]
    assert came_from_outside(raised(lambda: out_of_time(int(signal.SIGALRM), sys._getframe())))


class Scaled(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear, self.scale, self.table = torch.nn.Linear(2, 2), 3, {"a": 1}

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(x) * self.scale + self.table["a"]


@pytest.mark.parametrize("function", [lambda x: x.cos() + 1, Scaled()])
def test_no_time_limit_is_lost_in_a_guard(function: Callable[..., Any]) -> None:
    """Python runs a handler where it next enters a function, which may be a guard."""
    compiled = ptdebug.compile(function)

    def many_calls() -> None:
        end = time.monotonic() + 0.5
        while time.monotonic() < end:
            compiled(torch.ones(1, 2))

    signal.signal(signal.SIGALRM, out_of_time)
    many = range(60)
    with torch.no_grad():
        compiled(torch.ones(1, 2))
        for number in many:
            with pytest.raises(TimeLimit):
                signal.setitimer(signal.ITIMER_REAL, 0.002 + number * 1.3e-5)
                many_calls()


def test_a_recursion_error_of_a_handler_is_the_programs() -> None:
    def handler(number: int, frame: Any) -> None:
        raise RecursionError("the handler's own")

    signal.signal(signal.SIGALRM, handler)
    with pytest.raises(RecursionError, match="own"):
        ptdebug.compile(function, backend=interrupted_backend(ring, False))(torch.ones(3), {"scale": 2.0})


def test_no_exception_is_lost_where_torch_puts_pythons_random_state_back(monkeypatch: Any) -> None:
    def interrupted(state: Any) -> None:
        while rings:
            rings.pop()
            out_of_time(int(signal.SIGALRM), sys._getframe())
        before(state)

    before, rings = random_state._put_back, [1]
    monkeypatch.setattr(random_state, "_put_back", interrupted)
    monkeypatch.setattr(random, "setstate", interrupted)
    monkeypatch.setattr(dispatch, "runs_alone", lambda: True)  # beside other threads torch's call does nothing
    drawn, compiled = random.getstate(), ptdebug.compile(lambda x: x.sin() + 1, backend=as_it_is)
    if eval_frame.PUTS_RANDOM_STATE_BACK:
        with pytest.raises(TimeLimit):
            compiled(torch.ones(3))
    assert torch.equal(compiled(torch.ones(3)), torch.ones(3).sin() + 1) and random.getstate() == drawn
    assert not random_state._awaited
