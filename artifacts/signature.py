"""Signs recordings, so that replay knows which ones this user made on this machine.

The contents of a recording may come from anyone. So it is signed with a key outside of it, in the user's configuration
(`$XDG_CONFIG_HOME/ptdebug/recordings.key`, by default in `~/.config`), which others cannot read. One signature covers
what running the program again executes: the command, its working folder, and the content of the script. Another says
that the recording was written here: it covers the inode of its folder, which a copy does not have.
"""
from __future__ import annotations

import hashlib
import hmac
import json
import os
import secrets
import stat
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

KEY_BYTES = 32
_MAX_SCRIPT = 1 << 26


def sign(command: Sequence[str], folder: str) -> str:
    """The signature of a program that runs here; "" if the user has no place for a key."""
    key = _key(make=True)
    return hmac.digest(key, _signed(command, folder), "sha256").hex() if key else ""


def is_signed(command: Sequence[str], folder: str, signature: str) -> bool:
    """Whether this user recorded the program here, and its script is unchanged."""
    key = _key(make=False)
    if not key or not signature.isascii():
        return False
    return hmac.compare_digest(hmac.digest(key, _signed(command, folder), "sha256").hex(), signature)


def sign_place(folder: Path, started: float) -> str:
    """The signature of a recording that is being written into `folder` since `started`; "" without a key."""
    key = _key(make=True)
    place = _place(folder, started)
    return hmac.digest(key, place, "sha256").hex() if key and place else ""


def was_written_here(folder: Path, started: object, signature: object) -> bool:
    """Whether this user's ptdebug wrote the recording in `folder`, on this machine."""
    key, place = _key(make=False), _place(folder, started)
    if not key or not place or not isinstance(signature, str) or not signature.isascii():
        return False
    return hmac.compare_digest(hmac.digest(key, place, "sha256").hex(), signature)


def _place(folder: Path, started: object) -> bytes:
    try:
        return json.dumps(["recording", folder.stat().st_ino, repr(started)]).encode()
    except (OSError, ValueError):
        return b""


def key_file() -> Path:
    """The path of the key."""
    base = os.environ.get("XDG_CONFIG_HOME")
    chosen = Path(base) if base and os.path.isabs(base) else Path.home() / ".config"
    return chosen / "ptdebug" / "recordings.key"


def _signed(command: Sequence[str], folder: str) -> bytes:
    return json.dumps(["program", list(command), folder, _script_digest(command, folder)]).encode()


def _script_digest(command: Sequence[str], folder: str) -> str:
    """The hash of the file that a command starts; "" for `-m MODULE` and `-c COMMAND`, which contain the program."""
    if not command or command[0] in ("-m", "-c"):
        return ""
    path = Path(folder, command[0])
    try:
        if path.is_dir():
            path /= "__main__.py"
        if path.is_file() and path.stat().st_size <= _MAX_SCRIPT:
            return hashlib.sha256(path.read_bytes()).hexdigest()
    except (OSError, ValueError):
        pass
    return "no file"


def _key(make: bool) -> bytes | None:
    """The user's key, created if `make` and it is missing. A key that others can read or write does not count."""
    try:
        path = key_file()
        if make and not path.exists():
            _make_key(path)
        file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        try:
            facts = os.fstat(file)
            if not stat.S_ISREG(facts.st_mode) or facts.st_mode & 0o077 or facts.st_uid != os.getuid():
                return None
            key = os.read(file, KEY_BYTES)
            return key if len(key) == KEY_BYTES else None
        finally:
            os.close(file)
    except (OSError, RuntimeError, AttributeError):  # no writable home folder; no users (Windows)
        return None


def _make_key(path: Path) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    unfinished = path.with_name(f".{path.name}-{os.getpid()}-{secrets.token_hex(4)}")
    file = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        os.write(file, secrets.token_bytes(KEY_BYTES))
    finally:
        os.close(file)
    with suppress(FileExistsError):  # another process was faster
        os.link(unfinished, path)
    os.unlink(unfinished)
