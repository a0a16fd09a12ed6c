"""The cache that a job's spec asks for, in a process of the job: `use` it once it is known."""

from __future__ import annotations

import hashlib
import logging
import os
import threading
from collections.abc import Mapping

from penstock.base.enums import CacheScope
from penstock.crds import environment as names
from penstock.data.cache import interception, launching
from penstock.data.cache.locations import cache_socket, checked_path
from penstock.data.protocol import CacheOptions

logger = logging.getLogger(__name__)

_lock = threading.Lock()
_used: list[CacheOptions] = []


def use(options: CacheOptions | None, environ: Mapping[str, str] = os.environ) -> None:
    """Read the job's paths through its cache from now on; a second time does nothing.

    With scope Pod the first process of the pod starts the daemon; else the node has one, or files
    are read as ever.
    """
    if options is None:
        return
    with _lock:
        if _used:
            return
        _used.append(options)
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
            if not launching.serves(place, paths):
                launching.start_daemon(place, options.memory_bytes, paths)
        interception.install(place, paths)
        if environ is os.environ:  # for interpreters that this one starts, which run the hook
            os.environ[names.CACHE_SOCKET] = place
            os.environ[names.CACHE_PATHS] = os.pathsep.join(paths)


def pod_socket(environ: Mapping[str, str]) -> str:
    """The socket of a pod's own cache; it has no file, and other pods do not see it."""
    who = "/".join(environ.get(name, "") for name in (names.JOB_UID, names.POD_NAME, names.POD_IP))
    secret = environ.get(names.JOB_TOKEN, "")
    return f"@penstock-cache-{hashlib.sha256(f'{who}/{secret}'.encode()).hexdigest()[:32]}"
