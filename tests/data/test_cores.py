"""How many cores a pod may use, by its cgroups."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from penstock.data.cores import usable_cores

HERE = float(len(os.sched_getaffinity(0)))


def pod(folder: Path, **files: str) -> tuple[Path, Path]:
    root, proc = folder / "cgroup", folder / "proc"
    (proc / "self").mkdir(parents=True)
    (proc / "self" / "cgroup").write_text("4:cpu,cpuacct:/pod\n0::/pod\n")
    for name, text in files.items():
        path = root / name.replace("__", "/").replace("DOT", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root, proc


def test_without_a_limit_they_are_those_of_the_affinity(tmp_path: Path) -> None:
    assert usable_cores(*pod(tmp_path, pod__cpuDOTmax="max 100000\n")) == HERE


def test_a_quota_of_version_2_counts_also_above(tmp_path: Path) -> None:
    root, proc = pod(tmp_path, cpuDOTmax="75000 100000\n", pod__cpuDOTmax="max 100000\n")
    assert usable_cores(root, proc) == 0.75


@pytest.mark.parametrize(("quota", "cores"), [("50000", 0.5), ("-1", HERE), ("nonsense", HERE)])
def test_a_quota_of_version_1(tmp_path: Path, quota: str, cores: float) -> None:
    root, proc = pod(
        tmp_path,
        cpu__pod__cpuDOTcfs_quota_us=quota,
        cpu__pod__cpuDOTcfs_period_us="100000",
    )
    assert usable_cores(root, proc) == cores
