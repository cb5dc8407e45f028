"""Finds the packages: the repository's root is the package `ptdebug`, so `packages.find` of pyproject.toml cannot."""
from setuptools import find_packages, setup

ROOMS = ("artifacts", "cli", "engine", "operators", "replay", "tracer", "tui")
found = find_packages(include=[pattern for room in ROOMS for pattern in (room, f"{room}.*")])
setup(packages=["ptdebug", *(f"ptdebug.{name}" for name in found)])
