"""Two folders with a `sitecustomize` on one PYTHONPATH: the pod's network and the data workers'.

A worker has both, and its program may bring a third.
"""

from __future__ import annotations

import os
import subprocess
import sys
from itertools import permutations
from pathlib import Path

import pytest

import penstock.data.interception
import penstock_cluster.kubelet.network.hosts

HOOKS = {
    "network": Path(penstock_cluster.kubelet.network.hosts.__file__).parents[1] / "hook",
    "data": Path(penstock.data.interception.__file__).parent / "hook",
}


@pytest.mark.parametrize("order", [("network", "data"), ("data", "network")])
def test_the_hooks_as_they_are_say_nothing(order: tuple[str, str]) -> None:
    done = subprocess.run(
        [sys.executable, "-c", "pass"],
        env={"PYTHONPATH": os.pathsep.join(str(HOOKS[name]) for name in order)},
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize("order", list(permutations(HOOKS)))
def test_each_hook_runs_once_and_the_users_own_after_them(
    order: tuple[str, ...], tmp_path: Path
) -> None:
    names = [*order, "own"]
    for name in names:
        (tmp_path / name).mkdir()
        text = (HOOKS[name] / "sitecustomize.py").read_text() if name in HOOKS else ""
        (tmp_path / name / "sitecustomize.py").write_text(f"print({name!r})\n{text}")
    done = subprocess.run(
        [sys.executable, "-c", "import sitecustomize; print(sitecustomize.__file__)"],
        env={"PYTHONPATH": os.pathsep.join(str(tmp_path / name) for name in names)},
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert done.stderr == ""
    own = str(tmp_path / "own" / "sitecustomize.py")
    assert done.stdout.splitlines() == [*names, own]
