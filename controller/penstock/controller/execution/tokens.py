"""The token by which the pods of a job know each other: the same one however often it is made.

A job's pods read their token when they start, and no later. Were it a random one, a Secret that
somebody deleted would come back with another, and every pod started from then on would be a
stranger to those that run. So the token is derived from the job's uid and a key of the controller,
which lies in a Secret of its own beside the controller's Lease and is made once. Should that be
lost as well, tokens that are there stay; only jobs of later Secrets have others.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import secrets
from typing import Any, Final

from penstock.crds import labels
from penstock.kube.api import Api
from penstock.kube.errors import ApiRefusedError

KEY_SECRET: Final = "penstock-job-key"
_ENTRY: Final = "key"
_KEY_BYTES: Final = 32


class JobTokens:
    """Tokens of jobs; the key is read, or made, when the first one is wanted.

    Args:
        api: the API server.
        namespace: where the key lies.
    """

    def __init__(self, api: Api, namespace: str) -> None:
        self._api = api
        self._namespace = namespace
        self._key = b""

    async def of(self, job_uid: str) -> str:
        """A job's token: 64 hexadecimal digits.

        Raises:
            ApiError: the key can neither be read nor made, or what lies there is none.
        """
        return await self._derive(job_uid)

    async def of_group(self, namespace: str, group: str) -> str:
        """A share group's token, of the same form; each namespace has groups of its own.

        Raises:
            ApiError: as `of`.
        """
        return await self._derive(f"share/{namespace}/{group}")  # no uid has a slash in it

    async def _derive(self, whose: str) -> str:
        if not self._key:
            self._key = await self._load()
        return hmac.new(self._key, whose.encode(), hashlib.sha256).hexdigest()

    async def _load(self) -> bytes:
        try:
            return self._decode(await self._read())
        except ApiRefusedError as error:
            if error.code != 404:
                raise
        key = secrets.token_bytes(_KEY_BYTES)
        manifest = {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {
                "name": KEY_SECRET,
                "namespace": self._namespace,
                "labels": {labels.MANAGED_BY: labels.MANAGED_BY_VALUE},
            },
            "type": "Opaque",
            "immutable": True,
            "data": {_ENTRY: base64.b64encode(key).decode()},
        }
        try:
            await self._api.submit("secrets", self._namespace, manifest)
        except ApiRefusedError as error:
            if error.reason != "AlreadyExists":
                raise
            return self._decode(await self._read())  # another replica was first
        return key

    async def _read(self) -> dict[str, Any]:
        return await self._api.get("secrets", self._namespace, KEY_SECRET)

    def _decode(self, found: dict[str, Any]) -> bytes:
        try:
            key = base64.b64decode((found.get("data") or {}).get(_ENTRY) or "", validate=True)
        except binascii.Error:
            key = b""
        if len(key) < _KEY_BYTES:
            text = (
                f"Secret {self._namespace}/{KEY_SECRET}: data.{_ENTRY} is not a key of at least"
                f" {_KEY_BYTES} bytes in base64; delete the Secret to have another made"
            )
            raise ApiRefusedError(text, code=422, reason="InvalidKey")
        return key
