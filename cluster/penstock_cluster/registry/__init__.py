"""A Kubernetes API in process: storage, watches, validation and the kinds as data.

>>> async with Engine() as engine:
...     api = engine.api("system:kube-scheduler", manager="binder")
...     nodes = await api.list("nodes")

See :mod:`penstock_cluster.apiserver` for the same over HTTP.
"""

from __future__ import annotations

from penstock_cluster.registry.api import Api, ObjectList, Watch
from penstock_cluster.registry.engine import Engine, EngineOptions
from penstock_cluster.registry.hooks import Interceptor, LogQuery, LogSource, RequestFacts
from penstock_cluster.registry.model import errors
from penstock_cluster.registry.model.documents import thaw
from penstock_cluster.registry.model.errors import ApiError
from penstock_cluster.registry.objects.watch import WatchEvent

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
