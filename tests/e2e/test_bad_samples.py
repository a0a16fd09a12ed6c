"""A sample that cannot be read fails the job, or the job goes on without it: its spec decides."""

from __future__ import annotations

import pytest

from tests.data.planes import SCRIPT
from tests.e2e.control_plane import ControlPlane, Json, job_manifest, needs_kubectl, script

pytestmark = [pytest.mark.e2e, pytest.mark.slow, needs_kubectl]


def job(name: str, **options: object) -> Json:
    """The script that knows nothing of Penstock, with a dataset that raises on sample 77."""
    made = job_manifest(name, [*script(SCRIPT), "bad"], optimize="Manual", **options)
    made["spec"]["failurePolicy"] = {"maxRestarts": 0}
    return made


def test_the_spec_says_whether_a_bad_sample_fails_the_job(plane: ControlPlane) -> None:
    plane.apply(job("strict"))
    plane.apply(job("lenient", input={"skipBad": True}))

    plane.wait_for("strict", "Failed")
    printed = plane.kubectl("logs", "strict-worker-0-0", "--tail=-1")
    assert "RuntimeError: no such picture" in printed
    assert "Penstock: sample 77 of loader-0[0] epoch 0" in printed

    plane.wait_for("lenient", "Succeeded")
    printed = plane.kubectl("logs", "lenient-worker-0-0", "--tail=-1")
    assert printed.count("sample 77 is left out: Traceback") == 2, "once in each epoch"
    assert "RuntimeError: no such picture" in printed
    for name in ("strict", "lenient"):
        plane.kubectl("delete", "ej", name)
