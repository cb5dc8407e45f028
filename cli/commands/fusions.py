"""The fusion candidates: which pairs were fused, which were not, why, and what would enable it."""
from __future__ import annotations

import argparse

from ...artifacts.records import Fusion
from ...artifacts.render import render
from ...dependencies import msgspec
from ..printing import add_selector, print_json, print_listing, print_nothing, print_title, selected

EXAMPLE = "ptdebug fusions @:0/0 --refused"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """SELECTOR, --json and --refused."""
    add_selector(parser)
    parser.add_argument("--refused", action="store_true", help="only pairs that were not fused")


def run(arguments: argparse.Namespace) -> int:
    """Print the candidates of one compilation or of all; 0 also where there are none."""
    with selected(arguments.selector) as (recording, selector):
        found = [(owner, tuple(c for c in record.candidates if not (arguments.refused and c.fused)))
                 for owner, record in recording.records(Fusion, selector.compile or None)]
        if arguments.json:
            print_json(fusions=[{"compile": owner, **_plain(c)} for owner, candidates in found for c in candidates])
            return 0
        if not any(candidates for _, candidates in found):
            print_nothing(recording, selector.compile or None, "fusion", "no fusion candidates")
        for owner, candidates in found:
            if candidates:
                print_title(f"== {owner}")
                print_listing(render(Fusion(candidates), "fusion", "", recording.source))
    return 0


def _plain(candidate: msgspec.Struct) -> dict[str, object]:
    return {key: value for key, value in msgspec.to_builtins(candidate).items() if key != "record"}
