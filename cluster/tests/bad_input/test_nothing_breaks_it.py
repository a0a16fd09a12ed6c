"""Whatever is sent, the answer is a proper refusal: never a fault of the server itself."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock_cluster.testing import Answer, RunningCluster, api_server

CRDS = Path(__file__).parents[3] / "crds"
BROKEN = "the request failed; see the server's log"
KINDS = (
    "application/json",
    "application/merge-patch+json",
    "application/json-patch+json",
    "application/strategic-merge-patch+json",
    "application/apply-patch+yaml",
    "application/yaml",
    "application/vnd.kubernetes.protobuf",
    "text/plain",
    "",
)

SAMPLES: dict[str, dict[str, Any]] = {
    "pods": {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p", "labels": {"a": "b"}, "finalizers": ["a.dev/b"]},
        "spec": {
            "schedulingGates": [{"name": "a.dev/g"}],
            "nodeSelector": {"a": "b"},
            "tolerations": [{"key": "k", "operator": "Exists"}],
            "volumes": [{"name": "v", "emptyDir": {}}],
            "containers": [
                {
                    "name": "main",
                    "image": "i",
                    "env": [{"name": "A", "value": "b"}],
                    "ports": [{"containerPort": 80}],
                    "resources": {"limits": {"cpu": "1", "memory": "1Gi"}},
                    "volumeMounts": [{"name": "v", "mountPath": "/v"}],
                }
            ],
        },
    },
    "configmaps": {"metadata": {"name": "c"}, "data": {"a": "b"}, "binaryData": {"c": "AAE="}},
    "secrets": {"metadata": {"name": "s"}, "stringData": {"a": "b"}, "type": "Opaque"},
    "services": {"metadata": {"name": "s"}, "spec": {"ports": [{"port": 80}], "selector": {}}},
    "events": {
        "metadata": {"name": "e"},
        "involvedObject": {"kind": "Pod", "name": "p", "namespace": "default"},
        "reason": "r",
        "firstTimestamp": "2026-01-01T00:00:00Z",
    },
    "leases.coordination.k8s.io": {
        "metadata": {"name": "l"},
        "spec": {"holderIdentity": "a", "renewTime": "2026-01-01T00:00:00.000000Z"},
    },
    "poddisruptionbudgets.policy": {
        "metadata": {"name": "b"},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"a": "b"}}},
    },
    "roles.rbac.authorization.k8s.io": {
        "metadata": {"name": "r"},
        "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}],
    },
    "rolebindings.rbac.authorization.k8s.io": {
        "metadata": {"name": "r"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "r"},
        "subjects": [{"kind": "ServiceAccount", "name": "a", "namespace": "default"}],
    },
    "elasticjobs.penstock.dev": {
        "apiVersion": "penstock.dev/v1alpha1",
        "kind": "ElasticJob",
        "metadata": {"name": "j"},
        "spec": {
            "strategy": "AllReduce",
            "resourceLimits": {"cpu": "4"},
            "replicaSpecs": {
                "worker": {
                    "minReplicas": 1,
                    "template": {"spec": {"containers": [{"name": "m", "image": "i"}]}},
                }
            },
        },
    },
    "scales.penstock.dev": {
        "apiVersion": "penstock.dev/v1alpha1",
        "kind": "Scale",
        "metadata": {"name": "s"},
        "spec": {
            "jobRef": {"name": "j", "uid": "u"},
            "source": "User",
            "roles": {"worker": {"replicas": 1, "ranks": {"0": {"cpu": "1"}}}},
        },
    },
}
CLUSTER_WIDE: dict[str, dict[str, Any]] = {
    "nodes": {
        "metadata": {"name": "n"},
        "spec": {"taints": [{"key": "k", "effect": "NoSchedule"}]},
        "status": {"capacity": {"cpu": "1"}, "conditions": [{"type": "Ready", "status": "True"}]},
    },
    "namespaces": {"metadata": {"name": "ns"}},
    "customresourcedefinitions.apiextensions.k8s.io": yaml.safe_load(
        (CRDS / "scale.crd.yaml").read_text(encoding="utf-8")
    ),
    "validatingadmissionpolicies.admissionregistration.k8s.io": next(
        document
        for document in yaml.safe_load_all((CRDS / "trainer-policy.yaml").read_text())
        if document["kind"] == "ValidatingAdmissionPolicy"
    ),
    "tokenreviews.authentication.k8s.io": {"spec": {"token": "t"}},
    "subjectaccessreviews.authorization.k8s.io": {
        "spec": {"user": "u", "resourceAttributes": {"verb": "get", "resource": "pods"}}
    },
}
ODD: list[Any] = [
    None,
    True,
    0,
    -1,
    2**31,
    2**63,
    2**64,
    1.5,
    "",
    "x",
    "\u0000",
    "a" * 300,
    [],
    {},
    [None],
    [[]],
    [{}],
    {"": ""},
    {"a": None},
    {"a": {"b": []}},
    "2026-13-45T99:99:99Z",
    "-5",
    "1e999",
    ["a", "a"],
    [1, "a", None],
    {"$patch": "delete"},
    {"$retainKeys": 1},
    "\ud83d\ude00",
]


@pytest.fixture(scope="module")
def cluster() -> Iterator[RunningCluster]:
    with api_server() as running:
        for name in ("elasticjob.crd.yaml", "scale.crd.yaml"):
            running.apply(yaml.safe_load((CRDS / name).read_text(encoding="utf-8")))
        yield running


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Every place inside a document."""
    yield path
    if isinstance(value, dict):
        for key, item in value.items():
            yield from places(item, (*path, key))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from places(item, (*path, index))


def spoilt(document: Any, place: tuple[Any, ...], value: Any) -> Any:
    """The document with something odd at one place."""
    if not place:
        return value
    copied = copy.deepcopy(document)
    at = copied
    for key in place[:-1]:
        at = at[key]
    at[place[-1]] = value
    return copied


def check(answer: Answer, what: str) -> None:
    assert BROKEN not in answer.text, what
    assert answer.status < 500 or answer.json["status"] == "Failure", what
    if answer.status >= 400 and "json" in answer.headers.get("content-type", [""])[0]:
        body = answer.json
        assert (body["kind"], body["code"]) == ("Status", answer.status), what


@pytest.mark.parametrize("resource", [*SAMPLES, *CLUSTER_WIDE])
def test_a_value_of_the_wrong_type_anywhere(cluster: RunningCluster, resource: str) -> None:
    """Each place of a document in turn holds each odd value; created, applied and patched in."""
    sample = SAMPLES.get(resource) or CLUSTER_WIDE[resource]
    namespace = "default" if resource in SAMPLES else ""
    path = cluster.path(resource, namespace)
    name = sample.get("metadata", {}).get("name", "x")
    faults: list[str] = []

    def attempt(method: str, target: str, body: Any, kind: str, **query: str) -> None:
        answer = cluster.request(method, target, body, content_type=kind, query=query)
        if BROKEN in answer.text:
            faults.append(f"{method} {target} {kind} {json.dumps(body)[:300]}")

    spots = list(places(sample))
    for index, place in enumerate(spots[:: max(1, len(spots) // 40)]):
        for offset in range(6):
            odd = ODD[(index * 7 + offset * 5) % len(ODD)]
            body = spoilt(sample, place, odd)
            text = json.dumps(body)
            attempt("POST", path, text, "application/json", dryRun="All")
            if resource.endswith(("reviews.authentication.k8s.io", "authorization.k8s.io")):
                continue
            attempt("PATCH", f"{path}/{name}", text, KINDS[4], fieldManager="m", dryRun="All")
    cluster.request("POST", path, sample)
    for index, place in enumerate(spots[:: max(1, len(spots) // 20)]):
        for offset in range(4):
            odd = ODD[(index * 11 + offset * 7) % len(ODD)]
            text = json.dumps(spoilt(sample, place, odd))
            attempt("PATCH", f"{path}/{name}", text, KINDS[1], dryRun="All")
            attempt("PATCH", f"{path}/{name}", text, KINDS[3], dryRun="All")
            attempt("PUT", f"{path}/{name}", text, "application/json", dryRun="All")
    assert faults == [], f"{len(faults)} requests broke the server"


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    body=st.one_of(
        st.binary(max_size=60),
        st.text(max_size=60).map(lambda text: text.encode("utf-8", "surrogatepass")),
        st.recursive(
            st.none() | st.booleans() | st.floats() | st.text(max_size=8) | st.integers(),
            lambda inner: (
                st.lists(inner, max_size=3)
                | st.dictionaries(
                    st.sampled_from(["metadata", "spec", "kind", "op", "path", "value", "a"]), inner
                )
            ),
            max_leaves=12,
        ).map(lambda value: json.dumps(value).encode()),
    ),
    kind=st.sampled_from(KINDS),
    method=st.sampled_from(["POST", "PUT", "PATCH", "DELETE"]),
    resource=st.sampled_from(["pods", "configmaps", "elasticjobs.penstock.dev"]),
)
def test_any_bytes_of_any_type(
    cluster: RunningCluster, body: bytes, kind: str, method: str, resource: str
) -> None:
    path = cluster.path(resource, "default") + ("" if method == "POST" else "/absent")
    answer = cluster.request(method, path, body, content_type=kind, query={"fieldManager": "m"})
    check(answer, f"{method} {path} {kind} {body!r}")


QUERIES = (
    "labelSelector",
    "fieldSelector",
    "limit",
    "continue",
    "resourceVersion",
    "resourceVersionMatch",
    "timeoutSeconds",
    "dryRun",
    "fieldManager",
    "fieldValidation",
    "force",
    "gracePeriodSeconds",
    "propagationPolicy",
    "orphanDependents",
    "includeObject",
    "pretty",
    "sendInitialEvents",
    "allowWatchBookmarks",
)


@settings(max_examples=200, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    query=st.dictionaries(
        st.sampled_from(QUERIES),
        st.sampled_from(
            [
                "",
                "0",
                "-1",
                "x",
                "true",
                "a=b",
                "a in (",
                "!",
                "=",
                "a,,b",
                "\u0000",
                "9" * 30,
                "All",
                "Exact",
                "spec.nodeName=",
                "eyJ2Ijox",
                "%",
            ]
        )
        | st.text(max_size=10),
        max_size=3,
    ),
    method=st.sampled_from(["GET", "POST", "DELETE", "PATCH"]),
    name=st.sampled_from(["", "/absent", "/absent/status", "/absent/scale", "/absent/log", "//x"]),
    resource=st.sampled_from(["pods", "nodes", "elasticjobs.penstock.dev"]),
)
def test_any_query(
    cluster: RunningCluster, query: dict[str, str], method: str, name: str, resource: str
) -> None:
    encoded = {key: value.encode("utf-8", "surrogatepass") for key, value in query.items()}
    if encoded.get("resourceVersion", b"").strip(b"9") == b"" and "resourceVersion" in encoded:
        encoded["resourceVersion"] = b"1"  # one from the future is waited for, by design
    path = cluster.path(resource, "default") + name
    answer = cluster.request(method, path, {} if method != "GET" else None, query=encoded)
    check(answer, f"{method} {path} {query}")


@pytest.mark.parametrize("depth", [100, 1_000, 50_000])
@pytest.mark.parametrize("kind", ["application/json", "application/apply-patch+yaml"])
def test_deeply_nested_documents(cluster: RunningCluster, depth: int, kind: str) -> None:
    path = cluster.path("configmaps", "default")
    for opening, closing in (("[", "]"), ('{"a":', "}")):
        body = opening * depth + "1" + closing * depth
        if kind == "application/json":
            answer = cluster.request("POST", path, body, content_type=kind)
        else:
            query = {"fieldManager": "m"}
            answer = cluster.request("PATCH", f"{path}/x", body, content_type=kind, query=query)
        check(answer, f"{opening} {depth}")
        assert answer.status >= 400


def test_yaml_that_would_grow_without_bound_is_refused(cluster: RunningCluster) -> None:
    lines = ["a: &a [x, x, x, x, x, x, x, x, x, x]"]
    previous = "a"
    for name in "bcdefghi":
        lines.append(f"{name}: &{name} [{', '.join([f'*{previous}'] * 10)}]")
        previous = name
    answer = cluster.request(
        "PATCH",
        cluster.path("configmaps", "default", "x"),
        "\n".join(lines),
        content_type=KINDS[4],
        query={"fieldManager": "m"},
    )
    check(answer, "aliases")
    assert answer.status >= 400


def test_the_server_still_answers(cluster: RunningCluster) -> None:
    assert cluster.request("GET", "/readyz").text == "ok"
