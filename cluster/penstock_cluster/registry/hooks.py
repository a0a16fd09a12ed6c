"""What other parts of the cluster plug into the engine: logs of pods, and faults on demand."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from penstock_cluster.registry.model.errors import ApiError, Json
from penstock_cluster.registry.objects.watch import WatchEvent


@dataclass(frozen=True, slots=True)
class LogQuery:
    """What ``GET pods/NAME/log`` asks for."""

    container: str = ""
    follow: bool = False
    previous: bool = False
    tail_lines: int | None = None
    since_seconds: int | None = None
    since_time: str = ""
    timestamps: bool = False
    limit_bytes: int | None = None


class LogSource(Protocol):
    """Reads the logs of pods; whoever runs their processes has one."""

    def read(self, pod: Json, query: LogQuery) -> AsyncIterator[bytes]:
        """The log in pieces; raise :class:`ApiError` (before the first piece) to refuse."""
        ...


@dataclass(frozen=True, slots=True)
class RequestFacts:
    """One HTTP request, as fault injection sees it."""

    method: str
    path: str
    query: Mapping[str, str] = field(default_factory=dict)
    #: get list watch create update patch delete deletecollection; empty outside of resources.
    verb: str = ""
    group: str = ""
    version: str = ""
    resource: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""
    user: str = ""
    user_agent: str = ""


class Interceptor(Protocol):
    """Sees every HTTP request (in-process calls do not pass here)."""

    async def on_request(self, request: RequestFacts) -> ApiError | None:
        """May sleep (a stalled server); an error is answered in place of the request."""
        ...

    def on_watch_event(self, request: RequestFacts, event: WatchEvent) -> bool:
        """Whether this event is sent."""
        ...


class OpenWatch(Protocol):
    """A watch that some client has open over HTTP."""

    @property
    def facts(self) -> RequestFacts:
        """The request that opened it."""
        ...

    def finish(self) -> None:
        """End the stream, without an error."""
        ...
