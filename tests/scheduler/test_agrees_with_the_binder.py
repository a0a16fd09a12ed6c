"""The scheduler and the embedded cluster's binder read pods and nodes alike.

Each has its own reading, since neither room may import the other; a pin that the one makes and the
other refuses would be deleted and made again for ever.
"""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from penstock.scheduler.eligibility import allows
from penstock.scheduler.objects import held_by, read_constraints, read_node
from penstock_cluster.requests import pod_requests
from penstock_cluster.scheduler.nodes.fit import may_use
from penstock_cluster.scheduler.nodes.selectors import named_nodes

Json = dict[str, Any]
KEYS = st.sampled_from(["zone", "gen", "x"])
VALUES = st.sampled_from(["a", "b", "5", "7"])
NODE_NAMES = st.sampled_from(["n1", "n2"])
GPU = "nvidia.com/gpu"

EXPRESSIONS = st.one_of(
    st.builds(
        lambda key, operator, values: {"key": key, "operator": operator, "values": values},
        KEYS,
        st.sampled_from(["In", "NotIn"]),
        st.lists(VALUES, min_size=1, max_size=2),
    ),
    st.builds(
        lambda key, operator: {"key": key, "operator": operator},
        KEYS,
        st.sampled_from(["Exists", "DoesNotExist"]),
    ),
    st.builds(
        lambda key, operator, value: {"key": key, "operator": operator, "values": [value]},
        KEYS,
        st.sampled_from(["Gt", "Lt"]),
        VALUES,
    ),
)
FIELDS = st.builds(
    lambda operator, name: {"key": "metadata.name", "operator": operator, "values": [name]},
    st.sampled_from(["In", "NotIn"]),
    NODE_NAMES,
)
TERMS = st.fixed_dictionaries(
    {},
    optional={
        "matchExpressions": st.lists(EXPRESSIONS, max_size=2),
        "matchFields": st.lists(FIELDS, max_size=2),
    },
)
TOLERATIONS = st.fixed_dictionaries(
    {"operator": st.sampled_from(["Equal", "Exists"])},
    optional={
        "key": KEYS,
        "value": VALUES,
        "effect": st.sampled_from(["NoSchedule", "NoExecute", "PreferNoSchedule"]),
    },
)
TAINTS = st.fixed_dictionaries(
    {"key": KEYS, "effect": st.sampled_from(["NoSchedule", "NoExecute", "PreferNoSchedule"])},
    optional={"value": VALUES},
)


def affine(terms: list[Json] | None) -> Json:
    if terms is None:
        return {}
    required = {"nodeSelectorTerms": terms}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}


SPECS = st.builds(
    lambda terms, selector, tolerations: {
        "affinity": affine(terms),
        "nodeSelector": selector,
        "tolerations": tolerations,
    },
    st.one_of(st.none(), st.lists(TERMS, min_size=1, max_size=3)),
    st.dictionaries(KEYS, VALUES, max_size=1),
    st.lists(TOLERATIONS, max_size=2),
)
NODES = st.builds(
    lambda name, labels, taints: {
        "metadata": {"name": name, "labels": labels},
        "spec": {"taints": taints},
        "status": {"allocatable": {"cpu": "1"}},
    },
    NODE_NAMES,
    st.dictionaries(KEYS, VALUES, max_size=3),
    st.lists(TAINTS, max_size=2),
)


@given(spec=SPECS, node=NODES)
def test_a_pod_may_use_a_node_for_both_or_for_neither(spec: Json, node: Json) -> None:
    assert allows(read_node(node).traits, read_constraints(spec)) == (may_use(spec, node) is None)


@given(spec=SPECS, node=NODES)
def test_a_node_that_the_affinity_does_not_name_is_not_for_the_pod(spec: Json, node: Json) -> None:
    named = named_nodes(spec)
    if named is not None and node["metadata"]["name"] not in named:
        assert not allows(read_node(node).traits, read_constraints(spec))


CONTAINERS = st.builds(
    lambda name, requests, limits, sidecar: {
        "name": name,
        "resources": {"requests": requests, "limits": limits},
        **({"restartPolicy": "Always"} if sidecar else {}),
    },
    st.sampled_from(["a", "b", "c"]),
    *[
        st.fixed_dictionaries(
            {},
            optional={
                "cpu": st.sampled_from(["100m", "1", "2500m"]),
                "memory": st.sampled_from(["64Mi", "1G", "0.5Gi"]),
                GPU: st.sampled_from(["1", "2"]),
            },
        )
    ]
    * 2,
    st.booleans(),
)


def named_apart(containers: list[Json]) -> list[Json]:
    return [{**one, "name": f"{one['name']}{index}"} for index, one in enumerate(containers)]


@given(
    containers=st.lists(CONTAINERS, min_size=1, max_size=3),
    starting=st.lists(CONTAINERS, max_size=3),
    overhead=st.booleans(),
)
def test_a_pod_holds_the_same_for_both(
    containers: list[Json], starting: list[Json], overhead: bool
) -> None:
    running = [{**one, "restartPolicy": None} for one in named_apart(containers)]
    spec: Json = {
        "containers": running,
        "initContainers": [{**one, "name": f"init-{one['name']}"} for one in named_apart(starting)],
        "overhead": {"cpu": "250m"} if overhead else {},
    }
    theirs = pod_requests({"spec": spec}, count_pod=False)
    ours = held_by(spec, {}, (GPU,), "pod")
    assert ours.milli_cpu == theirs.get("cpu", 0)
    assert ours.memory_bytes == theirs.get("memory", 0)
    assert dict(ours.accelerators).get(GPU, 0) == theirs.get(GPU, 0)
