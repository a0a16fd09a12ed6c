"""What the planner reads of a pod, and what a pin makes of its affinity."""

from __future__ import annotations

import pytest

from penstock.scheduler.model.pod_view import pinned_terms, read_time, read_view
from tests.scheduler.planner.documents import GPU, pod

PIN = {"key": "metadata.name", "operator": "In", "values": ["n1"]}
ZONE = {"key": "zone", "operator": "In", "values": ["a"]}
OTHER = {"key": "metadata.name", "operator": "NotIn", "values": ["n2"]}


def affinity(*terms: dict[str, object]) -> dict[str, object]:
    return {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": list(terms)}
        }
    }


def test_a_pod_without_terms_gets_one() -> None:
    assert pinned_terms(None, "n1") == [{"matchFields": [PIN]}]


def test_every_term_is_narrowed_and_none_is_added() -> None:
    terms = [{"matchExpressions": [ZONE]}, {"matchFields": [OTHER]}]
    assert pinned_terms(terms, "n1") == [
        {"matchExpressions": [ZONE], "matchFields": [PIN]},
        {"matchFields": [OTHER, PIN]},
    ]


def test_a_term_that_matches_nothing_is_left_as_it_is() -> None:
    assert pinned_terms([{}, {"matchExpressions": [ZONE]}], "n1")[0] == {}


def test_the_gate_and_the_labels_are_read() -> None:
    view = read_view(pod("p", job="j", rank=3, gated=True))
    assert view.gated
    assert view.held_back
    assert view.waits
    assert view.is_data_worker
    assert (view.job, view.job_uid, view.rank) == ("j", "uid-j", 3)


def test_a_label_without_the_jobs_uid_makes_no_pod_ours() -> None:
    document = pod("p")
    document["metadata"]["labels"] = {"penstock.dev/role": "data-worker"}
    assert read_view(document).role == ""


def test_what_a_pinned_data_worker_asks_for_does_not_hold_it_to_its_node() -> None:
    pinned = pod("p", job="j", on="n1", affinity=affinity({"matchFields": [OTHER, PIN]}))
    request = read_view(pinned).request
    assert request is not None
    assert request.constraints.affinity is not None
    [term] = request.constraints.affinity
    assert [one.operator for one in term.fields] == ["NotIn"]
    alone = read_view(pod("p", job="j", on="n1", affinity=affinity({"matchFields": [PIN]})))
    assert alone.request is not None
    assert alone.request.constraints.affinity is None


def test_a_quantity_that_is_none_is_named_and_not_raised() -> None:
    view = read_view(pod("p", cpu="many", gated=True))
    assert view.request is None
    assert "default/p" in view.problem
    assert "many" in view.problem


def test_two_kinds_of_accelerators_are_a_problem() -> None:
    document = pod("p", gpus=1, gated=True)
    document["spec"]["containers"][0]["resources"]["requests"]["amd.com/gpu"] = "1"
    assert GPU in read_view(document).problem


@pytest.mark.parametrize("text", [None, "", "yesterday"])
def test_a_time_that_cannot_be_read_is_none(text: str | None) -> None:
    assert read_time(text) is None


def test_annotations_that_are_no_numbers_count_as_none() -> None:
    document = pod("p", job="j")
    document["metadata"]["annotations"] = {
        "penstock.dev/placement-node": "n1",
        "penstock.dev/placement-time": "noon",
        "controller.kubernetes.io/pod-deletion-cost": "dear",
    }
    view = read_view(document)
    assert (view.pinned_to, view.pinned_seconds, view.deletion_cost) == ("n1", 0.0, 0)
