"""The cache that a job's spec asks for, in a process of the job: `use` it once it is known."""

from __future__ import annotations

import hashlib
import logging
import os
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from penstock.base.enums import CacheScope
from penstock.crds import environment as names
from penstock.data.cache import interception, launching
from penstock.data.cache.locations import cache_socket, checked_path
from penstock.data.protocol import CacheOptions

logger = logging.getLogger(__name__)

START_SECONDS: Final = 5.0
"""For so long a pod's own cache is waited for; meanwhile its process does not report."""
AGAIN_SECONDS: Final = 60.0
"""After so long one that does not come up is tried again."""


@dataclass(slots=True)
class _PodCache:
    """A cache that the processes of a pod keep up."""

    place: str
    memory_bytes: int
    paths: list[str]
    tried_at: float | None = None

    def keep_up(self) -> None:
        """Start it where it is not there: who had started it may have ended, and it with that."""
        if launching.listens(self.place):
            return
        now = time.monotonic()
        if self.tried_at is None or now - self.tried_at > AGAIN_SECONDS:
            self.tried_at = now
            launching.start_daemon(self.place, self.memory_bytes, self.paths, START_SECONDS)


_lock = threading.Lock()
_used: list[_PodCache | None] = []


def use(
    options: CacheOptions | None,
    environ: Mapping[str, str] = os.environ,
    *,
    has_memory: bool = True,
) -> None:
    """Read the job's paths through its cache from now on; afterwards, see that it is still there.

    With scope Pod the first process of the pod starts the daemon; else the node has one, or files
    are read as ever. ``has_memory``: whether this pod was given memory for one of its own, as
    those of data workers are; others do without, since it would be the program's memory.
    """
    if options is None or (options.scope is CacheScope.POD and not has_memory):
        return
    with _lock:
        if _used:
            if (pod := _used[0]) is not None:
                pod.keep_up()
            return
        _used.append(None)
        if interception.installed() is not None:
            return  # the environment has said so already
        try:
            paths = [checked_path(path) for path in options.paths]
        except ValueError as error:
            logger.warning("input.cache.paths: %s; nothing is cached", error)
            return
        place = cache_socket(environ)
        if options.scope is CacheScope.POD:
            place = pod_socket(environ)
            _used[0] = pod = _PodCache(place, options.memory_bytes, paths)
            pod.keep_up()
        interception.install(place, paths, options.form)
        if environ is os.environ:  # for interpreters that this one starts, which run the hook
            os.environ[names.CACHE_SOCKET] = place
            os.environ[names.CACHE_PATHS] = os.pathsep.join(paths)
            os.environ[names.CACHE_FORM] = options.form


def pod_socket(environ: Mapping[str, str]) -> str:
    """The socket of a pod's own cache; it has no file, and other pods do not see it."""
    who = "/".join(environ.get(name, "") for name in (names.JOB_UID, names.POD_NAME, names.POD_IP))
    secret = environ.get(names.JOB_TOKEN, "")
    return f"@penstock-cache-{hashlib.sha256(f'{who}/{secret}'.encode()).hexdigest()[:32]}"
