"""A Kubernetes API in process: storage, watches, validation and the kinds as data.

>>> async with Engine() as engine:
...     api = engine.api("system:kube-scheduler", manager="binder")
...     nodes = await api.list("nodes")

See :mod:`penstock.local.apiserver` for the same over HTTP.
"""

from __future__ import annotations

from penstock.local.engine import errors
from penstock.local.engine.api import Api, ObjectList, Watch
from penstock.local.engine.documents import thaw
from penstock.local.engine.engine import Engine, EngineOptions
from penstock.local.engine.errors import ApiError
from penstock.local.engine.hooks import Interceptor, LogQuery, LogSource, RequestFacts
from penstock.local.engine.watch import WatchEvent

__all__ = [
    "Api",
    "ApiError",
    "Engine",
    "EngineOptions",
    "Interceptor",
    "LogQuery",
    "LogSource",
    "ObjectList",
    "RequestFacts",
    "Watch",
    "WatchEvent",
    "errors",
    "thaw",
]
