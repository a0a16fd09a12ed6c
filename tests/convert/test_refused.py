"""What cannot be converted is refused in one line that says why, and what to do."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.base.yaml_text import documents
from penstock.convert.convert import convert
from penstock.convert.source import RefusedError
from tests.convert.manifests import (
    BATCH_JOB,
    DLROVER_JOB,
    PYTORCH_JOB,
    RUNTIME,
    TF_JOB,
    TRAIN_JOB,
    lost,
)

ROLES = "spec.pytorchReplicaSpecs"
NODE = "spec.template.spec.containers.0"

FAULTS: list[tuple[str, str, Any, str]] = [
    (PYTORCH_JOB, "metadata.name", "9lives", "metadata.name: 9lives: must be at most 63"),
    (PYTORCH_JOB, "spec", 5, "spec: 5: must be an object"),
    (PYTORCH_JOB, ROLES, None, f"{ROLES}: must have Worker"),
    (PYTORCH_JOB, f"{ROLES}.Worker.replicas", "3", "replicas: 3: must be a whole number"),
    (PYTORCH_JOB, f"{ROLES}.Worker.replicas", 5000, "spec.replicaSpecs.worker.replicas"),
    (PYTORCH_JOB, f"{ROLES}.Worker.template", None, "a pod template is needed"),
    (PYTORCH_JOB, f"{ROLES}.Worker.template.spec.containers", [], "at least one container"),
    (PYTORCH_JOB, f"{ROLES}.Launcher", {}, "must have Worker, Master, or both"),
    (DLROVER_JOB, "spec.distributionStrategy", "Ring", "Ring: must be one of"),
    (DLROVER_JOB, "spec.replicaSpecs.worker", None, "must have worker"),
    (DLROVER_JOB, "spec.replicaSpecs.actor", {}, "actor: {}: is no role"),
    (TF_JOB, "spec.tfReplicaSpecs.Ring", {}, "Ring: {}: must be one of Worker, Chief"),
    (TF_JOB, "spec.tfReplicaSpecs", {"PS": {"replicas": 2}}, "has no Worker and no Chief"),
    (TRAIN_JOB, "spec.runtimeRef.name", "flux-distributed", "Flux starts its programs"),
    (TRAIN_JOB, "spec.runtimeRef.name", None, "must name a runtime"),
    (TRAIN_JOB, "spec.trainer.command", None, "the image's own entry point is not known"),
    (TRAIN_JOB, "spec.trainer.command", ["torchrun", 1], "must be a list of strings"),
    (BATCH_JOB, "spec.completions", 9, "9: of which 1 run at once: a queue of runs"),
    (BATCH_JOB, f"{NODE}.command", ["mpirun", "x"], "mpirun: programs of MPI"),
    (BATCH_JOB, "kind", "CronJob", "CronJob of batch is no job that can be converted"),
    (BATCH_JOB, "kind", None, "kind: is needed: one of PyTorchJob"),
    (BATCH_JOB, "apiVersion", None, "Job: apiVersion: is needed"),
    (BATCH_JOB, "apiVersion", "batch.volcano.sh/v1", "Job of batch is"),
    (RUNTIME, "metadata.name", "x", "a runtime is no job: convert the TrainJob"),
]


def changed(text: str, path: str, value: Any) -> Any:
    """A manifest with one field changed, or (None) without it."""
    [document] = documents(text)
    *steps, last = [int(step) if step.isdecimal() else step for step in path.split(".")]
    place = document
    for step in steps:
        place = place[step]
    if value is None:
        del place[last]
    else:
        place[last] = value
    return document


@pytest.mark.parametrize(("text", "path", "value", "said"), FAULTS)
def test_one_line_says_why(text: str, path: str, value: Any, said: str) -> None:
    with pytest.raises(RefusedError) as refused:
        convert(changed(text, path, value))
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("document", [None, 5, "text", [], [{}]])
def test_what_is_no_object_is_refused(document: Any) -> None:
    with pytest.raises(RefusedError, match="no manifest"):
        convert(document)


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The paths of all values but the root."""
    below = value.items() if isinstance(value, dict) else enumerate(value)
    found = []
    for key, one in below:
        found.append((*path, key))
        if isinstance(one, dict | list):
            found += places(one, (*path, key))
    return found


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5000) | st.text(max_size=6),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3)
    ),
    max_leaves=6,
)
TEXTS = [PYTORCH_JOB, DLROVER_JOB, TRAIN_JOB, TF_JOB, BATCH_JOB]


@given(data=st.data(), text=st.sampled_from(TEXTS), value=JSON)
def test_whatever_stands_in_a_field_is_converted_whole_or_refused(
    data: st.DataObject, text: str, value: Any
) -> None:
    [document] = documents(text)
    document = copy.deepcopy(document)
    path = data.draw(st.sampled_from(places(document)))
    place = document
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = value
    try:
        conversion = convert(document)
    except RefusedError:
        return
    assert lost(document, conversion) == []
