"""Warnings that compiling comes upon raise nothing in its thread, and go on raising in the others."""
from __future__ import annotations

import threading
import warnings

import pytest
from ptdebug.tracer.runtime.warning_filters import warnings_are_no_errors


def _raised_in_a_thread() -> list[str]:
    found: list[str] = []

    def work() -> None:
        try:
            warnings.warn("of the other thread", UserWarning, stacklevel=1)
        except UserWarning as error:
            found.append(str(error))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    return found


def test_only_this_thread_is_quiet() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        before = list(warnings.filters)
        with warnings_are_no_errors():
            warnings.warn("of this thread", UserWarning, stacklevel=1)
            assert _raised_in_a_thread() == ["of the other thread"]
        assert warnings.filters == before
        with pytest.raises(UserWarning):
            warnings.warn("of this thread, later", UserWarning, stacklevel=1)


def test_a_copy_of_the_filters_that_outlives_it_is_as_before() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        quiet = warnings_are_no_errors()
        quiet.__enter__()
        with warnings.catch_warnings():
            quiet.__exit__(None, None, None)
        with pytest.raises(UserWarning):
            warnings.warn("later", UserWarning, stacklevel=1)


def test_what_was_warned_of_once_is_not_warned_of_again() -> None:
    def warn() -> None:
        warnings.warn("once", UserWarning, stacklevel=1)

    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("default")
        warnings.filterwarnings("error", category=ResourceWarning)
        warn()
        with warnings_are_no_errors():
            warn()
        warn()
    assert [str(one.message) for one in seen] == ["once"]
