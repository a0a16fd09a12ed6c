"""Reads the API server and the Brain over HTTP, as kubectl and curl do.

Nothing here knows how the control plane works inside; a read that fails because a component is
just being restarted is tried again at the next look and raises only when it goes on too long.
"""

from __future__ import annotations

import base64
import json
import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import httpx
import yaml

from penstock.crds import labels
from penstock.crds.group import API_VERSION, ELASTICJOB_PLURAL, SCALE_PLURAL

REQUEST_TIMEOUT_SECONDS: Final = 10.0
RESULT_MARK: Final = "penstock-result "
"""A training script's last figures stand behind this word, as JSON, on a line of its log."""

Json = dict[str, Any]


@dataclass(frozen=True)
class Connection:
    """Where the cluster is, whom to trust there, and who we are."""

    url: str
    token: str
    ca_pem: str

    @classmethod
    def from_kubeconfig(cls, path: Path) -> Connection:
        """The current cluster and user of a kubeconfig that the embedded cluster wrote."""
        document = yaml.safe_load(path.read_text())
        cluster = document["clusters"][0]["cluster"]
        return cls(
            url=cluster["server"],
            token=document["users"][0]["user"]["token"],
            ca_pem=base64.b64decode(cluster["certificate-authority-data"]).decode(),
        )


class Observer:
    """One job, looked at from outside."""

    def __init__(
        self,
        connection: Connection,
        brain: str | httpx.AsyncClient,
        namespace: str,
        job: str,
    ) -> None:
        """``brain``: its address, where it takes the token of the cluster, or a client of it."""
        self._namespace = namespace
        self._job = job
        headers = {"Authorization": f"Bearer {connection.token}"}
        timeout = httpx.Timeout(REQUEST_TIMEOUT_SECONDS)
        self._cluster = httpx.AsyncClient(
            base_url=connection.url,
            headers=headers,
            timeout=timeout,
            trust_env=False,
            verify=ssl.create_default_context(cadata=connection.ca_pem),
        )
        self._brain = (
            httpx.AsyncClient(base_url=brain, headers=headers, timeout=timeout, trust_env=False)
            if isinstance(brain, str)
            else brain
        )

    async def close(self) -> None:
        """Close both connections."""
        await self._cluster.aclose()
        await self._brain.aclose()

    async def apply(self, manifest: Json) -> None:
        """Apply the job's manifest (server-side, as a person's kubectl would)."""
        await self._apply(f"{self._collection(ELASTICJOB_PLURAL)}/{self._job}", manifest)

    async def apply_pod(self, manifest: Json) -> None:
        """Apply a pod that is none of the job's."""
        await self._apply(self._pod(manifest["metadata"]["name"]), manifest)

    async def pod(self, name: str) -> Json:
        """One pod as it is now."""
        return await self._get(self._pod(name))

    def _pod(self, name: str) -> str:
        return f"/api/v1/namespaces/{self._namespace}/pods/{name}"

    async def _apply(self, path: str, manifest: Json) -> None:
        response = await self._cluster.patch(
            path,
            params={"fieldManager": "penstock-demo", "force": "true"},
            content=json.dumps(manifest),
            headers={"Content-Type": "application/apply-patch+yaml"},
        )
        _raise_for_status(response)

    async def job(self) -> Json:
        """The ElasticJob as it is now."""
        return await self._get(f"{self._collection(ELASTICJOB_PLURAL)}/{self._job}")

    async def scales(self) -> list[Json]:
        """The job's Scales, oldest first."""
        items = (await self._get(self._collection(SCALE_PLURAL)))["items"]
        own = [item for item in items if item["spec"]["jobRef"]["name"] == self._job]
        return sorted(own, key=_age)

    async def pods(self) -> list[Json]:
        """The job's pods, by name."""
        query = {"labelSelector": f"{labels.JOB}={self._job}"}
        items = (await self._get(f"/api/v1/namespaces/{self._namespace}/pods", query))["items"]
        return sorted(items, key=lambda pod: str(pod["metadata"]["name"]))

    async def log(self, pod: str, tail_lines: int = 200) -> str:
        """The end of a pod's log."""
        response = await self._cluster.get(
            f"{self._pod(pod)}/log", params={"tailLines": str(tail_lines)}
        )
        _raise_for_status(response)
        return response.text

    async def plans(self, uid: str) -> list[Json]:
        """The plans that the Brain made for the job, oldest first."""
        items = (await self._ask_brain(f"/v1/jobs/{uid}/plans"))["items"]
        return sorted(items, key=lambda plan: int(plan["id"]))

    async def samples(self, uid: str) -> list[Json]:
        """The job's runtime samples, oldest first."""
        items = (await self._ask_brain(f"/v1/jobs/{uid}/samples"))["items"]
        return sorted(items, key=lambda sample: float(sample["time"]))

    async def kill_container(self, pod: str) -> None:
        """Have the cluster kill a pod's process with SIGKILL, as a crash would."""
        response = await self._cluster.post(
            "/faults/kill_container", json={"namespace": self._namespace, "name": pod}
        )
        _raise_for_status(response)

    def _collection(self, plural: str) -> str:
        return f"/apis/{API_VERSION}/namespaces/{self._namespace}/{plural}"

    async def _get(self, path: str, query: dict[str, str] | None = None) -> Json:
        response = await self._cluster.get(path, params=query)
        _raise_for_status(response)
        document: Json = response.json()
        return document

    async def _ask_brain(self, path: str) -> Json:
        response = await self._brain.get(path, params={"limit": "500"})
        _raise_for_status(response)
        document: Json = response.json()
        return document


def result_in(log: str) -> Json | None:
    """The last result that a training script printed into its log; None where there is none."""
    for line in reversed(log.splitlines()):
        _, mark, text = line.partition(RESULT_MARK)
        if mark:
            result: Json = json.loads(text)
            return result
    return None


def _age(item: Json) -> tuple[str, str]:
    return item["metadata"]["creationTimestamp"], item["metadata"]["name"]


def _raise_for_status(response: httpx.Response) -> None:
    if response.is_error:
        request = response.request
        raise httpx.HTTPStatusError(
            f"{request.method} {request.url.path}: {response.status_code} {response.text[:500]}",
            request=request,
            response=response,
        )
