"""Faults of the API server as clients over HTTP see them: rules on requests and watch events.

A rule chooses requests by verb, resource, namespace, user and user agent, and lasts for a number of
requests, for a time, or until it is cleared. In-process calls (binder, kubelet, engine) never pass
here: the cluster goes on working, its clients have the trouble.
"""

from __future__ import annotations

import asyncio
import fnmatch
import random
import time
from dataclasses import dataclass, field
from enum import StrEnum

from penstock_cluster.registry import ApiError, RequestFacts, WatchEvent
from penstock_cluster.registry.model import errors
from penstock_cluster.registry.model.errors import ResourceName, conflict, expired


class ApiTrouble(StrEnum):
    """What happens to a request or event."""

    STALL = "stall"
    DELAY = "delay"
    ERROR = "error"
    CONFLICT = "conflict"
    EXPIRE = "expire"
    DROP_EVENT = "drop-event"


@dataclass(frozen=True, slots=True)
class RequestChoice:
    """Which requests: all of those fields that are set must match; names may hold ``*``."""

    verbs: tuple[str, ...] = ()
    resource: str = ""
    """Plural, with ``/SUBRESOURCE`` where one is meant; without one it means all."""
    namespace: str = ""
    name: str = ""
    user: str = ""
    user_agent: str = ""

    def matches(self, request: RequestFacts) -> bool:
        if self.verbs and request.verb not in self.verbs:
            return False
        resource, _, subresource = self.resource.partition("/")
        if subresource and subresource != request.subresource:
            return False
        return all(
            not wanted or fnmatch.fnmatchcase(actual, wanted)
            for wanted, actual in (
                (resource, request.resource),
                (self.namespace, request.namespace),
                (self.name, request.name),
                (self.user, request.user),
                (self.user_agent, request.user_agent),
            )
        )


@dataclass(slots=True)
class ApiRule:
    """One trouble for the chosen requests."""

    trouble: ApiTrouble
    choice: RequestChoice
    expires_at: float | None = None
    """Monotonic seconds; None: until cleared."""
    times: int | None = None
    """How many requests are touched; None: all."""
    rate: float = 1.0
    """The share of the chosen requests that is touched."""
    code: int = 500
    seconds: float = 0.0
    lifted: asyncio.Event = field(default_factory=asyncio.Event)


class ApiFaults:
    """Implements the engine's Interceptor by a list of rules."""

    def __init__(self, seed: int = 0) -> None:
        self.rules: list[ApiRule] = []
        self._random = random.Random(seed)  # noqa: S311  which requests fail must be repeatable

    def add(self, rule: ApiRule) -> ApiRule:
        self.rules.append(rule)
        return rule

    def lift(self, rule: ApiRule) -> None:
        """End one rule; whoever it held goes on."""
        rule.lifted.set()
        if rule in self.rules:
            self.rules.remove(rule)

    def clear(self) -> None:
        for rule in list(self.rules):
            self.lift(rule)

    async def on_request(self, request: RequestFacts) -> ApiError | None:
        """Hold, delay or refuse a request."""
        for rule in self._touching(request):
            match rule.trouble:
                case ApiTrouble.STALL:
                    await self._until_lifted(rule)
                case ApiTrouble.DELAY:
                    await asyncio.sleep(rule.seconds)
                case ApiTrouble.ERROR:
                    return error_of(rule.code)
                case ApiTrouble.CONFLICT:
                    name = ResourceName(request.group, request.resource, request.resource)
                    return conflict(name, request.name)
                case ApiTrouble.EXPIRE:
                    version = request.query.get("resourceVersion") or "1"
                    return expired(f"too old resource version: {version} (9999999)")
        return None

    def on_watch_event(self, request: RequestFacts, event: WatchEvent) -> bool:
        """Whether the event is sent."""
        if event.type == "BOOKMARK":
            return True
        return not any(
            self._use(rule)
            for rule in self._in_force()
            if rule.trouble is ApiTrouble.DROP_EVENT and rule.choice.matches(request)
        )

    def _touching(self, request: RequestFacts) -> list[ApiRule]:
        return [
            rule
            for rule in self._in_force()
            if rule.trouble is not ApiTrouble.DROP_EVENT
            and rule.choice.matches(request)
            and self._use(rule)
        ]

    def _in_force(self) -> list[ApiRule]:
        now = time.monotonic()
        for rule in [r for r in self.rules if r.expires_at is not None and r.expires_at <= now]:
            self.lift(rule)
        return list(self.rules)

    def _use(self, rule: ApiRule) -> bool:
        if rule.rate < 1.0 and self._random.random() >= rule.rate:
            return False
        if rule.times is not None:
            if rule.times <= 0:
                return False
            rule.times -= 1
            if rule.times == 0 and rule.trouble is not ApiTrouble.STALL:
                self.rules.remove(rule)
        return True

    async def _until_lifted(self, rule: ApiRule) -> None:
        left = None if rule.expires_at is None else max(0.0, rule.expires_at - time.monotonic())
        try:
            async with asyncio.timeout(left):
                await rule.lifted.wait()
        except TimeoutError:
            self.lift(rule)


def error_of(code: int) -> ApiError:
    """The error that an API server in trouble answers with."""
    match code:
        case 429:
            return errors.too_many_requests(
                "the server has received too many requests and has asked us to try again later"
            )
        case 503:
            return errors.service_unavailable(
                "the server is currently unable to handle the request"
            )
        case 504:
            message = "the server was unable to return a response in the time allotted"
            return ApiError(504, "Timeout", message, {})
        case 401:
            return errors.unauthorized()
        case 500:
            return errors.internal("fault on demand")
    return ApiError(code, "InternalError", f"fault on demand: HTTP {code}", {})
