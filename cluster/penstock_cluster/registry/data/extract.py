"""Writes ``core-types.json``: the structure of the built-in kinds, without their descriptions.

    python cluster/penstock_cluster/registry/data/extract.py DEFINITIONS.json

DEFINITIONS.json is ``_definitions.json`` of the package ``kubernetes-validate`` (any wheel of it
carries one per Kubernetes version), which is derived from the OpenAPI document that Kubernetes
publishes. Kept are the facts that the engine needs: names and types of fields, which are required,
list types and keys, merge keys. The committed file came from version 1.37.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

_META = "io.k8s.apimachinery.pkg.apis.meta.v1."
_ROOTS = {
    "io.k8s.api.core.v1.": (
        "Binding ConfigMap Endpoints Event LimitRange Namespace Node PersistentVolume "
        "PersistentVolumeClaim Pod PodTemplate ReplicationController ResourceQuota Secret Service "
        "ServiceAccount"
    ),
    "io.k8s.api.apps.v1.": "ControllerRevision DaemonSet Deployment ReplicaSet StatefulSet",
    "io.k8s.api.batch.v1.": "CronJob Job",
    "io.k8s.api.autoscaling.v1.": "HorizontalPodAutoscaler Scale",
    "io.k8s.api.autoscaling.v2.": "HorizontalPodAutoscaler",
    "io.k8s.api.coordination.v1.": "Lease",
    "io.k8s.api.events.v1.": "Event",
    "io.k8s.api.policy.v1.": "PodDisruptionBudget Eviction",
    "io.k8s.api.rbac.v1.": "ClusterRole ClusterRoleBinding Role RoleBinding",
    "io.k8s.api.scheduling.v1.": "PriorityClass",
    "io.k8s.api.storage.v1.": "StorageClass",
    "io.k8s.api.discovery.v1.": "EndpointSlice",
    "io.k8s.api.networking.v1.": "Ingress IngressClass NetworkPolicy",
    "io.k8s.api.node.v1.": "RuntimeClass",
    "io.k8s.api.authentication.v1.": "SelfSubjectReview TokenRequest TokenReview",
    "io.k8s.api.authorization.v1.": (
        "LocalSubjectAccessReview SelfSubjectAccessReview SelfSubjectRulesReview "
        "SubjectAccessReview"
    ),
    "io.k8s.api.admissionregistration.v1.": (
        "MutatingWebhookConfiguration ValidatingAdmissionPolicy ValidatingAdmissionPolicyBinding "
        "ValidatingWebhookConfiguration"
    ),
    "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.": "CustomResourceDefinition",
    _META: "DeleteOptions ObjectMeta Status ListMeta",
}
_DROPPED = {"description", "default"}


def _clean(value: Any, *, is_schema: bool = True) -> Any:
    if isinstance(value, list):
        return [_clean(item) for item in value]
    if not isinstance(value, dict):
        return value
    cleaned: dict[str, Any] = {}
    for key, item in value.items():
        if key == "properties":
            cleaned[key] = {name: _clean(schema) for name, schema in item.items()}
        elif key in _DROPPED or (key == "enum" and is_schema):
            continue
        elif key == "$ref":
            cleaned[key] = item.rsplit("/", 1)[-1]
        elif key == "type" and isinstance(item, list):
            cleaned[key] = next(name for name in item if name != "null")
        else:
            cleaned[key] = _clean(item)
    return cleaned


def _references(value: Any) -> set[str]:
    if isinstance(value, list):
        return set().union(*map(_references, value)) if value else set()
    if not isinstance(value, dict):
        return set()
    found = {value["$ref"]} if isinstance(value.get("$ref"), str) else set()
    return found.union(*(_references(item) for item in value.values()))


def main(source: str) -> None:
    definitions = json.loads(Path(source).read_text())["$defs"]
    wanted = {prefix + name for prefix, names in _ROOTS.items() for name in names.split()}
    kept: dict[str, Any] = {}
    while wanted:
        name = wanted.pop()
        kept[name] = _clean(definitions[name])
        wanted |= _references(kept[name]) - kept.keys()
    lines = [
        f"{json.dumps(name)}: {json.dumps(kept[name], separators=(',', ':'), sort_keys=True)}"
        for name in sorted(kept)
    ]
    target = Path(__file__).with_name("core-types.json")
    target.write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    main(sys.argv[1])
