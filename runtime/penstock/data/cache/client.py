"""A program's side of the node's cache: ask for an open file, and get its bytes or a no.

Whatever goes wrong the answer is no, and the program reads the file as ever: the daemon is away, is
silent for `ANSWER_SECONDS`, speaks another version. It is then left alone for a while, so that one
that hangs costs a moment now and then and not one for every file. One line of the log says so.
"""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import sys
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

from penstock.data.cache import messages
from penstock.data.cache.connections import Connections
from penstock.data.cache.policy import Key, key_of
from penstock.data.cache.program.mapped import MappedPath
from penstock.data.cache.program.ranges import Wanted
from penstock.data.cache.program.times import ProcessTimes, job_name
from penstock.data.cache.timeouts import ANSWER_SECONDS, announced_seconds
from penstock.data.errors import FrameError
from penstock.data.transport import frame

logger = logging.getLogger(__name__)

PAUSES: Final = (1.0, 2.0, 5.0, 10.0, 30.0)
"""For how long a daemon that failed is left alone."""
NOTE_SECONDS: Final = 0.2
WINDOW_BYTES: Final = 128 << 10
"""So much is copied of a range at a time: whoever reads on needs it, and others lose little."""
SOURCES: Final = ("memory", "storage")


class Answer(NamedTuple):
    """What the cache says of a file."""

    content: bytes | memoryview | None = None
    drop: bool = False  # have the pages dropped that reading it oneself fills
    start: int = 0  # where the content begins in the file


class CacheError(Exception):
    """The cache does not do what it was told; says why."""


NOTHING: Final = Answer()


class CacheClient:
    """See the module's docstring. Any thread may use it, and children that are forked."""

    def __init__(
        self,
        place: str,
        clock: Callable[[], float] = time.monotonic,
        answer_seconds: float = ANSWER_SECONDS,
    ) -> None:
        """``place``: the daemon's socket, a path, or ``@NAME`` for one without a file.

        ``answer_seconds``: for how long a daemon may be silent.
        """
        self._place = place
        self._answer_seconds = answer_seconds
        self._clock = clock
        self._connections = Connections(place, answer_seconds)
        self._lock = threading.Lock()
        self._failures = 0
        self._until = 0.0  # when it may be asked again
        self._said = False
        self._notes: dict[str, dict[str, float]] = {}
        self._noted = clock()
        self._times = ProcessTimes(clock)
        self._job = job_name()
        self.losses = 0  # of daemons: what one has granted, another has not
        self._mapped: dict[str, MappedPath | None] = {}  # None: the daemon does not grant it
        _begin_in_children(weakref.WeakMethod(self._begin_in_child))

    def _begin_in_child(self) -> None:
        self._lock = threading.Lock()
        self._connections.begin()
        self._notes = {}
        self._times.begin()
        if "multiprocessing.util" in sys.modules:  # its processes end without atexit
            from multiprocessing.util import Finalize

            Finalize(None, self.send_notes, exitpriority=10)

    @property
    def away(self) -> bool:
        """Whether the daemon is left alone for now."""
        return self._clock() < self._until

    def fetch(self, descriptor: int, path: str, file: str, wanted: Wanted | None = None) -> Answer:
        """Ask for an open file, which is called so below a path of the cache.

        ``wanted``: what is read next of one that is kept in ranges; None: all of it.
        """
        now = self._clock()
        if now < self._until:
            return NOTHING
        if now - self._noted > NOTE_SECONDS:
            self.send_notes()
        begun = time.perf_counter()
        key = key_of(os.fstat(descriptor), wanted.number if wanted else 0)
        mapped = self._mapped_path(path)
        if mapped is not None:
            at = wanted.at - key.start if wanted else 0
            most = max(wanted.size, WINDOW_BYTES) if wanted else None
            content = self._mapped_content(path, mapped, key, at, most)
            if content is not None:
                size, hits = len(content), int(wanted.first) if wanted else 1
                self.note_times("memory", path, size, begun, hits=hits, hit_bytes=size)
                return Answer(content, start=key.start + at)
        which = [messages.written(file), key.number, wanted is not None and wanted.little]
        found, source = self._ask(descriptor, path, which, key)
        if found.content is None:
            return found
        self.note_times(source, path, len(found.content), begun)
        return found._replace(start=key.start)

    def in_ranges(self, path: str, size: int) -> bool:
        """Whether a file of that size is kept in ranges, below a path of the cache."""
        mapped = None if self.away else self._mapped_path(path)
        return mapped is not None and size > mapped.largest

    def _mapped_content(
        self, path: str, mapped: MappedPath, key: Key, at: int, size: int | None
    ) -> bytes | None:
        content = mapped.read(key, at, size)
        if content is None and (part := mapped.lacks(key)) is not None:
            self._map_part(path, mapped, part)
            content = mapped.read(key, at, size)
        return content

    def note_storage(self, path: str, size: int, begun: float, *, of_range: bool = False) -> None:
        """A program has read so much of a file itself, since that time of ``perf_counter``."""
        self.note_times("storage", path, size, begun)
        if of_range:  # the daemon knows how large a file is, and not how much of a range was read
            self._note(path, miss_bytes=size)

    def note_times(self, source: str, path: str, size: int, begun: float, **more: int) -> None:
        """Bytes of a path came from somewhere; ``begun`` then, by `time.perf_counter`."""
        micro = (time.perf_counter() - begun) * 1e6
        self._note(path, **{f"{source}_bytes": size, f"{source}_us": micro}, **more)

    def _mapped_path(self, path: str) -> MappedPath | None:
        """What the daemon has granted of a path; asked for once, and when that is out of use."""
        if path in self._mapped:
            found = self._mapped[path]
            if found is None or found.in_use:
                return found
        self._mapped[path] = None
        try:
            granted = self._enter(path, None)
            if granted is not None:
                self._mapped[path] = MappedPath(*granted)
        except (OSError, ValueError) as error:
            self._note_failure(error)
        return self._mapped.get(path)

    def _map_part(self, path: str, mapped: MappedPath, part: int) -> None:
        """Have a part of the arena as well, if the daemon still has it."""
        try:
            granted = self._enter(path, part)
            if granted is not None:
                mapped.add(part, granted[0])
        except (OSError, ValueError) as error:
            self._note_failure(error)

    def _enter(self, path: str, part: int | None) -> tuple[int, int] | None:
        """Show a path's folder: a descriptor of its index, or of a part; None: it is not granted.

        With it come the bytes of the largest file that is kept as a whole.

        Raises:
            OSError: the daemon is of no use.
        """
        try:
            folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError:
            return None
        sock = None
        given: Sequence[int] = ()
        try:
            sock = self._connections.take()
            header = [messages.CACHE_PROTOCOL_VERSION, path, part]
            frame.send(sock, messages.ENTER, header, (), (folder,))
            answer = frame.receive(sock, messages.no_body, messages.MAX_HEADER_BYTES)
            given = answer.descriptors
            values = messages.fields(answer.kind, answer.header)
        except (FrameError, TimeoutError, OSError, ValueError) as error:
            _close(given)
            if sock is not None:
                sock.close()
            raise OSError(str(error)) from error
        finally:
            os.close(folder)
        self._connections.give_back(sock)
        if answer.kind == messages.GRANTED and len(given) == 1:
            return given[0], values[0]
        _close(given)
        return None

    def _ask(self, descriptor: int, path: str, which: list[Any], key: Key) -> tuple[Answer, str]:
        """What the daemon says of a file, and where it has that from: memory or storage.

        ``which``: file, range, and whether little of it is read.
        """
        source = "memory"

        def room(size: int) -> memoryview:
            now = key_of(os.fstat(descriptor), key.number).length  # it may just have grown
            if size not in (key.length, now):
                raise FrameError(f"{size} bytes where {key.length} were asked for")
            return _fresh(size)

        try:
            sock = self._connections.take()
        except OSError as error:
            self._note_failure(error)
            return NOTHING, source
        try:
            header = [messages.CACHE_PROTOCOL_VERSION, path, *which]
            frame.send(sock, messages.ASK, header, (), (descriptor,))
            answer = frame.receive(sock, room, messages.MAX_HEADER_BYTES)
            if answer.kind == messages.READING:
                source = "storage"
                answer = self._announced(sock, key.length, room)
            found = _answer(answer)
        except CacheError as error:
            sock.close()
            self._note_failure(error, PAUSES[-1])
            return NOTHING, source
        except (FrameError, TimeoutError, OSError) as error:
            sock.close()
            self._note_failure(error)
            return NOTHING, source
        self._failures = 0
        self._connections.give_back(sock)
        return found, source

    def _announced(self, sock: socket.socket, size: int, room: frame.Allocate) -> frame.Frame:
        """What comes after the daemon has announced that a file of that size takes longer.

        Raises:
            FrameError, TimeoutError: nothing does, in time.
        """
        in_time = max(self._answer_seconds, announced_seconds(size))
        for _ in range(messages.MOST_READINGS):
            frame.set_timeouts(sock, in_time)
            deadline = time.monotonic() + in_time
            answer = frame.receive(sock, room, messages.MAX_HEADER_BYTES, deadline)
            if answer.kind != messages.READING:
                break
        frame.set_timeouts(sock, self._answer_seconds)
        return answer

    def exchange(
        self, kind: int, header: list[Any], descriptor: int, content: bytes = b""
    ) -> frame.Frame | None:
        """The answer to a message about an open file; None: the daemon is of no use."""
        if self._clock() - self._noted > NOTE_SECONDS:
            self.send_notes()
        sock = None
        try:
            sock = self._connections.take()
            frame.send(sock, kind, header, (), (descriptor,))
            answer = frame.receive(sock, _fresh, messages.MAX_HEADER_BYTES)
            if answer.kind == messages.READING:
                frame.send(sock, messages.CONTENT, [len(content), None], [content])
                answer = frame.receive(sock, _fresh, messages.MAX_HEADER_BYTES)
            if answer.kind == messages.PLACE:
                messages.fields(answer.kind, answer.header)
            else:
                _answer(answer)
        except (CacheError, FrameError, TimeoutError, OSError) as error:
            if sock is not None:
                sock.close()
            self._note_failure(error, PAUSES[-1] if isinstance(error, CacheError) else None)
            return None
        self._failures = 0
        self._connections.give_back(sock)
        return answer

    def note_unseen(self, path: str) -> None:
        """A file below a path was opened in a way that this cache has no part in."""
        self._note(path, unseen=1)
        if self._clock() - self._noted > NOTE_SECONDS:
            self.send_notes()

    def _note(self, path: str, **more: float) -> None:
        with self._lock:
            counts = self._notes.setdefault(path, {})
            for name, number in more.items():
                counts[name] = counts.get(name, 0) + number

    def send_notes(self) -> None:
        """Tell the daemon what it did not see, if it is there."""
        with self._lock:
            counted, self._notes = self._notes, {}
        self._noted = self._clock()
        if not counted or self.away:
            return
        fetching = sum(one.get(f"{each}_us", 0) for one in counted.values() for each in SOURCES)
        times = self._times.take(fetching * 1e-6)
        notes = {
            path: {name: int(number) for name, number in {**one, **times}.items()}
            for path, one in counted.items()
        }
        sock = None
        try:
            sock = self._connections.take()
            header = [messages.CACHE_PROTOCOL_VERSION, notes, self._job]
            frame.send(sock, messages.NOTE, header)
        except (FrameError, OSError):  # counts are lost, which nobody has to be told
            if sock is not None:
                sock.close()
            self._leave_alone(PAUSES[0])
            return
        self._connections.give_back(sock)

    def command(self, kind: int, *values: Any) -> Any:
        """Have the daemon do STAT or DROP; its report.

        Raises:
            CacheError: it is not there, or refuses.
        """
        try:
            sock = self._connections.connect()
        except OSError as error:
            raise CacheError(f"no cache at {self._place}: {error.strerror or error}") from error
        with contextlib.closing(sock):
            frame.set_timeouts(sock, 10 * self._answer_seconds)
            try:
                frame.send(sock, kind, [messages.CACHE_PROTOCOL_VERSION, *values])
                answer = frame.receive(sock, messages.no_body)
            except (FrameError, TimeoutError) as error:
                raise CacheError(f"the cache at {self._place}: {error}") from error
        if answer.kind != messages.STAT or not _is_report(answer.header):
            said = str(answer.header)
            raise CacheError(f"the cache at {self._place} refuses: {said:.200}")
        return answer.header

    def _leave_alone(self, seconds: float) -> None:
        self._connections.close()
        with self._lock:
            self._mapped = {}  # else its memory would outlive it
            self.losses += 1
            self._until = self._clock() + seconds

    def _note_failure(self, why: Exception, pause: float | None = None) -> None:
        self._leave_alone(pause or PAUSES[min(self._failures, len(PAUSES) - 1)])
        self._failures += 1
        said, self._said = self._said, True
        if not said:
            logger.warning(
                "the cache at %s is of no use now, files are read as without it: %s",
                self._place,
                why,
            )


def _begin_in_children(begin: weakref.WeakMethod[Callable[[], None]]) -> None:
    """Have a client begin anew in forks. What is registered stays for ever: the client must not."""

    def after() -> None:
        if (there := begin()) is not None:
            there()

    os.register_at_fork(after_in_child=after)


def _is_report(header: Any) -> bool:
    return isinstance(header, dict) and all(isinstance(one, dict) for one in header.values())


def _close(descriptors: Sequence[int]) -> None:
    for descriptor in descriptors:
        os.close(descriptor)


def _fresh(size: int) -> memoryview:
    return memoryview(bytearray(size))


def _answer(answer: frame.Frame) -> Answer:
    values = messages.fields(answer.kind, answer.header)
    if answer.kind == messages.CONTENT:
        if len(answer.body) != values[0]:
            raise FrameError(f"{len(answer.body)} bytes of a file of {values[0]}")
        return Answer(answer.body)
    if answer.kind == messages.OWN:
        return Answer(None, bool(values[0]))
    raise CacheError(str(values[0]) if values else f"a message of kind {answer.kind}")
