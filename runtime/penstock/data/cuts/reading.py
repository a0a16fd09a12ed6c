"""The cut that leaves reading to the training pod: data workers make the rest of each batch.

A data worker asks for the bytes of a file in the moment when its dataset opens it, and has them
from the program's process, which reads it where the program would have: so it is the same code that
runs, on the same bytes, and every batch is the same. What is sent back is a whole batch.
"""

from __future__ import annotations

import builtins
import io
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from penstock.data.clocks import ThreadClock
from penstock.data.errors import NotCutError, NotPortableError
from penstock.data.pipeline import Pipeline
from penstock.data.transport.batch_codec import pack
from penstock.throughput.decision.cut_choice import Reading

MOST_FOLDERS: Final = 64
_WATCHING: Final = threading.Lock()
_NOT_DATA: Final = ("/proc/", "/sys/", "/dev/")
_CODE: Final = (".py", ".pyc", ".so")


@dataclass(frozen=True)
class ReadLocalPipeline(Pipeline):
    """Makes batches of files of the program's machine.

    ``roots``: folders that are read there. ``folder``: the program's own, for relative paths.
    """

    roots: tuple[str, ...] = ()
    folder: str = ""


def read_local(pipeline: Pipeline, roots: tuple[str, ...]) -> ReadLocalPipeline:
    """A pipeline that reads there and computes where it is made."""
    return ReadLocalPipeline(
        pipeline.dataset,
        pipeline.collate,
        pipeline.stages,
        pipeline.batched,
        pipeline.prepare,
        pipeline.batch_stage,
        pipeline.watched,
        roots=roots,
        folder=str(Path.cwd()),
    )


def survey_reading(pipeline: Pipeline, seed: int, indices: Any) -> tuple[Reading, tuple[str, ...]]:
    """What reading a batch costs here, and the folders of its files; makes it once.

    Raises:
        NotCutError: it opens no file, or what it gives cannot be sent.
        Exception: whatever the user's code raises.
    """
    clock = ThreadClock()
    try:
        with _opened() as paths:
            before = clock.read()
            batch = pipeline.make(seed, indices)
            after = clock.read()
    finally:
        clock.close()
    roots = folders_of(paths)
    if not roots:
        raise NotCutError("its dataset opens no file by Python's open")
    if not all(_stays_in(path, roots) for path in paths):
        raise NotCutError("its files are links to other folders")
    try:
        batch_bytes = pack(batch).size
    except NotPortableError as error:
        raise NotCutError(str(error)) from error
    wall, cpu = after.wall - before.wall, after.cpu - before.cpu
    blocked = max(0.0, wall - cpu - (after.queued - before.queued))
    return Reading(blocked, cpu, _bytes_of(paths), batch_bytes), roots


def folders_of(paths: list[str]) -> tuple[str, ...]:
    """What the files are in: one folder above all of them, or else their own."""
    parents = sorted({os.path.dirname(path) for path in paths})  # noqa: PTH120 - links stay
    if not parents:
        return ()
    above = os.path.commonpath(parents)
    if above != "/":
        return (above,)
    return tuple(parent for parent in parents if parent != "/")[:MOST_FOLDERS]


def _stays_in(path: str, roots: tuple[str, ...]) -> bool:
    real = Path(path).resolve()
    return any(real.is_relative_to(Path(root).resolve()) for root in roots)


def _bytes_of(paths: list[str]) -> float:
    found = 0
    for path in paths:
        try:
            found += os.stat(path).st_size  # noqa: PTH116  # bytes or text, as opened
        except OSError:
            continue  # it was there a moment ago
    return float(found)


@contextmanager
def _opened() -> Iterator[list[str]]:
    """The data files that this thread opens for reading by Python's ``open``.

    One thread at a time: who put ``open`` back in another order would leave a watched one behind.
    """
    with _WATCHING:
        yield from _watched()


def _watched() -> Iterator[list[str]]:
    paths: list[str] = []
    plain, watched = builtins.open, threading.get_ident()

    def open(file: Any, mode: str = "r", *more: Any, **named: Any) -> Any:  # noqa: A001  # in its place
        if threading.get_ident() == watched and not set(mode) & set("wax+"):
            _note(paths, file)
        return plain(file, mode, *more, **named)

    builtins.open = io.open = open
    try:
        yield paths
    finally:
        watched = 0
        if builtins.open is open:  # else another has been put on top of it meanwhile, as a cache's
            builtins.open = io.open = plain


def _note(paths: list[str], file: Any) -> None:
    if isinstance(file, str | bytes | os.PathLike):
        path = os.path.abspath(os.fsdecode(file))  # noqa: PTH100 - links are not followed
        if not path.startswith(_NOT_DATA) and not path.endswith(_CODE):
            paths.append(path)
