"""Authentication by Kubernetes: TokenReview says who it is, SubjectAccessReview what they may do.

Both answers are kept for 60 s. A job's trainer presents a token with the audience penstock-brain
and the service account `<job>-trainer`; such a caller may touch its own job and nothing else, so
no SubjectAccessReview is asked for it.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any, Final, Protocol

from penstock.api.auth.cache import TimedCache
from penstock.api.auth.caller import Caller, Permission, UnauthenticatedError, Verb
from penstock.crds.environment import BRAIN_AUDIENCE
from penstock.crds.group import GROUP

CACHE_SECONDS: Final = 60.0
_REFUSED_SECONDS: Final = 10.0
_SERVICE_ACCOUNT: Final = "system:serviceaccount:"
_TRAINER_SUFFIX: Final = "-trainer"
_JOB_VERBS: Final = frozenset({Verb.GET, Verb.CREATE, Verb.UPDATE})


class Reviews(Protocol):
    """The two reviews of the API server; both may raise ClusterUnavailableError."""

    async def review_token(self, token: str, audiences: list[str]) -> dict[str, Any]:
        """The status of a TokenReview."""

    async def review_access(self, spec: dict[str, Any]) -> bool:
        """Whether a SubjectAccessReview allows it."""


@dataclass(frozen=True, slots=True)
class JobCaller:
    """The trainer of one job."""

    namespace: str
    job: str

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
        """What the API server says."""
        return await self.reviews.allowed(self, permission)


class KubernetesAuthenticator:
    """Asks an API server, and remembers what it said for a minute."""

    def __init__(self, reviews: Reviews) -> None:
        self._reviews = reviews
        self._callers: TimedCache[str, Caller] = TimedCache(CACHE_SECONDS, 10_000)
        self._refused: TimedCache[str, bool] = TimedCache(_REFUSED_SECONDS, 10_000)
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
        if self._refused.get(key):
            raise UnauthenticatedError("the API server does not know the token")
        known = self._callers.get(key)
        if known is None:
            known = await self._review(token)
            if known is None:
                self._refused.put(key, True)
                raise UnauthenticatedError("the API server does not know the token")
            self._callers.put(key, known)
        return known

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
        status = await self._reviews.review_token(token, [BRAIN_AUDIENCE])
        if status.get("authenticated"):
            job = _job_of(status)
            return job or self._caller(status)
        # A person's token is for the API server itself, not for this service.
        status = await self._reviews.review_token(token, [])
        return self._caller(status) if status.get("authenticated") else None

    def _caller(self, status: dict[str, Any]) -> Caller:
        user = status.get("user") or {}
        return KubernetesCaller(
            user=user.get("username", ""),
            uid=user.get("uid", ""),
            groups=tuple(user.get("groups") or ()),
            reviews=self,
        )


def _job_of(status: dict[str, Any]) -> JobCaller | None:
    # A server that ignores audiences would make any token of a trainer count: it must say so.
    if BRAIN_AUDIENCE not in (status.get("audiences") or ()):
        return None
    name = (status.get("user") or {}).get("username", "")
    if not name.startswith(_SERVICE_ACCOUNT):
        return None
    namespace, _, account = name.removeprefix(_SERVICE_ACCOUNT).partition(":")
    if not account.endswith(_TRAINER_SUFFIX):
        return None
    return JobCaller(namespace, account.removesuffix(_TRAINER_SUFFIX))
