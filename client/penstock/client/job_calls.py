"""What is done to a job through the Kubernetes API, as calls: pure, nothing is sent here."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping
from typing import Any, Final

from penstock.base.enums import Policy, Role, Source
from penstock.client.errors import JobEndedError
from penstock.client.kubernetes import resources
from penstock.client.kubernetes.resources import JOBS, SCALES, ClusterCall, Json
from penstock.crds import labels
from penstock.crds.group import API_VERSION, ELASTICJOB_KIND, SCALE_KIND
from penstock.crds.scale_order import position_of

ENDED: Final = ("Succeeded", "Failed")
"""Conditions of a job after which nothing changes any more."""


def submit(manifest: Mapping[str, Any], namespace: str, *, dry_run: bool = False) -> ClusterCall:
    """Create a job. The namespace of the manifest wins.

    Raises:
        ValueError: Another kind.
    """
    if manifest.get("kind") != ELASTICJOB_KIND:
        raise ValueError(f"kind: {ELASTICJOB_KIND} expected, got {manifest.get('kind')!r}")
    body = copy.deepcopy(dict(manifest))
    metadata = body.get("metadata")
    if not isinstance(metadata, dict):
        raise ValueError("metadata: a name is needed")
    metadata["namespace"] = metadata.get("namespace") or namespace
    call = resources.create(JOBS, body, str(metadata["namespace"]))
    if dry_run:
        query = {**call.query, "dryRun": "All"}
        return ClusterCall(method=call.method, path=call.path, query=query, body=body)
    return call


def suspend(name: str, namespace: str, wanted: bool) -> ClusterCall:
    return resources.patch(JOBS, name, {"spec": {"suspend": wanted}}, namespace)


def scale(
    job: Json,
    roles: Mapping[Role, Json],
    *,
    now_seconds: float,
    policy: Policy = Policy.APPLY,
    reason: str = "Override",
    message: str = "",
    dry_run: bool = False,
) -> ClusterCall:
    """A person's Scale for a job as it was read.

    Its name is made of the time, to the microsecond, so that two people at once do not meet in one:
    of two Scales made within one second the greater name counts.
    """
    metadata = job["metadata"]
    milliseconds, microseconds = divmod(int(now_seconds * 1_000_000), 1000)
    spec: Json = {
        "jobRef": {"name": metadata["name"], "uid": metadata["uid"]},
        "roles": {role.value: target for role, target in roles.items()},
        "source": Source.USER.value,
        "policy": policy.value,
        "reason": reason,
    }
    if message:
        spec["message"] = message
    if dry_run:
        spec["dryRun"] = True
    body = {
        "apiVersion": API_VERSION,
        "kind": SCALE_KIND,
        "metadata": {
            "name": f"{metadata['name']}-{milliseconds:013d}-{microseconds:03d}-user",
            "labels": {labels.JOB: metadata["name"], labels.JOB_UID: metadata["uid"]},
        },
        "spec": spec,
    }
    return resources.create(SCALES, body, metadata["namespace"])


def scales_of(job: Json, scales: Iterable[Json]) -> list[Json]:
    """The Scales of exactly this job, in the order in which they count."""
    uid = job["metadata"]["uid"]
    mine = [each for each in scales if each["spec"]["jobRef"].get("uid") == uid]
    return sorted(mine, key=position_of)


def pins(scales: Iterable[Json], role: Role | None = None) -> list[Json]:
    """The Scales that pin, of one role or of any."""
    return [
        each
        for each in scales
        if each["spec"].get("policy") == Policy.PIN
        and not each["spec"].get("dryRun")
        and (role is None or role.value in each["spec"]["roles"])
    ]


def made_through_brain(pins: Iterable[Json]) -> bool:
    """Whether the Brain made one of them, and must know that it is gone, or it makes it again."""
    return any(labels.PLAN in (pin["metadata"].get("annotations") or {}) for pin in pins)


def unpin(pin: Json) -> ClusterCall:
    """Delete a pin, if it is still the one that was read."""
    metadata = pin["metadata"]
    return resources.delete(SCALES, metadata["name"], metadata["namespace"], uid=metadata["uid"])


def condition(document: Json, kind: str) -> Json | None:
    """A condition of an object's status; None where it is not written yet."""
    for each in (document.get("status") or {}).get("conditions") or ():
        if each["type"] == kind:
            found: Json = each
            return found
    return None


def holds(document: Json, kind: str) -> bool:
    """Whether a condition is True of the object as it is now, not as it was before an edit."""
    found = condition(document, kind)
    if found is None or found["status"] != "True":
        return False
    seen = found.get("observedGeneration")
    return kind in ENDED or seen is None or seen >= document["metadata"].get("generation", 0)


def awaited(job: Json, wanted: str) -> bool:
    """Whether the condition that is waited for holds.

    Raises:
        JobEndedError: It never will: the job has ended otherwise.
    """
    if holds(job, wanted):
        return True
    for end in ENDED:
        if end != wanted and holds(job, end):
            said = (condition(job, end) or {}).get("message") or ""
            raise JobEndedError(
                f"job {job['metadata']['name']} has ended as {end} before it was {wanted}"
                + (f": {said}" if said else "")
            )
    return False
