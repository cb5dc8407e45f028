"""Versions of dicts, and when the guards of a module rely on them."""
from __future__ import annotations

import collections
import gc
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from ptdebug.cli.guard_library import GuardLibrary
from ptdebug.engine.toolchain.cpp_build import build
from ptdebug.tracer.guards import fast_path, versions
from ptdebug.tracer.guards.versions import Step, Versions

needs_versions = pytest.mark.skipif(not versions.possible(), reason="the dicts of this Python have no versions")


class Thing:
    def __init__(self) -> None:
        self.value = 1


@pytest.fixture(scope="module")
def library() -> Versions:
    found = versions.tried(build(versions.SOURCE, versions.FUNCTIONS).functions)
    assert found is not None
    return found


@needs_versions
def test_objects_are_found_in_their_slots_and_kept_alive(library: Versions) -> None:
    things = [Thing() for _ in range(3)]
    table = library.table(Step(thing, thing.__dict__, True, 2 - number) for number, thing in enumerate(things))
    found: list[Any] = [None] * 3
    before = [sys.getrefcount(thing) for thing in things]
    assert library.look(table, found)
    assert found == things[::-1]
    found.clear()
    assert [sys.getrefcount(thing) for thing in things] == before


@needs_versions
@pytest.mark.parametrize("change", [
    lambda thing: setattr(thing, "value", 2),
    lambda thing: setattr(thing, "__dict__", {}),
    lambda thing: delattr(thing, "__dict__"),
    lambda thing: setattr(thing, "__class__", type("Other", (Thing,), {})),
])
def test_a_change_is_seen_for_good(library: Versions, change: Callable[[Thing], object]) -> None:
    thing, other = Thing(), Thing()
    table = library.table([Step(thing, thing.__dict__, True), Step(other, other.__dict__, True)])
    assert library.look(table, []) and library.look(table, [])
    other.__dict__.update(value=1)  # what is there already
    assert library.look(table, [])
    change(thing)
    assert not library.look(table, []) and not library.look(table, [])


@needs_versions
def test_an_unchanged_dict_of_each_kind_has_its_version(library: Versions) -> None:
    for kind in (dict, collections.OrderedDict, collections.Counter, lambda items: collections.defaultdict(int, items)):
        items = kind({"a": 1})
        table = library.table([Step(items, None, True)])
        assert items["a"] == 1 and "b" not in items and list(items) == ["a"] and library.look(table, [])
        items["a"] = 2
        assert not library.look(table, [])


@needs_versions
def test_only_tables_are_looked_at(library: Versions) -> None:
    for table in (None, b"", []):
        with pytest.raises(TypeError):
            library.look(table, [])  # type: ignore[arg-type]
    with pytest.raises(IndexError):
        library.look(library.table([Step(library, None, False, 1)]), [None])


def test_a_library_that_does_not_see_changes_is_refused() -> None:
    assert versions.tried({"take": lambda table: True, "look": lambda table, slots: True}) is None


@needs_versions
def test_a_record_does_not_outlive_its_classes(library: Versions) -> None:
    class Local(Thing):
        pass

    thing = Local()
    record = fast_path._Record(thing, lambda _: None)
    record.fill([Step(thing, thing.__dict__, True)], library)
    assert record.table is not None and library.look(record.table, [])
    thing.__class__ = Thing  # type: ignore[assignment]
    del Local
    gc.collect()
    assert record.table is None


def test_records_that_are_of_no_use_are_made_less_often() -> None:
    record = fast_path._Record(Thing, lambda _: None)
    for times in (1, 2):
        record.wait()
        assert record.left == 3 * 8**times
    record.served = 50
    record.wait()
    assert record.left == 3


@needs_versions
def test_without_a_compiler_there_is_no_library(monkeypatch: pytest.MonkeyPatch) -> None:
    from ptdebug.engine.toolchain import cpp_build as building

    def missing() -> str:
        raise building.CompilerMissing("no C++ compiler found")

    monkeypatch.setattr(building, "find_compiler", missing)
    library = GuardLibrary()
    assert library() is None and library.wait() is None
    assert library.failure == "CompilerMissing: no C++ compiler found" and library() is None


@needs_versions
def test_the_library_comes_in_the_background_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PTDEBUG_CACHE_DIR", str(tmp_path))
    library = GuardLibrary()
    assert library() is None
    assert library.wait() is not None and library() is library()
    assert GuardLibrary()() is not None  # found in the cache, it is there at once
