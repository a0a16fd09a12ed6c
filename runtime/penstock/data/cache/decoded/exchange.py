"""What functions made of files, as a program asks the daemon for it and has it kept."""

from __future__ import annotations

import time
import zlib
from collections.abc import Callable
from typing import Any, Protocol

from penstock.data.cache import messages
from penstock.data.cache.program.mapped_results import MappedResults
from penstock.data.transport import frame


class Client(Protocol):
    """The connection to a daemon (`penstock.data.cache.client`)."""

    losses: int
    """Of daemons so far."""

    @property
    def away(self) -> bool:
        """Whether the daemon is left alone for now."""

    def exchange(
        self, kind: int, header: list[Any], descriptor: int, content: bytes = b""
    ) -> frame.Frame | None:
        """The answer to a message about an open file; None: the daemon is of no use."""

    def note_times(self, source: str, path: str, size: int, begun: float) -> None:
        """Bytes of a path came from somewhere; ``begun`` then, by `time.perf_counter`."""


class ResultExchange:
    """Over the one client of a process; what is mapped goes with the daemon that it is of."""

    def __init__(self, client: Callable[[], Client]) -> None:
        self._client = client
        self._mapped, self._losses = MappedResults(), 0

    def ask(self, descriptor: int, path: str, digest: bytes) -> tuple[bytearray | None, bool]:
        """What a function made of an open file, in memory of the caller's own; and whether to keep
        what it makes otherwise."""
        client = self._client()
        if client.away:
            return None, False
        if client.losses != self._losses:
            self._mapped, self._losses = MappedResults(), client.losses
        begun = time.perf_counter()
        header = [messages.CACHE_PROTOCOL_VERSION, path, digest, self._mapped.parts]
        answer = client.exchange(messages.DECODED, header, descriptor)
        if answer is None or answer.kind == messages.OWN:
            return None, answer is not None
        content = self._mapped.content(answer)
        if content is None:  # it was given up meanwhile, and its place used again
            return None, False
        client.note_times("memory", path, len(content), begun)
        return content, True

    def keep(self, descriptor: int, path: str, digest: bytes, content: bytes) -> None:
        """Have kept what a function made of an open file, if there is room."""
        client = self._client()
        if client.away or not content:
            return
        size, crc = len(content), zlib.crc32(content)
        header = [messages.CACHE_PROTOCOL_VERSION, path, digest, size, crc]
        client.exchange(messages.KEEP, header, descriptor, content)
