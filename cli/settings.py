"""Reads the settings: `[tool.ptdebug]` in pyproject.toml, then PTDEBUG_* variables, then flags."""
from __future__ import annotations

import argparse
import json
import os
import re
import tomllib
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from ..artifacts.decision_kinds import problem
from .errors import CommandError
from .main import did_you_mean
from .session import ALL, COMPILERS, INPUT_KINDS, Settings
from .targets import check_target

DEFAULTS: dict[str, Any] = {
    "out": None, "name": None, "compiler": "ptdebug", "compile-all": False, "inputs": "first", "inputs-limit": "256M",
    "override": None, "target": None, "quiet": False, "check-calls": False, "time-calls": False, "profile": 0.0,
    "keep-output": 0, "steps": "",
}
BUDGET = "budget"  # the table of the limits of `ptdebug check`
ENVIRONMENT = {"out": "PTDEBUG_HOME"}
UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


def gather(arguments: argparse.Namespace) -> dict[str, Any]:
    """Every setting of `ptdebug run`; flags win over variables, variables over pyproject.toml."""
    values = {**DEFAULTS, **from_pyproject(Path.cwd())}
    values |= {key: os.environ[name] for key, name in ENVIRONMENT.items() if os.environ.get(name)}
    flags = {key: getattr(arguments, key.replace("-", "_"), None) for key in DEFAULTS}
    return values | {key: value for key, value in flags.items() if value is not None}


def to_settings(values: Mapping[str, Any]) -> Settings:
    """The part of the settings that compilations depend on. Raises CommandError for invalid ones."""
    target = values["target"] or ""
    if target:
        check_target(target)
    _one_of("compiler", values["compiler"], COMPILERS)
    _one_of("inputs", values["inputs"], INPUT_KINDS)
    return Settings(
        compiler=values["compiler"], compile_all=bool(values["compile-all"]), inputs=values["inputs"],
        inputs_limit=size(values["inputs-limit"]), target=target,
        overrides=read_overrides(Path(values["override"])) if values["override"] else {},
        check_calls=bool(values["check-calls"]), time_calls=bool(values["time-calls"]),
        profile=_seconds(values["profile"]), steps=_compile_ids(values["steps"]),
    )


def checked(settings: Settings) -> Settings:
    """The same settings, from Python. Raises ValueError for an invalid override, target, or compilation."""
    for decision, option in settings.overrides.items():
        wrong = problem(decision, option)
        if wrong:
            raise ValueError(f"the override {decision} = {option!r}: {wrong}")
    try:
        _compile_ids(settings.steps)
        if settings.target:
            check_target(settings.target)
    except CommandError as error:
        raise ValueError(str(error)) from None
    return settings


def _seconds(value: object) -> float:
    if not isinstance(value, (int, float)) or isinstance(value, bool) or not 0 <= value < float("inf"):
        raise CommandError(f"profile = {value!r}: a number of seconds was expected")
    return float(value)


def _compile_ids(text: object) -> str:
    if not isinstance(text, str) or not (text in ("", ALL) or re.fullmatch(r"\d+/\d+(,\d+/\d+)*", text)):
        raise CommandError(f"steps = {text!r}: compilations were expected, such as 0/0 or 0/0,1/0, or {ALL}")
    return text


def _one_of(name: str, value: object, options: tuple[str, ...]) -> None:
    if value not in options:
        raise CommandError(f"{name} = {value!r}: one of {', '.join(options)} was expected")


def from_pyproject(folder: Path) -> dict[str, Any]:
    """The settings of `ptdebug run` in pyproject.toml, but for what is not there."""
    path, table = _table(folder)
    settings = {key: value for key, value in table.items() if key != BUDGET}
    for key in settings:
        if key not in DEFAULTS:
            raise CommandError(f"{path}: there is no setting tool.ptdebug.{key}{did_you_mean(key, DEFAULTS)}")
    return settings


def budget(known: Collection[str]) -> dict[str, float]:
    """The limits of `[tool.ptdebug.budget]` in pyproject.toml, each with a name that is `known`; empty without it."""
    path, table = _table(Path.cwd())
    limits = table.get(BUDGET, {})
    if not isinstance(limits, dict):
        raise CommandError(f"{path}: tool.ptdebug.{BUDGET} is no table")
    for name, limit in limits.items():
        if name not in known:
            raise CommandError(f"{path}: there is no limit tool.ptdebug.{BUDGET}.{name}{did_you_mean(name, known)}")
        if not isinstance(limit, (int, float)) or isinstance(limit, bool) or not 0 <= limit < float("inf"):
            raise CommandError(f"{path}: tool.ptdebug.{BUDGET}.{name} = {limit!r}: a number was expected")
    return limits


def _table(folder: Path) -> tuple[Path | None, dict[str, Any]]:
    """The table `[tool.ptdebug]` of the nearest pyproject.toml that has one, from `folder` upwards, and that file."""
    for place in (folder, *folder.parents):
        path = place / "pyproject.toml"
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError):
            continue
        if "tool.ptdebug" not in text:
            continue
        try:
            table = tomllib.loads(text).get("tool", {}).get("ptdebug", {})
        except tomllib.TOMLDecodeError as error:
            raise CommandError(f"{path}: {error}") from None
        return path, dict(table)
    return None, {}


def size(text: str | int) -> int:
    """A number of bytes: 1000, "64M", "2G"."""
    found = re.fullmatch(r"(\d+)\s*([KMG]?)B?", str(text).strip(), re.IGNORECASE)
    if not found:
        raise CommandError(f"--inputs-limit {text}: expected a number of bytes, for example 64M or 2G")
    return int(found[1]) * UNITS[found[2].upper()]


def pattern(text: str) -> str:
    """A regular expression, as an option's value."""
    try:
        re.compile(text)
    except re.error as error:
        raise argparse.ArgumentTypeError(f"{text!r} is no regular expression: {error}") from None
    return text


def read_overrides(path: Path) -> dict[str, str]:
    """Decision id (or pattern) -> option, from a TOML or JSON file of strings.

    In TOML a table may hold one kind: `[fuse]` with `"buf3+buf4" = "separate"` is the decision `fuse:buf3+buf4`.
    """
    try:
        text = path.read_text(encoding="utf-8")
        document = json.loads(text) if path.suffix == ".json" else tomllib.loads(text)
    except OSError as error:
        raise CommandError(f"can't read the overrides in '{path}': {error.strerror}") from None
    except ValueError as error:  # both decoders' errors are ValueErrors
        raise CommandError(f"{path}: {error}") from None
    if not isinstance(document, dict):
        raise CommandError(f"{path}: a table of decisions and options was expected")
    overrides: dict[str, str] = {}
    for key, value in document.items():
        pairs = {f"{key}:{subject}": option for subject, option in value.items()} if isinstance(value, dict) else {
            key: value}
        for decision, option in pairs.items():
            if not isinstance(option, str):
                raise CommandError(f"{path}: {decision} = {option!r}: the name of an option was expected")
            wrong = problem(decision, option)
            if wrong:
                raise CommandError(f"{path}: {decision} = {option!r}: {wrong}")
            overrides[decision] = option
    return overrides
