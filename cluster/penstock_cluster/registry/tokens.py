"""Bearer tokens: the administrator's, and those of service accounts.

Service-account tokens are signed JSON Web Tokens (HS256 with a key of this cluster), bound to the
account's uid, to audiences and to an expiry. A token is good as long as its signature, expiry,
audience and account are.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
import uuid
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import orjson

from penstock_cluster.registry.model import errors, typed
from penstock_cluster.registry.model.call import User
from penstock_cluster.registry.model.documents import Json, compact
from penstock_cluster.registry.model.errors import FieldFault, ResourceName
from penstock_cluster.registry.model.shape import CoreTypes
from penstock_cluster.registry.objects.store import Store

AUDIENCE = "https://kubernetes.default.svc"
_DEFAULT_SECONDS = 3600
_SHORTEST_SECONDS = 600
_LONGEST_SECONDS = 2**32
ADMIN = User("kubernetes-admin", ("system:masters", "system:authenticated"), uid="penstock-admin")
ANONYMOUS = User("system:anonymous", ("system:unauthenticated",))
_ACCOUNTS = ResourceName("", "serviceaccounts", "ServiceAccount")
_REQUEST = ResourceName("authentication.k8s.io", "tokenrequests", "TokenRequest")


class TokenError(Exception):
    """A token is no good; the message is what a review says."""


def _encode(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _decode(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


class Tokens:
    """Issues tokens and tells whose they are."""

    def __init__(
        self,
        store: Store,
        types: CoreTypes,
        clock: Callable[[], datetime],
        key: bytes,
        admin: str,
        longest_seconds: int | None = None,
    ) -> None:
        self._store = store
        self._types = types
        self._clock = clock
        self._key = key
        self._longest_seconds = longest_seconds
        #: The administrator's token.
        self.admin = admin

    @staticmethod
    def fresh_secret() -> str:
        return secrets.token_urlsafe(32)

    def _sign(self, text: str) -> str:
        return _encode(hmac.new(self._key, text.encode(), hashlib.sha256).digest())

    def issue(
        self,
        namespace: str,
        name: str,
        *,
        audiences: tuple[str, ...] = (AUDIENCE,),
        seconds: int = _DEFAULT_SECONDS,
        bound_to: Json | None = None,
    ) -> tuple[str, datetime]:
        """A token of a service account and when it expires; :class:`ApiError` 404 without one."""
        account = self._store.table("serviceaccounts").items.get((namespace, name))
        if account is None:
            raise errors.not_found(_ACCOUNTS, name)
        now = self._clock()
        expiry = datetime.fromtimestamp(int(now.timestamp()) + seconds, UTC)
        claims: Json = {
            "aud": list(audiences),
            "exp": int(expiry.timestamp()),
            "iat": int(now.timestamp()),
            "iss": AUDIENCE,
            "jti": str(uuid.uuid4()),
            "kubernetes.io": {
                "namespace": namespace,
                "serviceaccount": {"name": name, "uid": account.uid},
            },
            "nbf": int(now.timestamp()),
            "sub": f"system:serviceaccount:{namespace}:{name}",
        }
        if bound_to:
            kind = str(bound_to.get("kind", "")).lower()
            claims["kubernetes.io"][kind] = {
                "name": bound_to.get("name"),
                "uid": bound_to.get("uid"),
            }
        head = _encode(orjson.dumps({"alg": "HS256", "kid": "penstock-local", "typ": "JWT"}))
        text = f"{head}.{_encode(orjson.dumps(claims))}"
        return f"{text}.{self._sign(text)}", expiry

    def user_of(self, token: str, audiences: tuple[str, ...] = (AUDIENCE,)) -> User:
        """Whose token this is; :class:`TokenError` when it is no good."""
        if self._is_admin(token):
            return ADMIN
        return self.review(token, audiences)[0]

    def _is_admin(self, token: str) -> bool:
        return hmac.compare_digest(token.encode(), self.admin.encode())

    def review(self, token: str, audiences: tuple[str, ...]) -> tuple[User, list[str]]:
        """Whose token this is and the audiences it shares with ``audiences``."""
        if self._is_admin(token):
            if AUDIENCE not in audiences:  # it says for whom it is as little as a static token
                raise TokenError("invalid bearer token")
            return ADMIN, [AUDIENCE]
        claims = self._claims(token)
        shared = [audience for audience in audiences if audience in claims["aud"]]
        if not shared:
            has = " ".join(compact(item) for item in claims["aud"])
            wanted = " ".join(compact(item) for item in audiences)
            raise TokenError(
                f"[invalid bearer token, token audiences [{has}] is invalid for the target "
                f"audiences [{wanted}]]"
            )
        if claims["exp"] <= self._clock().timestamp():
            raise TokenError("[invalid bearer token, service account token has expired]")
        return self._account(claims), shared

    def _claims(self, token: str) -> Json:
        head, _, signature = token.rpartition(".")
        if not head or not hmac.compare_digest(self._sign(head), signature):
            raise TokenError("invalid bearer token")
        claims: Json = orjson.loads(_decode(head.split(".")[1]))
        return claims

    def _account(self, claims: Json) -> User:
        bound = claims["kubernetes.io"]
        namespace, account = bound["namespace"], bound["serviceaccount"]
        version = self._store.table("serviceaccounts").items.get((namespace, account["name"]))
        if version is None or version.uid != account["uid"]:
            raise TokenError("[invalid bearer token, service account has been deleted]")
        extra = {"authentication.kubernetes.io/credential-id": [f"JTI={claims['jti']}"]}
        pod = bound.get("pod")
        if pod is not None:
            found = self._store.table("pods").items.get((namespace, pod["name"]))
            if found is None or found.uid != pod["uid"]:
                raise TokenError("[invalid bearer token, pod has been deleted]")
            extra["authentication.kubernetes.io/pod-name"] = [pod["name"]]
            extra["authentication.kubernetes.io/pod-uid"] = [pod["uid"]]
        groups = (
            "system:serviceaccounts",
            f"system:serviceaccounts:{namespace}",
            "system:authenticated",
        )
        return User(claims["sub"], groups, uid=account["uid"], extra=extra)

    def answer(self, namespace: str, name: str, document: Json) -> Json:
        """Carry out a TokenRequest; the result is its reply."""
        shape = self._types.shape("io.k8s.api.authentication.v1.TokenRequest")
        try:
            request, _ = typed.decode(shape, document)
        except typed.DecodeError as error:
            raise errors.bad_request(
                f'TokenRequest in version "v1" cannot be handled as a TokenRequest: {error}'
            ) from None
        account = self._store.table("serviceaccounts").items.get((namespace, name))
        if account is None:
            raise errors.not_found(_ACCOUNTS, name)
        spec: Any = request.get("spec") or {}
        seconds = spec.get("expirationSeconds")
        seconds = _DEFAULT_SECONDS if seconds is None else seconds
        if seconds < _SHORTEST_SECONDS:
            why = "may not specify a duration less than 10 minutes"
            raise _bad_duration(seconds, why)
        if seconds > _LONGEST_SECONDS:
            raise _bad_duration(seconds, "may not specify a duration larger than 2^32 seconds")
        if self._longest_seconds is not None:
            seconds = min(seconds, self._longest_seconds)
        audiences = tuple(spec.get("audiences") or (AUDIENCE,))
        bound = spec.get("boundObjectRef")
        token, expiry = self.issue(
            namespace, name, audiences=audiences, seconds=seconds, bound_to=bound
        )
        return {
            "kind": "TokenRequest",
            "apiVersion": "authentication.k8s.io/v1",
            "metadata": {
                "name": name,
                "namespace": namespace,
                "uid": account.uid,
                "creationTimestamp": self._clock().strftime("%Y-%m-%dT%H:%M:%SZ"),
            },
            "spec": {
                "audiences": list(audiences),
                "expirationSeconds": seconds,
                "boundObjectRef": bound,
            },
            "status": {
                "token": token,
                "expirationTimestamp": expiry.strftime("%Y-%m-%dT%H:%M:%SZ"),
            },
        }


def _bad_duration(seconds: int, why: str) -> errors.ApiError:
    message = f"Invalid value: {seconds}: {why}"
    fault = FieldFault("spec.expirationSeconds", "FieldValueInvalid", message)
    return errors.invalid(_REQUEST, "", [fault])
