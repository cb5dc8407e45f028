"""Serve the workbench to a browser on this machine.

The same workbench as `ptdebug tui`, on localhost only, for whoever has the address that is printed (it holds a token).
Needs textual-serve: pip install 'ptdebug[serve]'.
"""
from __future__ import annotations

import argparse
import socket

from ...artifacts.selector import open_selected
from ..errors import CommandError

EXAMPLE = "ptdebug serve @:0/0:kernels --port 8080"
PORT = 8000
NEEDED = ("textual_serve", "aiohttp", "aiohttp_jinja2", "jinja2")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The selector, --port and --follow."""
    parser.add_argument("selector", nargs="?", default="@", help="RECORDING[:F/C[:STAGE[:NAME]]], default @")
    parser.add_argument("--port", type=int, default=PORT, metavar="N", help=f"default {PORT}")
    parser.add_argument("--follow", action="store_true", help="watch a program while it runs")


def run(arguments: argparse.Namespace) -> int:
    """Serve until Ctrl-C."""
    recording, _ = open_selected(arguments.selector)  # what cannot be opened is said here, not in the browser
    recording.close()
    try:
        from ...tui.web import HOST, WorkbenchServer
    except ModuleNotFoundError as missing:
        if (missing.name or "").partition(".")[0] not in NEEDED:
            raise
        raise CommandError("the browser needs textual-serve, which is not installed: "
                           "pip install 'ptdebug[serve]'  (in the terminal: ptdebug tui)") from None
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, arguments.port))
        except (OSError, OverflowError) as error:
            raise CommandError(f"can't serve on port {arguments.port}: {error} (choose another with --port)") from None
    WorkbenchServer(arguments.selector, arguments.port, arguments.follow).serve()
    return 0
