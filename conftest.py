"""What holds for every test that is run from here; `cluster/tests` has the same for itself.

Property tests look for counterexamples, not for slowness: on a machine that is busy with something
else an example may take any time, and drawing it too.

Many programs share few cores here. The threads of OpenMP, which PyTorch computes with, by default
spin while they wait for each other: whichever is not running is waited for at full speed.

Tests start thousands of processes, and each would compile all that it imports where an image says
that no bytecode is to be written: a second for each.

The compiler of PyTorch takes as long to load as PyTorch, and comes with the first optimizer: that
was half of what most of these processes did. All load it late, as programs of ``penstock run`` do
(`penstock.trainer.late_compiler`), but those of `tests/examples`.

Tests marked ``gpu`` are left out where there is no device, and counted: that is no skip, since no
machine of the project's has to have one.

Programs send what Penstock logs to stderr alone, and data workers replace ``open`` for good; after
a test that ran one in its own process, the next sees both as they were.
"""

from __future__ import annotations

import builtins
import io
import logging
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import HealthCheck, settings

from penstock.data.hooked import hooked

settings.register_profile("penstock", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("penstock")

os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # before anything loads PyTorch
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False
os.environ.update(hooked(os.environ))

LEFT_OUT: Final = pytest.StashKey[int]()
OUTPUT_NAME: Final = "gpu_tests_left_out"


def has_cuda_device() -> bool:
    """Whether there is a device; PyTorch is not asked, since loading it takes seconds."""
    return any(path.name[6:].isdecimal() for path in Path("/dev").glob("nvidia*"))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if has_cuda_device():
        return
    left_out = [item for item in items if item.get_closest_marker("gpu")]
    if left_out:
        items[:] = [item for item in items if not item.get_closest_marker("gpu")]
        config.hook.pytest_deselected(items=left_out)
    config.stash[LEFT_OUT] = len(left_out)


@pytest.fixture(autouse=True)
def _logger_and_open_as_they_were() -> Iterator[None]:
    log = logging.getLogger("penstock")
    handlers, level, hands_on = log.handlers[:], log.level, log.propagate
    plain = builtins.open
    yield
    builtins.open = io.open = plain
    log.handlers[:], log.propagate = handlers, hands_on
    log.setLevel(level)


def pytest_sessionfinish(session: pytest.Session) -> None:
    output: dict[str, Any] | None = getattr(session.config, "workeroutput", None)
    if output is not None:  # a process of pytest-xdist, which collects for itself
        output[OUTPUT_NAME] = session.config.stash.get(LEFT_OUT, 0)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    told = getattr(node, "workeroutput", {}).get(OUTPUT_NAME, 0)
    stash = node.config.stash
    stash[LEFT_OUT] = max(stash.get(LEFT_OUT, 0), told)


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    if left_out := config.stash.get(LEFT_OUT, 0):
        terminalreporter.write_line(
            f"{left_out} tests left out: they are marked gpu, and no CUDA device is here"
        )
