"""Stand-ins are where a manifest's commands look for their programs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.converted import claims_of, met, programs_of, stand_ins


@pytest.mark.parametrize(
    ("command", "programs"),
    [
        ("penstock run --nproc-per-node=2 -- ./ex/a-b/train.py --x 1", ["ex/a-b/train.py"]),
        ("(bash a/chaos.sh kill &) && penstock run -- a/train.py", ["a/chaos.sh", "a/train.py"]),
        ("cd ./tf/criteo && python -m trainer.entry --conf=a.B", ["tf/criteo/trainer/entry.py"]),
        ("python -m zoo.iris --data=/data/iris.csv", ["zoo/iris.py"]),
    ],
)  # fmt: skip
def test_each_program_is_found_in_its_folder(command: str, programs: list[str]) -> None:
    assert sorted(programs_of(command)) == programs


def test_containers_begin_where_the_stand_ins_are(tmp_path: Path) -> None:
    container = {"name": "main", "command": ["bash", "-c", "cd a && python -m b.c"]}
    volume = {"name": "data", "persistentVolumeClaim": {"claimName": "nas"}}
    template = {"spec": {"containers": [container], "volumes": [volume, {"name": "x"}]}}
    job = {"spec": {"replicaSpecs": {"worker": {"template": template}}}}
    stand_ins(job, tmp_path / "image", tmp_path / "told")
    assert container["workingDir"] == str(tmp_path / "image")
    assert "runpy" in (tmp_path / "image/a/b/c.py").read_text()
    assert (tmp_path / "image/a/b/__init__.py").exists()
    assert claims_of(job) == {"nas"}


def test_who_did_not_meet_is_not_counted(tmp_path: Path) -> None:
    assert met(tmp_path) == {"there": 0, "met": 0}
    for rank, total in enumerate((3, 3)):
        told = {"world": 2, "sum": total, "local": 0}
        (tmp_path / f"rank-{rank}").write_text(json.dumps(told))
    assert met(tmp_path) == {"there": 2, "met": 2}
    (tmp_path / "rank-1").write_text(json.dumps({"world": 1, "sum": 1, "local": 0}))
    assert met(tmp_path) == {"there": 2, "met": 1}
    (tmp_path / "met").write_text(json.dumps({"chief-0": "chief-0", "ps-0": ""}))
    assert met(tmp_path) == {"there": 2, "met": 1}
