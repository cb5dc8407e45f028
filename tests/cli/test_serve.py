"""The workbench in a browser: fetched and driven as a browser does, and refused to everyone else."""
from __future__ import annotations

import asyncio
import importlib.util
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from ptdebug.artifacts.store import RecordingWriter

Command = Callable[..., subprocess.CompletedProcess[str]]
needs_server = pytest.mark.skipif(importlib.util.find_spec("textual_serve") is None,
                                  reason="textual-serve is not installed")


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    RecordingWriter(tmp_path / "recordings" / "served", command=["model.py"]).close(0)
    monkeypatch.setenv("PTDEBUG_HOME", str(tmp_path / "recordings"))
    return tmp_path / "recordings"


def test_without_textual_serve_it_says_what_to_install(ptdebug: Command, tmp_path: Path) -> None:
    (tmp_path / "hidden").mkdir()
    (tmp_path / "hidden" / "textual_serve.py").write_text("raise ModuleNotFoundError('no', name='textual_serve')\n")
    done = subprocess.run([sys.executable, "-m", "ptdebug", "serve"], capture_output=True, text=True, timeout=60,
                          env=_environment(tmp_path / "hidden"))
    assert done.returncode == 2 and "pip install 'ptdebug[serve]'" in done.stderr, done.stderr
    assert ptdebug("serve", "nowhere").returncode == 2


def _environment(first: Path) -> dict[str, str]:
    import os

    path = os.pathsep.join([str(first), os.environ.get("PYTHONPATH", "")])
    return os.environ | {"PYTHONPATH": path}


@needs_server
async def test_a_page_and_its_terminal(unused_port: int) -> None:
    from aiohttp import ClientSession, CookieJar, web
    from ptdebug.tui.web import WorkbenchServer

    server = WorkbenchServer("served", unused_port)
    runner = web.AppRunner(await server._make_app())
    await runner.setup()
    await web.TCPSite(runner, "localhost", unused_port).start()
    try:
        base = f"http://localhost:{unused_port}"
        async with ClientSession() as stranger:
            for path, headers in (("/", {}), ("/?token=wrong", {}), ("/ws", {})):
                assert (await stranger.get(base + path, headers=headers)).status == 403
            for headers in ({"Origin": "http://evil.example"}, {"Host": "evil.example"}):
                assert (await stranger.get(server.address, headers=headers)).status == 403
        async with ClientSession(cookie_jar=CookieJar(unsafe=True)) as browser:
            page = await browser.get(server.address)
            text = await page.text()
            assert [(cookie.key, cookie.value) for cookie in page.cookies.values()] == [
                (f"ptdebug_{unused_port}", server.token)]  # another server of this host has one of its own
            assert page.status == 200 and f"ws://localhost:{unused_port}/ws" in text
            assert "googleapis" not in text and "xterm.css" in text
            async with browser.ws_connect(f"{base}/ws?width=100&height=30", headers={"Origin": base}) as socket:
                seen = b""
                async with asyncio.timeout(60):
                    while b"nothing was compiled" not in seen:
                        seen += (await socket.receive()).data
                await socket.send_json(["stdin", "q"])
    finally:
        await runner.cleanup()


@pytest.fixture
def unused_port() -> int:
    import socket

    with socket.socket() as probe:
        probe.bind(("localhost", 0))
        return int(probe.getsockname()[1])
