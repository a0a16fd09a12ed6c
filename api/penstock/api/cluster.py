"""The API service's own connection to Kubernetes: reviews of tokens, and the Scales of overrides.

Uses plain dictionaries through the generic client: the typed models cost a hundred megabytes and
tell nothing more here. Every call has a time-out.
"""

from __future__ import annotations

import asyncio
import json
import logging
import secrets
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from typing import Any, Final

import aiohttp
from kubernetes.aio import client, config
from kubernetes.aio.client.exceptions import ApiException

from penstock.api.errors import ServerError
from penstock.base.enums import Source
from penstock.brain.plan_content import PlanContent
from penstock.brain.service.plans import (
    ClusterRefusedError,
    ClusterUnavailableError,
    ScaleNameTakenError,
)
from penstock.brain.store.tables import JobRow, PlanRow
from penstock.crds import labels
from penstock.crds.group import (
    API_VERSION,
    ELASTICJOB_PLURAL,
    GROUP,
    SCALE_KIND,
    SCALE_PLURAL,
    VERSION,
)

logger = logging.getLogger(__name__)
_TIMEOUT_SECONDS: Final = 10.0


class ClusterConfigurationError(ServerError):
    """There is no way to connect to the cluster; the text says what to do."""


class Cluster:
    """One API server, reached with the service's own credentials."""

    def __init__(self, api: client.ApiClient) -> None:
        self._objects = client.CustomObjectsApi(api)

    async def review_token(self, token: str, audiences: list[str]) -> dict[str, Any]:
        """The status of a TokenReview.

        Raises:
            ClusterUnavailableError: The cluster cannot be reached now.
        """
        spec: dict[str, Any] = {"token": token}
        if audiences:
            spec["audiences"] = audiences
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": spec}
        answer = await self._call(
            self._objects.create_cluster_custom_object(
                "authentication.k8s.io", "v1", "tokenreviews", body
            )
        )
        status = answer.get("status")
        return status if isinstance(status, dict) else {}

    async def review_access(self, spec: dict[str, Any]) -> bool:
        """Whether a SubjectAccessReview allows it.

        Raises:
            ClusterUnavailableError: The cluster cannot be reached now.
        """
        body = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SubjectAccessReview",
            "spec": spec,
        }
        answer = await self._call(
            self._objects.create_cluster_custom_object(
                "authorization.k8s.io", "v1", "subjectaccessreviews", body
            )
        )
        return bool((answer.get("status") or {}).get("allowed"))

    async def job_uid(self, namespace: str, name: str) -> str | None:
        """The uid of an ElasticJob; None if there is none.

        Raises:
            ClusterUnavailableError: The cluster cannot be reached now.
        """
        job = await self._call(
            self._objects.get_namespaced_custom_object(
                GROUP, VERSION, namespace, ELASTICJOB_PLURAL, name
            ),
            accepted=404,
        )
        uid = (job.get("metadata") or {}).get("uid")
        return uid if isinstance(uid, str) else None

    def name(self, job: JobRow, number: int) -> str:
        """The name of the Scale for an override; it sorts by the plan's number."""
        return f"{job.name}-user-{number:06d}"

    def another_name(self, job: JobRow, number: int) -> str:
        """A name that nobody could have taken before; it sorts as the first one does."""
        return f"{self.name(job, number)}-{secrets.token_hex(4)}"

    async def write(self, job: JobRow, plan: PlanRow) -> None:
        """Create the Scale of an override; the same one that exists already is fine.

        Raises:
            ScaleNameTakenError: Another Scale has its name.
            ClusterRefusedError: The cluster will not take a Scale, for a reason that trying again
                does not change.
            ClusterUnavailableError: The cluster cannot be reached now.
        """
        name = plan.scale or self.name(job, plan.number)
        content = PlanContent.model_validate_json(plan.content)
        spec: dict[str, Any] = {
            "jobRef": {"name": job.name, "uid": job.uid},
            "roles": {
                role.value: target.model_dump(by_alias=True, exclude_none=True, mode="json")
                for role, target in content.roles.items()
            },
            "source": Source.USER.value,
            "policy": plan.policy,
            "reason": plan.reason,
        }
        if plan.message:
            spec["message"] = plan.message
        body = {
            "apiVersion": API_VERSION,
            "kind": SCALE_KIND,
            "metadata": {
                "name": name,
                "namespace": job.namespace,
                "labels": {
                    labels.JOB: job.name,
                    labels.JOB_UID: job.uid,
                    labels.MANAGED_BY: labels.MANAGED_BY_VALUE,
                },
                "annotations": {labels.PLAN: str(plan.number)},
            },
            "spec": spec,
        }
        made = await self._call(
            self._objects.create_namespaced_custom_object(
                GROUP, VERSION, job.namespace, SCALE_PLURAL, body
            ),
            accepted=409,
        )
        if not made:
            there = await self._call(
                self._objects.get_namespaced_custom_object(
                    GROUP, VERSION, job.namespace, SCALE_PLURAL, name
                ),
                accepted=404,
            )
            if not _is_same(there, body):
                raise ScaleNameTakenError(f"Scale {name} is there and is another one")

    async def delete(self, job: JobRow, name: str) -> None:
        """Delete a Scale; one that is gone already is fine.

        Raises:
            ClusterRefusedError: The cluster will not take a Scale, for a reason that trying again
                does not change.
            ClusterUnavailableError: The cluster cannot be reached now.
        """
        await self._call(
            self._objects.delete_namespaced_custom_object(
                GROUP, VERSION, job.namespace, SCALE_PLURAL, name
            ),
            accepted=404,
        )

    async def _call(self, call: Awaitable[Any], accepted: int | None = None) -> dict[str, Any]:
        try:
            async with asyncio.timeout(_TIMEOUT_SECONDS):
                answer = await call
        except ApiException as error:
            if error.status == accepted:
                return {}
            text = f"{error.status}: {_message(error)}"
            if error.status is not None and 400 <= error.status < 500 and error.status != 429:
                raise ClusterRefusedError(text) from error
            raise ClusterUnavailableError(text) from error
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise ClusterUnavailableError(f"{type(error).__name__}: {error}") from error
        return answer if isinstance(answer, dict) else {}


@asynccontextmanager
async def connected_cluster(kubeconfig: str | None) -> AsyncIterator[Cluster]:
    """The cluster of a kubeconfig (files as in ``$KUBECONFIG``), or the one this process runs in.

    Raises:
        ClusterConfigurationError: There is neither.
    """
    configuration = client.Configuration()
    try:
        if kubeconfig is not None:
            # The library is untyped here.
            await config.load_kube_config(  # type: ignore[no-untyped-call]
                config_file=kubeconfig, client_configuration=configuration
            )
        else:
            # The library is untyped here.
            loaded = config.load_incluster_config(  # type: ignore[no-untyped-call]
                client_configuration=configuration
            )
            if asyncio.iscoroutine(loaded):
                await loaded
    except config.ConfigException as error:
        where = "the in-cluster configuration" if kubeconfig is None else f"kubeconfig {kubeconfig}"
        raise ClusterConfigurationError(
            f"{where} cannot be used: {error}; give another with --kubeconfig or $KUBECONFIG, "
            "or --auth=tokens to run without a cluster"
        ) from error
    api = client.ApiClient(configuration)
    try:
        yield Cluster(api)
    finally:
        await api.close()  # type: ignore[no-untyped-call]  # the library is untyped here


def _is_same(there: dict[str, Any], wanted: dict[str, Any]) -> bool:
    """Whether the Scale that has the name is the one that is wanted, and not on its way out."""
    metadata, spec = there.get("metadata") or {}, there.get("spec") or {}
    plan = wanted["metadata"]["annotations"][labels.PLAN]
    return (
        "deletionTimestamp" not in metadata
        and (metadata.get("annotations") or {}).get(labels.PLAN) == plan
        # The server adds defaults beside these, and none of them within the targets of a role.
        and all(spec.get(name) == value for name, value in wanted["spec"].items())
    )


def _message(error: ApiException) -> str:
    try:
        return str(json.loads(error.body or "")["message"])
    except (ValueError, KeyError, TypeError):
        return str(error.reason)
