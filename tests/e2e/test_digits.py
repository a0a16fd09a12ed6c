"""One job from apply to success, looked at with kubectl and over REST."""

from __future__ import annotations

import httpx
import pytest

from tests.e2e.control_plane import ControlPlane, needs_kubectl
from tests.e2e.digits import digits_job, final_result

pytestmark = [pytest.mark.e2e, pytest.mark.slow, needs_kubectl]


def test_the_digits_job_succeeds_and_can_be_looked_at(plane: ControlPlane) -> None:
    plane.apply(digits_job("digits", "--epochs=3"))
    plane.wait_for("digits", "Accepted", 10)
    plane.wait_for("digits", "Planned", 20)
    plane.wait_for("digits", "Succeeded")

    row = plane.kubectl("get", "ej", "digits").splitlines()
    assert row[0].split() == ["NAME", "STATE", "WORKERS", "DATA", "PLAN", "AGE"]
    assert row[1].split()[:2] == ["digits", "Succeeded"]
    described = plane.kubectl("describe", "ej/digits")
    assert "Strategy:" in described
    assert "penstock-controller" in described
    result = final_result(plane, "digits")
    assert (result["samples_lost"], result["samples_repeated"]) == (0, 0)
    assert result["samples_seen"] == 3 * 1437
    assert result["accuracy"] > 0.8

    uid = plane.get("ej", "digits")["metadata"]["uid"]
    plans = plane.brain(f"/v1/jobs/{uid}/plans")["items"]
    assert plans[0]["stage"] == "Create"
    assert plans[0]["roles"]["worker"]["replicas"] >= 1
    assert plane.brain(f"/v1/jobs/{uid}")["phase"] == "Succeeded"
    docs = httpx.get(plane.brain_url + "/docs", timeout=10, trust_env=False)
    assert docs.status_code == 200
    plane.kubectl("delete", "ej", "digits")
    assert plane.get("pods", selector="penstock.dev/job=digits")["items"] == []
