"""Texts that are made of sizes: what only leaves the function is made anew at each call, without a compilation."""
# ruff: noqa: F501, F507, F509, F521, F523, F524, F525, UP031, UP032  (templates as programs have them)
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from ptdebug.tracer.runtime.statistics import STATISTICS

from ..checking import call, check, check_whole

LOG: list[str] = []


def leaves(x, kind):
    text = f"{kind} of {tuple(x.shape)}, {x.shape[:1]}: {x.size(0):>4} {x.size(0) * 2:03d} {[x.size(1)]!r} {{}}"
    LOG.append(text)
    return x * 2, text, {"size": str(x.shape[0])}, [f"{text}-{x.size(1)}", x.shape]


class Named:
    def __init__(self, rows):
        self.rows = rows


def fills_templates(x, kind):
    rows, columns = x.shape
    named = "{0:>4}|{0}|{k!r}|{s[1]}|{n.rows:03d}|{0:{w}}|{{}}".format(rows, k=kind, s=x.shape, n=Named(rows), w=6)
    text = "%d x %d, %s: %4d|%-4d|%04d|%+d|%x|%%|%r" % (rows, columns, kind, rows, rows, columns, rows, rows, kind)
    more = "%s" % rows, "%s!" % x.shape[:1], "%(a)d %(b)s" % {"a": rows, "b": kind}, "{} {}".format(*x.shape)
    return x * 2, named, text, more


def does_not_fit(x, kind):
    rows = x.shape[0]
    wrong = [
        lambda: "%d" % x.shape, lambda: "%d %d" % rows, lambda: "none" % rows, lambda: "%(a)d" % rows,
        lambda: "%q" % rows, lambda: "100% %d" % rows, lambda: "% " % rows, lambda: "{} {}".format(rows),
        lambda: "{a}".format(rows),
        lambda: "{0} {}".format(rows), lambda: "{".format(rows), lambda: "{:q}".format(rows),
        lambda: "{!z}".format(rows), lambda: "{.none}".format(rows),
    ]  # fmt: skip
    return [call(function) for function in wrong], x * 2


def is_read(x, kind):
    named = {f"n{x.size(0)}": x}
    try:
        raise ValueError(f"no {x.size(0)}")
    except ValueError as error:
        told = str(error), error.args
    length = len(f"{x.size(1)} columns") + len("%5s %3.1f" % (x.size(0), x.size(1)))
    return x + length, told, list(named), f"{x.size(0)}" + "!", x if f"{x.size(1)}" == "5" else None


def verify(holds, message):
    if not holds:
        raise ValueError(message)


def tells_what_nobody_reads(x, kind):
    total = x.sum()
    verify(x.shape[0] > 1, f"{total}, {x.mean()!r} and {[total, {kind: x}]} are not {kind}")
    message = "{} of {}".format(total, x) if kind == "a" else "%s!" % total
    assert isinstance(message, str) and message is not None and not callable(message), str(x)
    return x * 2


def test_a_text_of_a_tensor_that_nothing_reads_breaks_no_graph() -> None:
    def use(compile):
        function = compile(tells_what_nobody_reads)
        return [function(torch.ones(2, 3), kind) for kind in "ab"]

    check_whole(use)


def test_a_text_of_a_tensor_that_is_read() -> None:
    ways = [
        lambda t: t == "<12.0>", lambda t: "<12.0>" == t, lambda t: t != "<12.0>", lambda t: t in {"<12.0>": 1},
        lambda t: {"<12.0>": 1}.get(t), lambda t: t in ["<12.0>"], lambda t: t in {"<12.0>"}, lambda t: "12" in t,
        lambda t: "-".join([t, "!"]), lambda t: t + "?", lambda t: "?" + t, lambda t: t[1], bool, lambda t: t < "=",
        str, repr, list, len, lambda t: f"{t:>20}", lambda t: f"{t!r}", lambda t: "%10s" % t, lambda t: {t, "<12.0>"},
        lambda t: {t: 1}, lambda t: t.strip("<>"), lambda t: sorted([t, "a"]), lambda t: verify(False, t), lambda t: t,
        lambda t: LOG.append(t), print, lambda t: call(verify, False, t), lambda t: 1 if t else 2,
        lambda t: (t, t is t), lambda t: ["<12.0>"].index(t), lambda t: ["<12.0>"].count(t), lambda t: max(t, "a"),
        lambda t: setattr(Named, "text", t), lambda t: ("<12.0>", 1) == (t, 1), lambda t: str(ValueError(t)),
    ]  # fmt: skip
    for way in ways:

        def program(compile, way=way):
            LOG.clear()

            def f(x):
                y = x * 2
                text = f"<{y.sum()}>"
                y.add_(1)
                return call(way, text), y

            return compile(f)(torch.ones(2, 3)), LOG.copy()

        check(program)


@pytest.mark.parametrize(("function", "most"), [(leaves, 1), (fills_templates, 1), (is_read, 8)])
def test_texts_of_sizes(function: Callable[..., Any], most: int) -> None:
    def use(compile):
        LOG.clear()
        f = compile(function)
        return [f(torch.ones(rows, columns), "a") for rows, columns in ((2, 3), (3, 4), (4, 5), (12, 11))], list(LOG)

    STATISTICS.clear()
    check(use)
    assert STATISTICS.recompiles <= most and not any("break" in why for why in STATISTICS.reasons)


def test_templates_that_do_not_fit() -> None:
    check(lambda compile: compile(does_not_fit, dynamic=True)(torch.ones(3, 4), "a"))


def shows_each_step(x, step):
    loss = (x * x).sum()
    begun = "step " + str(step)
    print(f"step {step:03d}: {loss:.2f}", f"{begun}, {loss.item()}" + "!", sep="|")
    y = x * 2
    print(begun, end=";")
    return y + loss, begun


def asks_for_its_text(x, name):
    print(name, end=";")
    text = f"<{name}>"
    print(text, end=";")
    return x * (2 if name == "b" else 3), {text: 1}[text], text.upper()


def test_texts_that_come_over_a_break() -> None:
    def use(compile):
        f = compile(shows_each_step)
        return [f(torch.ones(3) * step, step) for step in range(12)]

    STATISTICS.clear()
    check(use)
    assert STATISTICS.recompiles <= 3 and not any("limit" in why for why in STATISTICS.reasons)


def test_texts_that_are_asked_for_after_a_break() -> None:
    def use(compile):
        f = compile(asks_for_its_text)
        return [f(torch.ones(3), name) for name in ("a", "b", "a", "c", "b")]

    check(use)


class Spelled:
    def __format__(self, spec):
        return f"<{spec}>"


def test_format_is_called_as_in_an_f_string() -> None:
    def use(compile):
        f = compile(lambda x, step: (x + 1, format(Spelled(), ">4"), format(step, "03d"), format(None), format([1])))
        return [f(torch.ones(2), step) for step in (1, 2, 3)]

    STATISTICS.clear()
    check(use)
    assert not any("break" in why for why in STATISTICS.reasons)
