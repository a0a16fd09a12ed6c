"""What runs in users' containers imports without the frameworks of the control plane."""

from __future__ import annotations

import subprocess
import sys

import pytest

BLOCKED = ("kopf", "kubernetes", "fastapi", "sqlmodel", "sqlalchemy")
WITHOUT_TORCH = (
    "penstock.trainer.service",
    "penstock.trainer.agent",
    "penstock.trainer.commands",
    "penstock.trainer.shards",
    "penstock.data.ledger.journal",
    "penstock.parameter_server.server.process",
    "penstock.parameter_server.worker.worker",
)
WITH_TORCH = ("penstock.trainer.elastic", "penstock.trainer.checkpoint", "penstock.trainer.ps")
CODE = """
import importlib, sys

class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {blocked!r}:
            raise ModuleNotFoundError(f"{{name}} is not installed here", name=name)

sys.meta_path.insert(0, Blocked())
importlib.import_module({module!r})
"""


def imports(module: str, *blocked: str) -> subprocess.CompletedProcess[str]:
    code = CODE.format(module=module, blocked=blocked)
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=50, check=False
    )


@pytest.mark.parametrize("module", WITHOUT_TORCH)
def test_it_imports_without_the_control_planes_frameworks_and_without_torch(module: str) -> None:
    done = imports(module, *BLOCKED, "torch")
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("module", WITH_TORCH)
def test_the_training_scripts_api_needs_torch_alone(module: str) -> None:
    done = imports(module, *BLOCKED)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("module", ["penstock.trainer.agent", "penstock.trainer.commands"])
def test_what_starts_each_training_process_loads_no_numpy(module: str) -> None:
    done = imports(module, "numpy")
    assert done.returncode == 0, done.stderr


def test_the_check_can_fail() -> None:
    assert "torch is not installed here" in imports("penstock.trainer.elastic", "torch").stderr
