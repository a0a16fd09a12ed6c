"""A folder of manifests is held against the definitions, the API server, and its own fields."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from benchmarks import manifests
from tests.convert.manifests import BATCH_JOB, DLROVER_JOB, PYTORCH_JOB, RUNTIME, TRAIN_JOB


def run(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr(sys, "argv", ["manifests", *arguments, "--json"])
    return manifests.main()


def test_every_manifest_is_accepted_and_nothing_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    jobs = [PYTORCH_JOB, DLROVER_JOB, TRAIN_JOB.replace("torch-distributed", "ours"), BATCH_JOB]
    for number, job in enumerate(jobs):
        beside = f"\n---\n{RUNTIME}" if "TrainJob" in job else ""
        (tmp_path / f"{number}.yaml").write_text(job + beside)
    assert run(monkeypatch, str(tmp_path)) == 0
    found = json.loads(capsys.readouterr().out)
    assert [row["manifest"] for row in found["manifests"]] == [
        "PyTorchJob/faces", "ElasticJob/words", "TrainJob/tunes", "Job/single",
    ]  # fmt: skip
    assert all(goal["ok"] for goal in found["goals"])


def test_too_many_refusals_miss_the_goal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "job.yaml").write_text(f"{BATCH_JOB}\n---\n{{apiVersion: v1, kind: Pod}}")
    assert run(monkeypatch, str(tmp_path), "--most-refused=0") == 1
    rows = json.loads(capsys.readouterr().out)["manifests"]
    assert "no job that can be converted" in rows[1]["refused"]
