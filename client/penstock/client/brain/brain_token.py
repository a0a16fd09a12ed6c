"""The token for a Brain that was found, which is good for a Brain and for nothing else.

Whoever listens where a Brain was looked for must not become the caller. So what is sent there is
never the caller's token of the API server: the API server is asked for one of a ServiceAccount,
with the audience ``penstock-brain``, which it refuses itself
(docs/adr/0007-a-found-brain-is-shown-a-token-of-its-own.md).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from penstock.client.errors import (
    BrainAddressError,
    ClusterError,
    ForbiddenError,
    ObjectNotFoundError,
    PenstockError,
)
from penstock.client.kubernetes.cluster_client import ClusterClient
from penstock.client.kubernetes.kubeconfig import ClusterAccess
from penstock.client.kubernetes.resources import ClusterCall, Resource
from penstock.crds.environment import BRAIN_AUDIENCE

PEOPLES_ACCOUNT: Final = "penstock-user"
"""The ServiceAccount of the chart whose tokens people may ask for: it reads, and no more."""

ACCOUNTS: Final = Resource("v1", "serviceaccounts")
_WHO: Final = Resource("authentication.k8s.io/v1", "selfsubjectreviews", namespaced=False)
_AUTHENTICATION: Final = "authentication.k8s.io/v1"
_LIFETIME_SECONDS: Final = 3600
_PAUSE_SECONDS: Final = 30.0
"""Between attempts to renew a token that is still good."""
_PREFIX: Final = "system:serviceaccount:"


@dataclass(frozen=True, slots=True)
class Account:
    """A ServiceAccount."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


def parsed(text: str, which: str) -> Account:
    """``NAMESPACE/NAME``.

    Raises:
        BrainAddressError: It is none; where the text is from is named.
    """
    namespace, _, name = text.partition("/")
    if not namespace or not name or "/" in name:
        raise BrainAddressError(f"{which}: {text!r} is not NAMESPACE/NAME of a ServiceAccount")
    return Account(namespace, name)


class BrainToken:
    """A token of an account for the Brain, asked for anew at half its life. Thread-safe.

    Where that fails, the token stays in use as long as it is good.
    """

    def __init__(
        self,
        access: ClusterAccess,
        account: Account,
        *,
        connect: Callable[[ClusterAccess], ClusterClient] = ClusterClient,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.account = account
        self._access = access
        self._connect = connect
        self._clock = clock
        self._lock = threading.Lock()
        self._token = ""
        self._renew_at = 0.0
        self._expires_at = 0.0

    def __call__(self) -> str:
        """The present token.

        Raises:
            BrainAddressError: There is none, and none is given.
        """
        with self._lock:
            if self._clock() >= self._renew_at:
                try:
                    with self._connect(self._access) as cluster:
                        self.take(cluster)
                except PenstockError:
                    now = self._clock()
                    if now >= self._expires_at:
                        raise
                    self._renew_at = min(now + _PAUSE_SECONDS, self._expires_at)
            return self._token

    def take(self, cluster: ClusterClient) -> None:
        """Ask for a token now.

        Raises:
            BrainAddressError: Nobody said where the Brain is, and it could not be found.
        """
        asked = self._clock()
        spec = {"audiences": [BRAIN_AUDIENCE], "expirationSeconds": _LIFETIME_SECONDS}
        call = ClusterCall(
            method="POST",
            path=f"{ACCOUNTS.path(self.account.namespace, self.account.name)}/token",
            body={"apiVersion": _AUTHENTICATION, "kind": "TokenRequest", "spec": spec},
        )
        try:
            found = cluster.send(call)
        except (ForbiddenError, ObjectNotFoundError) as error:
            raise BrainAddressError(f"no token for the Brain: {error}; {_HOW}") from error
        except ClusterError as error:
            raise BrainAddressError(f"no token for the Brain: {error}") from error
        given = found.get("spec") or {}
        token = str((found.get("status") or {}).get("token") or "")
        if not token or given.get("audiences") != [BRAIN_AUDIENCE]:
            raise BrainAddressError(
                f"the API server gave no token for the audience {BRAIN_AUDIENCE} alone, and no "
                f"other is sent to a Brain that was found; {_HOW}"
            )
        lasts = float(given.get("expirationSeconds") or _LIFETIME_SECONDS)
        self._token, self._renew_at, self._expires_at = token, asked + lasts / 2, asked + lasts


def own_account(cluster: ClusterClient) -> Account | None:
    """The ServiceAccount that the caller is; None: a person.

    Raises:
        BrainAddressError: Nobody said where the Brain is, and it could not be found.
    """
    body = {"apiVersion": _AUTHENTICATION, "kind": "SelfSubjectReview"}
    try:
        found = cluster.send(ClusterCall(method="POST", path=_WHO.path(), body=body))
    except ClusterError as error:
        raise BrainAddressError(f"who you are in the cluster is not known: {error}") from error
    user = str(((found.get("status") or {}).get("userInfo") or {}).get("username") or "")
    if not user.startswith(_PREFIX):
        return None
    namespace, _, name = user.removeprefix(_PREFIX).partition(":")
    return Account(namespace, name)


_HOW: Final = (
    "an administrator lists you in the chart's roles.brainUsers; or name a ServiceAccount whose "
    "tokens you may ask for, with --brain-account NAMESPACE/NAME or $PENSTOCK_BRAIN_ACCOUNT; or "
    "give a token, "
    f"PENSTOCK_BRAIN_TOKEN=$(kubectl create token ACCOUNT --audience={BRAIN_AUDIENCE})"
)
