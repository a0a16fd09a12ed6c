"""What a share group has in the cluster: a Service, which all its members own.

It is the one name behind which the members' trainers are found. No member is its founder: whichever
comes first makes it, each of the others adds itself to its owners, and a member that is deleted is
taken out by the garbage collection of Kubernetes, which deletes it with the last one. A group is
one of a namespace: an object of the same name elsewhere is another group's.

The group's token needs no object that all own: it is derived, and each member's Secret has it
beside the member's own (`penstock.controller.execution.tokens`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from penstock.base import ports
from penstock.controller.reconcile.model.actions import EnsureShared
from penstock.controller.reconcile.model.objects import object_key, owner_reference
from penstock.controller.reconcile.model.observed import Job, Refusal
from penstock.crds import labels

_PREFIX: Final = "penstock-share-"
_SHARED: Final = ("apiVersion", "kind", "name", "uid")
"""Of an owner reference: one owner among others neither controls nor blocks its deletion."""


def share_service_name(group: str) -> str:
    """The name of a group's Service."""
    return f"{_PREFIX}{group}"


def share_address(job: Job, group: str) -> str:
    """HOST:PORT behind which the trainers of all members are."""
    return f"{share_service_name(group)}.{job.namespace}.svc:{ports.TRAINER}"


def group_objects(job: Job) -> list[EnsureShared]:
    """What the job's group has, owned by this job; nothing where it has no group."""
    group = job.share_group
    if not group:
        return []
    reference = owner_reference(job)
    manifest = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "name": share_service_name(group),
            "namespace": job.namespace,
            "labels": {labels.SHARE_GROUP: group, labels.MANAGED_BY: labels.MANAGED_BY_VALUE},
            "ownerReferences": [{key: reference[key] for key in _SHARED}],
        },
        "spec": {
            "clusterIP": "None",
            "publishNotReadyAddresses": True,
            "selector": {labels.SHARE_GROUP: group},
            "ports": [{"name": "trainer", "port": ports.TRAINER}],
        },
    }
    return [EnsureShared("services", manifest)]


def group_joined(job: Job, refusals: Mapping[str, Refusal]) -> str:
    """The group that the job's pods are to be of: its own, unless somebody else has its name."""
    refused = any(object_key(one.manifest) in refusals for one in group_objects(job))
    return "" if refused else job.share_group
