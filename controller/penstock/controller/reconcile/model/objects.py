"""The objects that a job owns besides its pods: Secret, Service, and its trainer's rights."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from penstock.base import ports
from penstock.base.enums import Strategy
from penstock.controller.reconcile.model.actions import EnsureObject
from penstock.controller.reconcile.model.observed import Job
from penstock.crds import labels
from penstock.crds.group import API_VERSION, ELASTICJOB_KIND
from penstock.crds.policy import SERVICE_ACCOUNT_SUFFIX, trainer_rules

TOKEN_KEY: Final = "token"
SHARE_TOKEN_KEY: Final = "share-token"
_RBAC: Final = "rbac.authorization.k8s.io"


def owner_reference(job: Job) -> dict[str, Any]:
    """The one owner reference of everything that a job owns: deleting the job deletes it."""
    return {
        "apiVersion": API_VERSION,
        "kind": ELASTICJOB_KIND,
        "name": job.name,
        "uid": job.uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }


def job_labels(job: Job) -> dict[str, str]:
    """The labels that every object of a job has."""
    return {
        labels.JOB: job.name,
        labels.JOB_UID: job.uid,
        labels.MANAGED_BY: labels.MANAGED_BY_VALUE,
    }


def metadata(job: Job, name: str) -> dict[str, Any]:
    """Metadata of an object that a job owns."""
    return {
        "name": name,
        "namespace": job.namespace,
        "labels": job_labels(job),
        "ownerReferences": [owner_reference(job)],
    }


def token_secret_name(job: Job) -> str:
    """The Secret that holds the job's token, and its share group's if it has one, by their keys."""
    return f"{job.name}-token"


def trainer_account_name(job: Job) -> str:
    """The ServiceAccount of the job's trainer; admission policies go by this name."""
    return f"{job.name}{SERVICE_ACCOUNT_SUFFIX}"


def object_key(manifest: Mapping[str, Any]) -> str:
    """Kind and name: what a refusal of this object is remembered by."""
    return f"{manifest['kind']} {manifest['metadata']['name']}"


def job_objects(job: Job) -> list[EnsureObject]:
    """The job's own objects, in the order in which they are made."""
    account = trainer_account_name(job)
    servers = job.spec is not None and job.spec.strategy is Strategy.PARAMETER_SERVER
    return [
        EnsureObject(
            "roles",
            {
                "apiVersion": f"{_RBAC}/v1",
                "kind": "Role",
                "metadata": metadata(job, account),
                "rules": trainer_rules(job.name, has_servers=servers),
            },
            # An API server takes no binding to a role that it does not know.
            needed_by_others=True,
        ),
        EnsureObject(
            "secrets",
            {
                "apiVersion": "v1",
                "kind": "Secret",
                "metadata": metadata(job, token_secret_name(job)),
                "type": "Opaque",
                "immutable": True,
            },
            needs_token=True,
            share_group=job.share_group,
        ),
        EnsureObject(
            "serviceaccounts",
            {
                "apiVersion": "v1",
                "kind": "ServiceAccount",
                "metadata": metadata(job, account),
                "automountServiceAccountToken": False,
            },
        ),
        EnsureObject(
            "rolebindings",
            {
                "apiVersion": f"{_RBAC}/v1",
                "kind": "RoleBinding",
                "metadata": metadata(job, account),
                "roleRef": {"apiGroup": _RBAC, "kind": "Role", "name": account},
                "subjects": [
                    {"kind": "ServiceAccount", "name": account, "namespace": job.namespace}
                ],
            },
        ),
        EnsureObject(
            "services",
            {
                "apiVersion": "v1",
                "kind": "Service",
                "metadata": metadata(job, job.name),
                "spec": {
                    "clusterIP": "None",
                    "publishNotReadyAddresses": True,
                    "selector": {labels.JOB_UID: job.uid},
                    "ports": [{"name": "trainer", "port": ports.TRAINER}],
                },
            },
        ),
    ]
