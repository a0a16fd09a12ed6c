"""Container logs as ``kubectl logs`` asks for them: tail, since, previous, follow.

Read from the files that the shim writes (see :mod:`shim.logfile`), the rotated one first. Following
ends when the container that was running has ended and everything it wrote has been sent.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from penstock_cluster.registry import LogQuery
from penstock_cluster.registry.model import errors

Json = Mapping[str, Any]

_POLL_SECONDS = 0.1
_CHUNK_BYTES = 256 * 1024


def log_files(folder: Path) -> list[Path]:
    """The logs of a container's runs, oldest first."""
    if not folder.is_dir():
        return []
    return sorted(
        (path for path in folder.iterdir() if path.suffix == ".log"),
        key=lambda path: int(path.stem),
    )


def remove_old_logs(folder: Path, keep: int) -> None:
    """Keep the logs of the newest runs only."""
    for path in log_files(folder)[:-keep]:
        path.unlink(missing_ok=True)
        path.with_name(f"{path.name}.1").unlink(missing_ok=True)


async def read_log(
    folder: Path,
    pod: Json,
    query: LogQuery,
    now: datetime,
    is_running: Callable[[Path], bool],
) -> AsyncIterator[bytes]:
    """The log of one container in pieces; raises ApiError 400 where there is none (yet)."""
    name = pod["metadata"]["name"]
    files = await asyncio.to_thread(log_files, folder)
    if query.previous:
        if len(files) < 2 and not (files and _has_ended_before(pod, query.container)):
            raise errors.bad_request(
                f'previous terminated container "{query.container}" in pod "{name}" not found'
            )
        chosen = files[-2] if len(files) > 1 else files[-1]
    elif not files:
        raise errors.bad_request(
            f'container "{query.container}" in pod "{name}" is waiting to start: '
            f"{_waiting_reason(pod, query.container)}"
        )
    else:
        chosen = files[-1]
    since = _since(query, now)
    budget = _Budget(query.limit_bytes)
    shape = _Shape(query.timestamps)
    lines, offset, inode = await asyncio.to_thread(_present, chosen, since, query.tail_lines)
    for piece in _pieces(lines, shape):
        yield budget.cut(piece)
        if budget.is_spent:
            return
    if not query.follow or query.previous:
        return
    rest = b""
    while True:
        # Asked before reading: what was written until the end is then read in this round.
        alive = is_running(chosen)
        data, offset, inode = await asyncio.to_thread(_new_data, chosen, offset, inode)
        *complete, rest = (rest + data).split(b"\n")
        for piece in _pieces([line for line in complete if _is_since(line, since)], shape):
            yield budget.cut(piece)
            if budget.is_spent:
                return
        if not data:
            if not alive:
                return
            await asyncio.sleep(_POLL_SECONDS)


class _Budget:
    """Counts down ``limitBytes``."""

    def __init__(self, limit_bytes: int | None) -> None:
        self._left = limit_bytes

    def cut(self, piece: bytes) -> bytes:
        if self._left is None:
            return piece
        piece = piece[: self._left]
        self._left -= len(piece)
        return piece

    @property
    def is_spent(self) -> bool:
        return self._left is not None and self._left <= 0


class _Shape:
    """Turns stamped lines into what the client sees; parts of a line are joined."""

    def __init__(self, timestamps: bool) -> None:
        self._timestamps = timestamps
        self._in_line = False

    def show(self, line: bytes) -> bytes:
        stamp, _, rest = line.partition(b" ")
        _, _, rest = rest.partition(b" ")
        tag, _, text = rest.partition(b" ")
        prefix = stamp + b" " if self._timestamps and not self._in_line else b""
        self._in_line = tag == b"P"
        return prefix + text + (b"" if self._in_line else b"\n")


def _pieces(lines: list[bytes], shape: _Shape) -> Iterator[bytes]:
    piece = bytearray()
    for line in lines:
        piece += shape.show(line)
        if len(piece) > _CHUNK_BYTES:
            yield bytes(piece)
            piece.clear()
    if piece:
        yield bytes(piece)


def _present(path: Path, since: str, tail_lines: int | None) -> tuple[list[bytes], int, int]:
    """The complete lines that are there, and where they end: offset and inode."""
    lines: deque[bytes] = deque(maxlen=tail_lines)
    rotated = path.with_name(f"{path.name}.1")
    if rotated.exists():
        lines.extend(_lines(rotated.read_bytes(), since))
    with path.open("rb") as file:
        inode = path.stat().st_ino
        data = file.read()
    end = data.rfind(b"\n") + 1
    lines.extend(_lines(data[:end], since))
    return list(lines), end, inode


def _lines(data: bytes, since: str) -> Iterator[bytes]:
    """The lines from a moment on. A carriage return is no line end but a part of the text."""
    for line in data.removesuffix(b"\n").split(b"\n") if data else ():
        if _is_since(line, since):
            yield line


def _new_data(path: Path, offset: int, inode: int) -> tuple[bytes, int, int]:
    """What was written after ``offset``; after a rotation, the end of the old file first."""
    try:
        with path.open("rb") as file:
            current = path.stat().st_ino
            if current != inode:
                with path.with_name(f"{path.name}.1").open("rb") as old:
                    old.seek(offset)
                    tail = old.read()
                return (tail, 0, current)
            file.seek(offset)
            data = file.read(_CHUNK_BYTES)
    except FileNotFoundError:
        return b"", offset, inode
    return data, offset + len(data), inode


def _since(query: LogQuery, now: datetime) -> str:
    """The earliest stamp asked for, as text that compares with stamps."""
    if query.since_seconds is not None:
        moment = now - timedelta(seconds=query.since_seconds)
    elif query.since_time:
        moment = datetime.fromisoformat(query.since_time)
    else:
        return ""
    return moment.strftime("%Y-%m-%dT%H:%M:%S.%f")


def _is_since(line: bytes, since: str) -> bool:
    return not since or line[: len(since)].decode("ascii", "replace") >= since


def _statuses(pod: Json) -> Iterator[Json]:
    status = pod.get("status") or {}
    for kind in ("initContainerStatuses", "containerStatuses"):
        yield from status.get(kind) or ()


def _waiting_reason(pod: Json, container: str) -> str:
    for status in _statuses(pod):
        if status["name"] == container:
            reason = ((status.get("state") or {}).get("waiting") or {}).get("reason")
            return str(reason or "ContainerCreating")
    return "ContainerCreating"


def _has_ended_before(pod: Json, container: str) -> bool:
    """The last run has ended and waits for its next try: it is the previous one."""
    return any(
        status["name"] == container
        and "waiting" in (status.get("state") or {})
        and (status.get("lastState") or {})
        for status in _statuses(pod)
    )
