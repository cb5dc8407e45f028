"""The decision about a subject: its options, scores and reason, and what would enable another.

SUBJECT is a name, or a question with names in it.
"""
from __future__ import annotations

import argparse

from ...artifacts.listing import Line
from ...artifacts.why import answers, left_out, pointers, subjects_near
from ..printing import add_json, print_json, print_lines, print_title, say, selected

EXAMPLE = 'ptdebug why @:0/0 "why was buf3 not fused with buf4?"'


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """SELECTOR, SUBJECT and --json."""
    parser.add_argument("selector", metavar="SELECTOR", help="RECORDING[:F/C]; @ is the newest recording")
    parser.add_argument("subject", metavar="SUBJECT", nargs="+", help="a name, or a question with names in it")
    add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    """Print the answers; 1 if there are none."""
    subject = " ".join(arguments.subject)
    with selected(arguments.selector) as (recording, selector):
        found = answers(recording, subject, selector.compile or None)
        see = pointers(subject)
        if arguments.json:
            documents = [{"compile": a.compile, "answer": a.kind, **a.document} for a in found]
            print_json(subject=subject, answers=documents, see=[command for command, _ in see])
        elif not found and not see:
            near = subjects_near(recording, subject, selector.compile or None)
            say(f"nothing recorded about {subject!r} in {selector}"
                  + (f"; recorded are, for example: {'; '.join(near)}" if near else "")
                  + " (`ptdebug decisions` and `ptdebug fusions` list all)")
        missing = left_out(recording, subject, found, selector.compile or None) if found else []
        if missing and not arguments.json:
            say(f"nothing is recorded about all of these together ({', '.join(missing)}); nearest:")
        for answer in found if not arguments.json else ():
            print_title(f"{answer.compile}  {answer.kind}")
            print_lines(answer.lines)
        if not arguments.json:
            print_lines([Line(f"see: ptdebug {command} {selector}  ({shows})") for command, shows in see])
    return 0 if found or see else 1
