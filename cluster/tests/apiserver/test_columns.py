"""Columns of tables: ages, the state of a pod, JSON paths of CRDs."""

from __future__ import annotations

from typing import Any

import pytest

from penstock_cluster.apiserver.content.columns import duration, json_path, pod_state


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (-5, "<invalid>"),
        (0, "0s"),
        (119, "119s"),
        (120, "2m"),
        (125, "2m5s"),
        (600, "10m"),
        (3 * 3600 - 1, "179m"),
        (3 * 3600, "3h"),
        (3 * 3600 + 1800, "3h30m"),
        (9 * 3600 + 1800, "9h"),
        (49 * 3600, "2d1h"),
        (10 * 86400, "10d"),
        (800 * 86400, "2y70d"),
        (25 * 365 * 86400, "25y"),
    ],
)
def test_durations(seconds: int, shown: str) -> None:
    assert duration(seconds) == shown


OBJECT = {
    "spec": {"a": 1, "list": [{"n": "x"}, {"n": "y"}]},
    "status": {"conditions": [{"type": "Ready", "status": "True"}]},
    "metadata": {"annotations": {"a.b/c": "v"}},
}


@pytest.mark.parametrize(
    ("path", "found"),
    [
        (".spec.a", [1]),
        (".spec.missing", []),
        (".spec.list[1].n", ["y"]),
        (".spec.list[*].n", ["x", "y"]),
        ('.status.conditions[?(@.type=="Ready")].status', ["True"]),
        (".status.conditions[?(@.type=='Gone')].status", []),
        (r".metadata.annotations.a\.b/c", []),
        (".metadata.annotations['a.b/c']", ["v"]),
        ("..everything", []),
    ],
)
def test_json_paths(path: str, found: list[Any]) -> None:
    assert json_path(path)(OBJECT) == found


def _pod(status: dict[str, Any], **metadata: Any) -> dict[str, Any]:
    return {"metadata": metadata, "spec": {"containers": [{}]}, "status": status}


@pytest.mark.parametrize(
    ("pod", "state"),
    [
        (_pod({"phase": "Pending"}), "Pending"),
        (_pod({"phase": "Failed", "reason": "Evicted"}), "Evicted"),
        (
            _pod(
                {
                    "phase": "Pending",
                    "conditions": [
                        {"type": "PodScheduled", "status": "False", "reason": "SchedulingGated"}
                    ],
                }
            ),
            "SchedulingGated",
        ),
        (
            _pod(
                {
                    "phase": "Running",
                    "containerStatuses": [{"state": {"waiting": {"reason": "CrashLoopBackOff"}}}],
                }
            ),
            "CrashLoopBackOff",
        ),
        (
            _pod(
                {
                    "phase": "Failed",
                    "containerStatuses": [{"state": {"terminated": {"exitCode": 3}}}],
                }
            ),
            "ExitCode:3",
        ),
        (
            _pod(
                {
                    "phase": "Failed",
                    "containerStatuses": [
                        {"state": {"terminated": {"exitCode": 137, "reason": "OOMKilled"}}}
                    ],
                }
            ),
            "OOMKilled",
        ),
        (_pod({"phase": "Running"}, deletionTimestamp="2001-01-01T00:00:00Z"), "Terminating"),
    ],
)
def test_the_state_of_a_pod(pod: dict[str, Any], state: str) -> None:
    assert pod_state(pod) == state
