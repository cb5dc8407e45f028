"""Texts that are made of sizes: what only leaves the function is made anew at each call, without a compilation."""
# ruff: noqa: F501, F507, F509, F521, F523, F524, F525, UP031, UP032  (templates as programs have them)
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from ptdebug.tracer.statistics import STATISTICS

from .checking import call, check

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
