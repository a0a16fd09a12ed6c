"""Of a PyTorchJob, each leaf is in the result or named as what it became."""

from __future__ import annotations

import itertools
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from penstock.convert.convert import convert
from penstock.crds.check import faults_in
from tests.convert.manifests import lost

Json = dict[str, Any]
_NUMBERS = itertools.count()


def unique(prefix: str) -> st.SearchStrategy[str]:
    """A word that stands nowhere else, so that finding it means that it was carried over."""
    return st.builds(lambda: f"{prefix}{next(_NUMBERS)}")


def some(**fields: st.SearchStrategy[Any]) -> st.SearchStrategy[Json]:
    """An object with any of these fields."""
    return st.fixed_dictionaries({}, optional=fields)


LABELS = st.dictionaries(unique("label"), unique("value"), max_size=2)
FLAGS = {
    "--nproc_per_node": st.sampled_from(["1", "2", "auto"]),
    "--rdzv_backend": unique("backend"),
    "--rdzv-id": unique("id"),
    "--max-restarts": st.sampled_from(["1", "9"]),
    "--of-tomorrow": unique("tomorrow"),
}
OPTIONS = st.lists(
    st.sampled_from(list(FLAGS)).flatmap(
        lambda name: FLAGS[name].map(lambda value: f"{name}={value}")
    ),
    max_size=3,
)
COMMAND = st.builds(
    lambda options, words: ["torchrun", *options, "train.py", *words],
    OPTIONS,
    st.lists(unique("--word="), max_size=3),
)
CONTAINER = st.fixed_dictionaries(
    {"name": st.just("pytorch"), "image": unique("image"), "command": COMMAND},
    optional={
        "args": st.lists(unique("--arg="), max_size=2),
        "env": st.lists(
            some(name=unique("NAME"), value=unique("value")).filter(bool), max_size=2
        ).map(lambda found: [{"name": "ANY", **one} for one in found]),
        "resources": some(
            limits=some(**{"cpu": st.just("2"), "nvidia.com/gpu": st.just(2)}),
            requests=some(cpu=st.just("1")),
        ),
        "ofTomorrow": unique("tomorrow"),
    },
)
SIDECAR = st.fixed_dictionaries({"name": unique("sidecar"), "image": unique("image")})
TEMPLATE = st.fixed_dictionaries(
    {
        "spec": st.fixed_dictionaries(
            {
                "containers": st.builds(
                    lambda main, others, first: [main, *others] if first else [*others, main],
                    CONTAINER,
                    st.lists(SIDECAR, max_size=2),
                    st.booleans(),
                )
            },
            optional={
                "restartPolicy": st.just("Never"),
                "hostname": unique("host"),
                "nodeSelector": LABELS,
                "volumes": st.lists(st.fixed_dictionaries({"name": unique("volume")}), max_size=2),
                "ofTomorrow": unique("tomorrow"),
            },
        )
    },
    optional={"metadata": some(labels=LABELS, annotations=LABELS, name=unique("name"))},
)
ROLE = st.fixed_dictionaries(
    {"template": TEMPLATE},
    optional={
        "replicas": st.integers(0, 5),
        "restartPolicy": st.sampled_from(["Never", "OnFailure", "Always", "ExitCode"]),
        "ofTomorrow": unique("tomorrow"),
    },
)
RUN_POLICY = some(
    cleanPodPolicy=st.sampled_from(["None", "All", "Running"]),
    ttlSecondsAfterFinished=st.integers(0, 99),
    activeDeadlineSeconds=st.integers(1, 99),
    backoffLimit=st.integers(0, 2000),
    suspend=st.booleans(),
    managedBy=unique("manager"),
    schedulingPolicy=some(
        minAvailable=st.integers(1, 9),
        queue=unique("queue"),
        scheduleTimeoutSeconds=st.integers(0, 99_999),
        priorityClass=unique("class"),
        minResources=some(cpu=st.just("64")),
        ofTomorrow=unique("tomorrow"),
    ),
)
ELASTIC = some(
    minReplicas=st.integers(1, 3),
    maxReplicas=st.integers(3, 9),
    maxRestarts=st.integers(0, 9),
    rdzvBackend=unique("backend"),
    rdzvConf=st.lists(some(key=unique("key"), value=unique("value")), max_size=2),
    nProcPerNode=st.integers(1, 8),
    metrics=st.lists(some(type=unique("type")), max_size=2),
    standalone=st.booleans(),
)
JOB = st.fixed_dictionaries(
    {
        "apiVersion": st.just("kubeflow.org/v1"),
        "kind": st.just("PyTorchJob"),
        "metadata": st.fixed_dictionaries(
            {"name": unique("job")},
            optional={
                "labels": LABELS,
                "annotations": LABELS,
                "uid": unique("uid"),
                "resourceVersion": unique("version"),
            },
        ),
        "spec": st.fixed_dictionaries(
            {
                "pytorchReplicaSpecs": st.one_of(
                    st.fixed_dictionaries({"Worker": ROLE, "Master": ROLE}),
                    st.fixed_dictionaries({"Worker": ROLE}),
                    st.fixed_dictionaries({"Master": ROLE}),
                ).filter(lambda roles: any(one.get("replicas", 1) for one in roles.values()))
            },
            optional={
                "runPolicy": RUN_POLICY,
                "elasticPolicy": ELASTIC,
                "nprocPerNode": st.sampled_from(["1", "gpu", "auto"]),
                "ofTomorrow": unique("tomorrow"),
            },
        ),
    },
    optional={"status": some(startTime=unique("time"))},
)


@given(JOB)
def test_each_leaf_is_in_the_result_or_named(job: Json) -> None:
    conversion = convert(job)
    assert lost(job, conversion) == []
    assert faults_in(conversion.result) == []
