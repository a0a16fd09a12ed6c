"""The trainer's line to the Kubernetes API: a few calls through httpx with its projected token.

A trainer creates Scales, consents to them, watches its own job and pods, and says in the job's
status what goes wrong. That needs no client library, which a training image would have to carry.
"""

from __future__ import annotations

import asyncio
import ipaddress
import json
import logging
import os
import random
import ssl
import time
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import httpx

from penstock.crds import labels
from penstock.crds.group import API_VERSION, ELASTICJOB_PLURAL, SCALE_PLURAL

logger = logging.getLogger(__name__)

REQUEST_TIMEOUT_SECONDS: Final = 10.0
WATCH_SECONDS: Final = 240
RETRY_SECONDS: Final = (0.5, 1.0, 2.0, 5.0, 10.0)
STEADY_SECONDS: Final = 10.0
"""A watch that lasted as long is no sign of trouble, however it ended."""
CLUSTER_CA: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount/ca.crt")

Json = dict[str, Any]


class KubeError(Exception):
    """The API server refused a call or could not be reached; ``code`` is 0 in the latter case."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


@dataclass(frozen=True)
class ClusterAccess:
    """Where the API server is and how to be known to it."""

    url: str
    token_file: Path
    ca_file: Path | None


def cluster_access(
    token_file: Path | None, environ: Mapping[str, str] = os.environ
) -> ClusterAccess | None:
    """Access from within a pod; None outside a cluster.

    The certificate of the API server's authority lies beside the token. Without one, only a server
    on this machine is spoken to in plain HTTP.
    """
    host = environ.get("KUBERNETES_SERVICE_HOST", "")
    port = environ.get("KUBERNETES_SERVICE_PORT", "443")
    if token_file is None or not host or not token_file.is_file():
        return None
    authorities = (token_file.with_name("ca.crt"), CLUSTER_CA)
    ca_file = next((path for path in authorities if path.is_file()), None)
    scheme = "http" if ca_file is None and _is_loopback(host) else "https"
    netloc = f"[{host}]" if ":" in host else host
    return ClusterAccess(f"{scheme}://{netloc}:{port}", token_file, ca_file)


class KubeClient:
    """The calls that a trainer makes; the token, renewed in place, is read anew for each."""

    def __init__(self, access: ClusterAccess, namespace: str, job: str, uid: str) -> None:
        self._access = access
        self._root = f"/apis/{API_VERSION}/namespaces/{namespace}"
        self._pods = f"/api/v1/namespaces/{namespace}/pods"
        self._job = job
        self._selector = f"{labels.JOB_UID}={uid}"
        verify: ssl.SSLContext | bool = True
        if access.ca_file is not None:
            verify = ssl.create_default_context(cafile=str(access.ca_file))
        self._http = httpx.AsyncClient(
            base_url=access.url, timeout=REQUEST_TIMEOUT_SECONDS, verify=verify, trust_env=False
        )

    async def close(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    async def job(self) -> Json:
        """The job's ElasticJob. Raises KubeError."""
        return await self._call("GET", f"{self._root}/{ELASTICJOB_PLURAL}/{self._job}")

    async def set_job_status(self, version: str, fields: Json) -> Json:
        """Write fields of the job's status, if it is still as of that version; the job then.

        A field of None is removed. Raises KubeError.
        """
        path = f"{self._root}/{ELASTICJOB_PLURAL}/{self._job}/status"
        body = {"metadata": {"resourceVersion": version}, "status": fields}
        return await self._call("PATCH", path, body)

    async def create_scale(self, scale: Json) -> bool:
        """Create a Scale; False when it exists already. Raises KubeError."""
        try:
            await self._call("POST", f"{self._root}/{SCALE_PLURAL}", scale)
        except KubeError as error:
            if error.code == httpx.codes.CONFLICT:
                return False
            raise
        return True

    async def set_scale_conditions(self, name: str, version: str, conditions: list[Json]) -> None:
        """Write a Scale's conditions, if it is still as of that version. Raises KubeError."""
        body = {"metadata": {"resourceVersion": version}, "status": {"conditions": conditions}}
        await self._call("PATCH", f"{self._root}/{SCALE_PLURAL}/{name}/status", body)

    def watch_scales(self, changed: Callable[[list[Json]], None]) -> Reflector:
        """Follow the Scales of the job's namespace."""
        return Reflector(self, f"{self._root}/{SCALE_PLURAL}", {}, changed)

    def watch_job(self, changed: Callable[[list[Json]], None]) -> Reflector:
        """Follow the job's ElasticJob."""
        query = {"fieldSelector": f"metadata.name={self._job}"}
        return Reflector(self, f"{self._root}/{ELASTICJOB_PLURAL}", query, changed)

    def watch_pods(self, changed: Callable[[list[Json]], None]) -> Reflector:
        """Follow the job's pods."""
        return Reflector(self, self._pods, {"labelSelector": self._selector}, changed)

    async def list(self, path: str, query: Mapping[str, str]) -> tuple[list[Json], str]:
        """All objects and the version as of which they are listed. Raises KubeError."""
        found: list[Json] = []
        following = ""
        while True:
            page = {**query, "limit": "500", **({"continue": following} if following else {})}
            answer = await self._call("GET", path, query=page)
            found += answer.get("items") or []
            following = answer["metadata"].get("continue") or ""
            if not following:
                return found, answer["metadata"]["resourceVersion"]

    async def watch(
        self, path: str, query: Mapping[str, str], version: str
    ) -> AsyncIterator[tuple[str, Json]]:
        """Changes after a version, until the server ends the stream. Raises KubeError."""
        asked = {
            **query,
            "watch": "true",
            "resourceVersion": version,
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(WATCH_SECONDS),
        }
        timeout = httpx.Timeout(REQUEST_TIMEOUT_SECONDS, read=WATCH_SECONDS + 30)
        try:
            async with self._http.stream(
                "GET", path, params=asked, headers=self._headers(), timeout=timeout
            ) as response:
                if response.is_error:
                    await response.aread()
                    raise KubeError(response.status_code, response.text[:500])
                async for line in response.aiter_lines():
                    if line:
                        event = json.loads(line)
                        yield event["type"], event["object"]
        except (httpx.HTTPError, json.JSONDecodeError) as error:
            raise KubeError(0, f"watching {path}: {error!r}") from error

    async def _call(
        self,
        method: str,
        path: str,
        body: Json | None = None,
        query: Mapping[str, str] | None = None,
    ) -> Json:
        headers = self._headers()
        if method == "PATCH":
            headers["Content-Type"] = "application/merge-patch+json"
        try:
            response = await self._http.request(
                method, path, json=body, params=query, headers=headers
            )
        except httpx.HTTPError as error:
            raise KubeError(0, f"{method} {path}: {error!r}") from error
        if response.is_error:
            raise KubeError(response.status_code, f"{method} {path}: {response.text[:500]}")
        try:
            answer: Json = response.json()
        except ValueError as error:
            raise KubeError(0, f"{method} {path}: the answer is no JSON") from error
        return answer

    def _headers(self) -> dict[str, str]:
        try:
            token = self._access.token_file.read_text(encoding="ascii").strip()
        except OSError as error:
            raise KubeError(0, f"the token {self._access.token_file}: {error.strerror}") from error
        return {"Authorization": f"Bearer {token}"}


class Reflector:
    """Keeps a copy of a list of objects: lists, watches from there, and lists again when told to.

    ``changed`` is called with the whole list after every change: what is, not what changed.
    """

    def __init__(
        self,
        client: KubeClient,
        path: str,
        query: Mapping[str, str],
        changed: Callable[[list[Json]], None],
    ) -> None:
        self._client = client
        self._path = path
        self._query = query
        self._changed = changed
        self._objects: dict[str, Json] = {}

    async def run(self) -> None:
        """Follow until cancelled; an API server that is away is asked again and again.

        Pauses grow while watches end soon after they began, whether with an error, as too old or
        in good order: a server that ends them at once is not to be asked as fast as it answers.
        """
        failures = 0
        version: str | None = None  # None: list first
        while True:
            began = time.monotonic()
            trouble = ""
            try:
                if version is None:
                    version = await self._relist()
                    began = time.monotonic()
                version = await self._follow(version)
            except KubeError as error:
                version = None  # too old, or unknown what was missed
                trouble = "" if error.code == httpx.codes.GONE else str(error)
            if steady := time.monotonic() - began >= STEADY_SECONDS:
                failures = 0
            if steady and not trouble:
                continue
            if trouble and failures == 0:
                logger.warning("cannot watch %s: %s", self._path, trouble)
            pause = RETRY_SECONDS[min(failures, len(RETRY_SECONDS) - 1)]
            failures += 1
            await asyncio.sleep(pause * random.uniform(0.7, 1.3))  # noqa: S311  jitter, no secret

    async def _relist(self) -> str:
        items, version = await self._client.list(self._path, self._query)
        self._objects = {item["metadata"]["uid"]: item for item in items}
        self._changed(list(self._objects.values()))
        return version

    async def _follow(self, version: str) -> str:
        """One watch; the version after its last change, to watch on from."""
        async for kind, item in self._client.watch(self._path, self._query, version):
            if kind == "ERROR":
                raise KubeError(int(item.get("code") or 0), str(item.get("message")))
            version = item["metadata"]["resourceVersion"]
            if kind == "BOOKMARK":
                continue
            if kind == "DELETED":
                self._objects.pop(item["metadata"]["uid"], None)
            else:
                self._objects[item["metadata"]["uid"]] = item
            self._changed(list(self._objects.values()))
        return version


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
