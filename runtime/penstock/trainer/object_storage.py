"""Copies of a session's checkpoints in object storage, behind those on disk.

With ``PENSTOCK_CHECKPOINT_URL`` (``s3://BUCKET/FOLDER``, ``gs://...``, whatever fsspec knows) each
checkpoint that is on disk is copied there by a thread of its own; the newest that waits is copied
next. The copy is the same file, whose last bytes are a checksum: one that was torn is found when it
is read. A session that begins, and finds a newer checkpoint there than on disk, fetches it first.

Storage that refuses, fails or hangs ends no training: what it said is named once, and tried again
with growing pauses. Only where the trained model is not there some minutes after the end is there
an error, as with a disk.
"""

from __future__ import annotations

import logging
import os
import re
import threading
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar

from penstock.crds import environment as names
from penstock.job import atomic_file
from penstock.job.storage import LAST_SECONDS, RETRY_SECONDS, Backoff, cause

logger = logging.getLogger(__name__)

ASK_SECONDS: Final = 30.0
"""How long the storage gets to say what it has, when a session begins."""
_NOUN: Final = "step"

_Answer = TypeVar("_Answer")


class ObjectStorage:
    """A folder of object storage; used by a checkpoint's writer and by a session that begins."""

    def __init__(
        self,
        url: str,
        keep: int = 3,
        retry_seconds: Sequence[float] = RETRY_SECONDS,
        copy_seconds: float = LAST_SECONDS,
    ) -> None:
        """Nothing is asked yet.

        Args:
            url: of the folder.
            keep: how many checkpoints stay there.
            retry_seconds: pauses after failures.
            copy_seconds: how long one copy may take before it is said to hang.
        """
        self.url = url
        self._shown = _without_secrets(url)
        self._keep = keep
        self._retry_seconds = retry_seconds
        self._copy_seconds = copy_seconds
        self._changed = threading.Condition()
        self._waiting: Path | None = None
        self._began: float | None = None
        self._failure = ""
        self._thread: threading.Thread | None = None
        self._opened: tuple[Any, str] | None = None

    @classmethod
    def of_process(cls, keep: int, environ: Mapping[str, str] = os.environ) -> ObjectStorage | None:
        """The one that the environment names."""
        url = environ.get(names.CHECKPOINT_URL, "")
        return cls(url, keep) if url else None

    # ------------------------------------------------------------------ copies to it

    def copy(self, path: Path) -> None:
        """Have a checkpoint copied; it takes the place of what waits."""
        with self._changed:
            self._waiting = path
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._copy_all, name="penstock-object-storage", daemon=True
                )
                self._thread.start()
            self._changed.notify_all()

    @property
    def trouble(self) -> str:
        """Why checkpoints are not copied at present; empty: nothing is known to fail."""
        with self._changed:
            if self._failure:
                return self._said(self._failure)
            late = self._began is not None and time.monotonic() - self._began > self._copy_seconds
            return self._said(f"no answer within {self._copy_seconds:.0f} s") if late else ""

    @property
    def is_idle(self) -> bool:
        """Whether all is there that was to be copied."""
        with self._changed:
            return self._waiting is None and self._began is None

    def forget(self) -> None:
        """Copy nothing more of what waits."""
        with self._changed:
            self._waiting, self._failure = None, ""
            self._changed.notify_all()

    def _copy_all(self) -> None:
        backoff = Backoff(self._retry_seconds)
        while (path := self._take()) is not None:
            why = ""
            try:
                self._put(path)
            except FileNotFoundError as error:
                # Of older ones only the newest stay on disk: what is gone is not missed.
                why = "" if not path.exists() else cause(error)
            except Exception as error:  # noqa: BLE001  (each storage has errors of its own)
                why = cause(error)
            with self._changed:
                self._began = None
                if why:
                    backoff.failed()
                    if not self._failure:
                        logger.warning("%s", self._said(why))
                    self._failure = why
                    pause = backoff.pause
                    self._changed.wait_for(lambda taken=path: self._waiting is not taken, pause)  # type: ignore[misc]  # a default
                else:
                    if self._failure:
                        logger.info("checkpoints are copied to %s again", self._shown)
                    backoff.succeeded()
                    self._failure = ""
                    if self._waiting is path:
                        self._waiting = None
                self._changed.notify_all()

    def _take(self) -> Path | None:
        with self._changed:
            if self._waiting is None:
                self._thread = None
                return None
            self._began = time.monotonic()
            return self._waiting

    def _put(self, path: Path) -> None:
        storage, folder = self._open()
        storage.makedirs(folder, exist_ok=True)
        storage.put_file(str(path), f"{folder}/{path.name}")
        number = atomic_file.number_of(_NOUN, path.name)
        for step, name in self._list()[self._keep :]:
            if number is not None and step < number:  # what has seen more is another training's
                storage.rm_file(name)

    def _said(self, why: str) -> str:
        return (
            f"no checkpoint is copied to {self._shown}: {self._hidden(why)}; see to the "
            "URL, its credentials and what they allow: it is tried again, and the checkpoints on "
            "disk stay"
        )

    def _hidden(self, why: str) -> str:
        """Errors of storage often repeat the URL."""
        return why.replace(self.url, self._shown)

    # ------------------------------------------------------------------ taken from it

    def newest_step(self) -> int | None:
        """The step of the newest checkpoint there; None: none, or what is wrong is in the log."""
        found = self._ask(self._list, ASK_SECONDS)
        return found[0][0] if found else None

    def fetch(self, step: int, path: Path) -> bool:
        """Copy the checkpoint of a step to a path; whether that was done, else the log says why."""
        return bool(self._ask(lambda: self._get(step, path), self._copy_seconds))

    def _get(self, step: int, path: Path) -> bool:
        storage, folder = self._open()
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex}.tmp")
        try:
            storage.get_file(f"{folder}/{atomic_file.file_name(_NOUN, step)}", str(temporary))
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)
        return True

    def _ask(self, question: Callable[[], _Answer], seconds: float) -> _Answer | None:
        """An answer in time; what keeps it from coming is a line of the log."""
        answers: list[_Answer] = []
        problems: list[str] = []

        def ask() -> None:
            try:
                answers.append(question())
            except Exception as error:  # noqa: BLE001  (each storage has errors of its own)
                problems.append(cause(error))

        thread = threading.Thread(target=ask, name="penstock-object-storage-ask", daemon=True)
        thread.start()
        thread.join(seconds)
        if answers:
            return answers[0]
        why = problems[0] if problems else f"no answer within {seconds:.0f} s"
        logger.warning(
            "no checkpoint is taken from %s: %s; the training begins with what is on disk",
            self._shown,
            self._hidden(why),
        )
        return None

    def _list(self) -> list[tuple[int, str]]:
        """Steps and names of the checkpoints there, newest first."""
        storage, folder = self._open()
        storage.invalidate_cache(folder)
        try:
            files = storage.ls(folder, detail=False)
        except FileNotFoundError:
            return []
        found = []
        for name in map(str, files):
            step = atomic_file.number_of(_NOUN, name.rsplit("/", 1)[-1])
            if step is not None:
                found.append((step, name))
        return sorted(found, reverse=True)

    def _open(self) -> tuple[Any, str]:
        if self._opened is None:
            try:
                import fsspec  # type: ignore[import-untyped]  # has no types
            except ImportError as error:
                raise RuntimeError(
                    "fsspec is not installed: pip install 'penstock[fsspec]', and what fsspec needs"
                    " for this storage"
                ) from error
            storage, folder = fsspec.core.url_to_fs(self.url)
            self._opened = storage, str(folder).rstrip("/")
        return self._opened


def _without_secrets(url: str) -> str:
    """A URL as logs and a job's status may show it: no user, password or query."""
    plain = url.partition("?")[0]
    return re.sub(r"://[^/]*@", "://***@", plain)
