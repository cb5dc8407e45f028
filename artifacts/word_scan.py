"""Which records of a recording hold a word, found without decoding them, on all processors."""
from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import lru_cache

from .recording import ArtifactInfo, Recording


class WordScan:
    """Looks for a word, whatever its case; each content is read once, however many artifacts have it."""

    def __init__(self, word: str) -> None:
        self.word = word.lower().encode()
        self._begun: dict[bytes, Future[bool]] = {}
        self._known: dict[bytes, bool] = {}
        self._threads = ThreadPoolExecutor(os.cpu_count() or 1)

    def __enter__(self) -> WordScan:
        return self

    def __exit__(self, *exception: object) -> None:
        self._threads.shutdown(cancel_futures=True)

    def begin(self, recording: Recording, infos: Sequence[ArtifactInfo]) -> Callable[[], None]:
        """Begin to look through the contents of artifacts; what is returned waits until that is done."""
        begun = []
        for info in infos if self.word else ():
            if info.hash not in self._known and info.hash not in self._begun:
                self._begun[info.hash] = self._threads.submit(_is_in, recording.content_of(info), self.word)
            begun.append(info.hash)

        def wait() -> None:
            for key in begun:
                if key in self._begun:
                    self._known[key] = self._begun.pop(key).result()

        return wait

    def found(self, info: ArtifactInfo) -> bool:
        """Whether the content of an artifact that was looked through holds the word; without a word, it may."""
        return self._known.get(info.hash, True)


def _is_in(content_of: Callable[[], bytes | None], word: bytes) -> bool:
    return holds(content_of() or b"", word)


def holds(content: bytes, word: bytes) -> bool:
    """Whether `word`, in small letters, is in a content, in any."""
    find = _strcasestr()
    if not word.isascii():
        return word.decode() in content.decode("utf-8", "replace").lower()
    if find is None or b"\0" in content:
        return word in content.lower()
    return find(content, word) is not None


@lru_cache(maxsize=1)
def _strcasestr() -> Callable[[bytes, bytes], int | None] | None:
    """The C library's, which is as fast as `lower` and `in`, but lets other threads run; None where there is none."""
    try:
        found = ctypes.CDLL(None).strcasestr
    except (AttributeError, OSError, TypeError):
        return None
    found.restype, found.argtypes = ctypes.c_void_p, (ctypes.c_char_p, ctypes.c_char_p)
    return found
