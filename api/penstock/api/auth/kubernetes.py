"""Authentication by Kubernetes: TokenReview says who it is, SubjectAccessReview what they may do.

Both answers are kept for 60 s. A job's trainer presents a token with the audience penstock-brain
and the service account `<job>-trainer`; such a caller may touch its own job and nothing else, so
no SubjectAccessReview is asked for it.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final, Protocol

from penstock.api.auth.cache import TimedCache
from penstock.api.auth.caller import Caller, Permission, UnauthenticatedError, Verb
from penstock.brain.service.sample_writer import OverloadedError
from penstock.crds.environment import BRAIN_AUDIENCE
from penstock.crds.group import GROUP, SCALE_PLURAL
from penstock.crds.policy import SERVICE_ACCOUNT_SUFFIX

CACHE_SECONDS: Final = 60.0
_REFUSED_SECONDS: Final = 10.0
_FAMILIAR_SECONDS: Final = 7200.0
_MOST_REVIEWS: Final = 8
"""Of tokens that were never good, at the same time."""
_MOST_WAITING: Final = 64
_MOST_TOKEN_BYTES: Final = 32 * 1024
_SERVICE_ACCOUNT: Final = "system:serviceaccount:"
_JOB_VERBS: Final = frozenset({Verb.GET, Verb.CREATE, Verb.UPDATE})


class Reviews(Protocol):
    """The two reviews of the API server; both may raise ClusterUnavailableError."""

    async def review_token(self, token: str, audiences: list[str]) -> dict[str, Any]:
        """The status of a TokenReview."""

    async def review_access(self, spec: dict[str, Any]) -> bool:
        """Whether a SubjectAccessReview allows it."""

    async def job_uid(self, namespace: str, name: str) -> str | None:
        """The uid of an ElasticJob; None if there is none."""


@dataclass(frozen=True, slots=True)
class JobCaller:
    """The trainer of one job."""

    namespace: str
    job: str
    reviews: KubernetesAuthenticator

    @property
    def name(self) -> str:
        """The job that calls."""
        return f"job:{self.namespace}/{self.job}"

    async def may(self, permission: Permission) -> bool:
        """Only its own job, by namespace and name."""
        return (
            permission.resource == "elasticjobs"
            and permission.verb in _JOB_VERBS
            and permission.namespace == self.namespace
            and permission.name == self.job
        )

    async def vouches_for(self, uid: str, namespace: str, name: str) -> bool:
        """What the API server says: whoever comes first with a uid could otherwise have it."""
        return await self.reviews.job_uid(namespace, name) == uid


@dataclass(frozen=True, slots=True)
class KubernetesCaller:
    """Somebody whom the API server knows."""

    user: str
    uid: str
    groups: tuple[str, ...]
    reviews: KubernetesAuthenticator

    @property
    def name(self) -> str:
        """The user's name."""
        return self.user

    async def may(self, permission: Permission) -> bool:
        """What the API server says; a trainer, with whatever token, never writes a person's Scales.

        Its role lets it create Scales, and an admission policy only those of its own kind: a
        review knows of the role alone.
        """
        if permission.resource == SCALE_PLURAL and _is_trainer(self.user):
            return False
        return await self.reviews.allowed(self, permission)

    async def vouches_for(self, uid: str, namespace: str, name: str) -> bool:
        """What the API server says: whoever comes first with a uid could otherwise have it."""
        return await self.reviews.job_uid(namespace, name) == uid


class KubernetesAuthenticator:
    """Asks an API server, and remembers what it said for a minute."""

    def __init__(self, reviews: Reviews, *, requires_audience: bool = False) -> None:
        """``requires_audience``: tokens that are for the API server as well are not taken."""
        self._reviews = reviews
        self._requires_audience = requires_audience
        self._callers: TimedCache[str, Caller] = TimedCache(CACHE_SECONDS, 10_000)
        self._refused: TimedCache[str, bool] = TimedCache(_REFUSED_SECONDS, 10_000)
        self._familiar: TimedCache[str, bool] = TimedCache(_FAMILIAR_SECONDS, 10_000)
        self._reviewing = asyncio.Semaphore(_MOST_REVIEWS)
        self._waiting = 0
        self._allowed: TimedCache[tuple[str, tuple[str, ...], Permission], bool] = TimedCache(
            CACHE_SECONDS, 50_000
        )

    async def authenticate(self, token: str | None) -> Caller:
        """Who holds the token.

        Raises:
            UnauthenticatedError: There is no token, or nobody knows it.
            ClusterUnavailableError: The cluster cannot be reached now.
        """
        if token is None:
            raise UnauthenticatedError("no token: send 'Authorization: Bearer TOKEN'")
        key = hashlib.sha256(token.encode()).hexdigest()
        if len(token) > _MOST_TOKEN_BYTES or self._refused.get(key):
            raise UnauthenticatedError(self._unknown)
        known = self._callers.get(key)
        if known is None:
            async with self._turn(key):
                known = self._callers.get(key) or await self._review(token)
            if known is None:
                self._refused.put(key, True)
                raise UnauthenticatedError(self._unknown)
            self._callers.put(key, known)
            self._familiar.put(key, True)
        return known

    @asynccontextmanager
    async def _turn(self, key: str) -> AsyncIterator[None]:
        """A few tokens that were never good are reviewed at a time; those that were do not wait.

        Whoever sends tokens that they made up neither floods the API server nor keeps others out.

        Raises:
            OverloadedError: Too many wait already.
        """
        if self._familiar.get(key):
            yield
            return
        if self._waiting >= _MOST_WAITING:
            raise OverloadedError("too many unknown tokens are being looked at: try again")
        self._waiting += 1
        try:
            async with self._reviewing:
                yield
        finally:
            self._waiting -= 1

    @property
    def _unknown(self) -> str:
        """What to say of a token that does not count."""
        if self._requires_audience:
            return (
                f"the API server knows no such token for a Brain (audience {BRAIN_AUDIENCE}): "
                f"kubectl create token ACCOUNT --audience={BRAIN_AUDIENCE} makes one"
            )
        return "the API server does not know the token"

    async def job_uid(self, namespace: str, name: str) -> str | None:
        """The uid of an ElasticJob; None if there is none.

        Raises:
            ClusterRefusedError: This service may not read it.
            ClusterUnavailableError: The cluster cannot be reached now.
        """
        return await self._reviews.job_uid(namespace, name)

    async def allowed(self, caller: KubernetesCaller, permission: Permission) -> bool:
        """Whether the caller has the permission.

        Raises:
            ClusterUnavailableError: The cluster cannot be reached now.
        """
        key = (caller.user, caller.groups, permission)
        known = self._allowed.get(key)
        if known is None:
            attributes = {
                "verb": permission.verb.value,
                "group": GROUP,
                "resource": permission.resource,
            }
            if permission.namespace is not None:
                attributes["namespace"] = permission.namespace
            if permission.name is not None:
                attributes["name"] = permission.name
            known = await self._reviews.review_access(
                {
                    "user": caller.user,
                    "uid": caller.uid,
                    "groups": list(caller.groups),
                    "resourceAttributes": attributes,
                }
            )
            self._allowed.put(key, known)
        return known

    async def _review(self, token: str) -> Caller | None:
        ours = _names_audience(token)
        if ours is not False:
            status = await self._reviews.review_token(token, [BRAIN_AUDIENCE])
            if status.get("authenticated"):
                if self._requires_audience and BRAIN_AUDIENCE not in _audiences(status):
                    return None  # the server ignores audiences: the token may be for anything
                job = self._job_of(status)
                return job or self._caller(status)
        if ours or self._requires_audience:
            return None
        # A person's token is for the API server itself, not for this service.
        status = await self._reviews.review_token(token, [])
        return self._caller(status) if status.get("authenticated") else None

    def _job_of(self, status: dict[str, Any]) -> JobCaller | None:
        # A server that ignores audiences would make any token of a trainer count: it must say so.
        if BRAIN_AUDIENCE not in _audiences(status):
            return None
        name = (status.get("user") or {}).get("username", "")
        if not _is_trainer(name):
            return None
        namespace, _, account = name.removeprefix(_SERVICE_ACCOUNT).partition(":")
        return JobCaller(namespace, account.removesuffix(SERVICE_ACCOUNT_SUFFIX), self)

    def _caller(self, status: dict[str, Any]) -> Caller:
        user = status.get("user") or {}
        return KubernetesCaller(
            user=user.get("username", ""),
            uid=user.get("uid", ""),
            groups=tuple(user.get("groups") or ()),
            reviews=self,
        )


def _names_audience(token: str) -> bool | None:
    """Whether a token says that it is for this service; None: it does not say for whom it is.

    Nothing is believed: it only decides which review is the one that can succeed.
    """
    parts = token.split(".")
    if len(parts) != 3:
        return None
    try:
        claims = json.loads(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
    except (binascii.Error, ValueError, RecursionError):
        return None
    said = claims.get("aud") if isinstance(claims, dict) else None
    if isinstance(said, str):
        return said == BRAIN_AUDIENCE
    return BRAIN_AUDIENCE in said if isinstance(said, list) and said else None


def _audiences(status: dict[str, Any]) -> Sequence[str]:
    return status.get("audiences") or ()


def _is_trainer(user: str) -> bool:
    return user.startswith(_SERVICE_ACCOUNT) and user.endswith(SERVICE_ACCOUNT_SUFFIX)
