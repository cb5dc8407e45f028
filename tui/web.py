"""The workbench in a browser, through textual-serve: each page runs `ptdebug tui` in a process of its own.

Whoever reaches the server can do what the workbench can, and that includes running recorded code. So it listens on
localhost alone, serves only who has the token of the printed address (other users of this machine have not), and
refuses requests that a page of another site makes in the person's browser.
"""
from __future__ import annotations

import hmac
import logging
import re
import secrets
import shlex
import sys
from collections.abc import Awaitable, Callable

from aiohttp import web
from textual_serve.server import Server

HOST = "localhost"
FOREIGN = re.compile(r'<link[^>]*href="https://[^>]*>')
"""What textual-serve's page would load from elsewhere: a font."""

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class WorkbenchServer(Server):
    """Serves the workbench on a selector."""

    def __init__(self, selector: str, port: int, follow: bool = False) -> None:
        words = [sys.executable, "-P", "-m", "ptdebug", "tui", selector, *(["--follow"] if follow else [])]
        super().__init__(shlex.join(words), HOST, port, title=f"ptdebug {selector}", public_url=f"http://{HOST}:{port}")
        self.token = secrets.token_urlsafe(16)
        self.cookie = f"ptdebug_{port}"  # cookies of one host are shared by its ports

    @property
    def address(self) -> str:
        """What to open in the browser."""
        return f"{self.public_url}/?token={self.token}"

    def initialize_logging(self) -> None:
        """Only what goes wrong is of interest."""
        logging.basicConfig(level=logging.WARNING, format="ptdebug serve: %(message)s")

    async def on_startup(self, app: web.Application) -> None:
        """Say where it is."""
        print(f"the workbench is at {self.address}  (Ctrl-C ends it)", file=sys.stderr, flush=True)

    async def _make_app(self) -> web.Application:
        app = await super()._make_app()
        app.middlewares.append(self._admit)
        return app

    @web.middleware
    async def _admit(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Serve only pages of this server, to those who know the token: it becomes a cookie of theirs."""
        own = f"{HOST}:{self.port}"
        if request.host != own or request.headers.get("Origin", f"http://{own}") != f"http://{own}":
            return web.Response(status=403, text=f"only for pages of http://{own}\n")
        known = request.query.get("token") or request.cookies.get(self.cookie, "")
        if not hmac.compare_digest(known.encode(), self.token.encode()):
            return web.Response(status=403, text="open the address that `ptdebug serve` printed, with its token\n")
        response = await handler(request)
        if isinstance(response, web.Response) and response.text and response.content_type == "text/html":
            response.text = FOREIGN.sub("", response.text)
        if "token" in request.query and not response.prepared:
            response.set_cookie(self.cookie, self.token, httponly=True, samesite="Strict")
        return response
