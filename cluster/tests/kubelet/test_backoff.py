"""The crash-loop back-off of the real kubelet."""

from __future__ import annotations

import pytest

from penstock_cluster.kubelet.state.backoff import Backoff, BackoffOptions, should_restart


def test_the_first_restart_is_immediate_then_it_doubles() -> None:
    backoff = Backoff(BackoffOptions())
    delays = [backoff.delay(1.0) for _ in range(8)]
    assert delays == [0, 10, 20, 40, 80, 160, 300, 300]


def test_a_long_run_is_forgiven() -> None:
    backoff = Backoff(BackoffOptions())
    for _ in range(5):
        backoff.delay(1.0)
    assert backoff.delay(601.0) == 0
    assert backoff.delay(1.0) == 10


@pytest.mark.parametrize(
    ("policy", "code", "expected"),
    [
        ("Always", 0, True),
        ("Always", 1, True),
        ("OnFailure", 0, False),
        ("OnFailure", 1, True),
        ("Never", 0, False),
        ("Never", 1, False),
    ],
)
def test_restart_policies(policy: str, code: int, expected: bool) -> None:
    assert should_restart(policy, code) is expected
