"""Sends the recorded requests about ElasticJob and Scale to the embedded cluster.

The vectors are those of ``tests/crds/data``; here they go over HTTP to a server that serves the
generated CRDs, so that the server's own defaulting, pruning, validation, CEL, field ownership and
admission policies decide.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from penstock_cluster.testing import Answer, RunningCluster
from tests.crds.vectors import Vector, load

MANIFESTS = Path(__file__).parents[3] / "crds"
GROUP = "/apis/penstock.dev/v1alpha1"
NAMESPACE = "vectors"
MERGE = "application/merge-patch+json"
APPLY = "application/apply-patch+yaml"
_WARNING = re.compile(r'^299 - "(.*)"$')


@dataclass(frozen=True)
class Verdict:
    """What came of a request, in the terms of the recorded vectors."""

    code: int
    fields: set[str]
    body: Any
    warnings: list[str]


def verdict_of(answer: Answer) -> Verdict:
    body = answer.json
    causes = (body.get("details") or {}).get("causes") or [] if answer.status >= 300 else []
    warnings = []
    for line in answer.headers.get("warning", []):
        found = _WARNING.match(line)
        assert found is not None, line
        warnings.append(found[1].replace('\\"', '"'))
    return Verdict(answer.status, {str(cause.get("field", "")) for cause in causes}, body, warnings)


def committed(name: str) -> Iterator[dict[str, Any]]:
    """The documents of a generated manifest, as users apply it."""
    return iter(list(yaml.safe_load_all((MANIFESTS / name).read_text(encoding="utf-8"))))


def serve_resources(cluster: RunningCluster) -> None:
    for name in ("elasticjob.crd.yaml", "scale.crd.yaml"):
        for document in committed(name):
            cluster.apply(document)
    cluster.namespace(NAMESPACE)


def send(cluster: RunningCluster, vector: Vector) -> Verdict:
    """Send one request of ``vectors.json`` and clean up after it."""
    facts = vector.facts
    base = f"{GROUP}/namespaces/{NAMESPACE}/{facts['resource']}"
    before, body = facts.get("before"), facts["object"]
    name = ((before or body).get("metadata") or {}).get("name", "")
    if before:
        _create(cluster, base, before, facts.get("beforeManager"))
    query = dict(facts.get("query") or {})
    operation = facts["operation"]
    if operation == "create":
        answer = cluster.request("POST", base, body, query=query)
    elif operation == "apply":
        path = f"{base}/{name}" + (f"/{facts['subresource']}" if "subresource" in facts else "")
        query["fieldManager"] = facts["manager"]
        answer = cluster.request("PATCH", path, body, content_type=APPLY, query=query)
    else:
        part = {"update": "", "patch-status": "/status", "scale": "/scale"}[operation]
        path = f"{base}/{name}{part}"
        answer = cluster.request("PATCH", path, body, content_type=MERGE, query=query)
    verdict = verdict_of(answer)
    made = verdict.body["metadata"]["name"] if verdict.code < 300 else name
    if before or verdict.code < 300:
        cluster.ok("DELETE", f"{base}/{made}")
    return verdict


def _create(
    cluster: RunningCluster, base: str, before: dict[str, Any], manager: str | None
) -> None:
    path = f"{base}/{before['metadata']['name']}"
    query = {"fieldManager": manager, "force": "true"} if manager else {}
    kind = APPLY if manager else MERGE
    main = {key: value for key, value in before.items() if key != "status"}
    if manager:
        cluster.ok("PATCH", path, main, content_type=APPLY, query=query)
    else:
        cluster.ok("POST", base, main)
    if "status" in before:
        status = {key: value for key, value in before.items() if key != "spec"}
        cluster.ok("PATCH", f"{path}/status", status, content_type=kind, query=query)


# What a trainer may do

TRAINERS = "crdform-a"
OTHER = "crdform-b"


def serve_policies(cluster: RunningCluster) -> dict[str, str]:
    """The role, the policies and the accounts of the policy vectors; a token per account."""
    serve_resources(cluster)
    for document in committed("trainer-policy.yaml"):
        cluster.apply(document)
    for namespace in (TRAINERS, OTHER):
        cluster.namespace(namespace)
    tokens: dict[str, str] = {}
    for vector in load("policy-vectors.json"):
        account = vector.facts["serviceAccount"]
        if account in tokens:
            continue
        namespace, name = account.split("/")
        cluster.create("serviceaccounts", {"metadata": {"name": name}}, namespace)
        for place in vector.facts["boundIn"]:
            cluster.create("rolebindings.rbac.authorization.k8s.io", _binding(account), place)
        tokens[account] = cluster.account_token(namespace, name)
    return tokens


def _binding(account: str) -> dict[str, Any]:
    namespace, name = account.split("/")
    group = "rbac.authorization.k8s.io"
    return {
        "metadata": {"name": name},
        "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": "penstock-trainer"},
        "subjects": [{"kind": "ServiceAccount", "namespace": namespace, "name": name}],
    }


def send_as_trainer(cluster: RunningCluster, vector: Vector, token: str) -> Verdict:
    """Send one request of ``policy-vectors.json`` with the account's own token."""
    facts = vector.facts
    base = f"{GROUP}/namespaces/{facts['namespace']}"
    core = f"/api/v1/namespaces/{facts['namespace']}"
    one = f"{base}/scales/mnist-1"
    if facts.get("before"):
        _create(cluster, f"{base}/scales", facts["before"], None)
    method, path, content_type = {
        "create": ("POST", f"{base}/scales", "application/json"),
        "update": ("PATCH", one, MERGE),
        "delete": ("DELETE", one, ""),
        "patch-status": ("PATCH", f"{one}/status", MERGE),
        "read-job": ("GET", f"{base}/elasticjobs/mnist/status", ""),
        "list": ("GET", f"{base}/scales", ""),
        "list-pods": ("GET", f"{core}/pods", ""),
        "list-secrets": ("GET", f"{core}/secrets", ""),
    }[facts["operation"]]
    answer = cluster.request(
        method, path, facts.get("object"), content_type=content_type, token=token
    )
    cluster.request("DELETE", one)
    return verdict_of(answer)
