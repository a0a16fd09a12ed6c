"""Several ``penstock brain`` on one database: real processes that die and come back."""

from __future__ import annotations

import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from subprocess import Popen

import pytest

from penstock.client import BrainClient, RetryPolicy
from penstock.wire import JobRegistration
from tests.api.service import REGISTRATION
from tests.api.test_command import running

JOBS = 24
GAUGE = "penstock_brain_administered_jobs "
PATIENT = RetryPolicy(total_seconds=30)


@pytest.fixture
def start(postgres_url: str, tmp_path: Path) -> Iterator[Callable[[], tuple[str, Popen[str]]]]:
    """Starts one more Brain on the database; its address, and its process."""
    with ExitStack() as stack:
        yield lambda: stack.enter_context(
            running(
                tmp_path,
                f"--database={postgres_url}",
                "--auth=none",
                "--set=administrator.lease_seconds=3",
            )
        )


def administered(url: str) -> int:
    """How many jobs a Brain says that it administers."""
    with urllib.request.urlopen(f"{url}/metrics", timeout=10) as answer:
        lines = answer.read().decode().splitlines()
    return int(float(next(line for line in lines if line.startswith(GAUGE)).split()[1]))


def wait(*urls: str) -> list[int]:
    """Until each of these Brains has a part of the jobs, all of them together; their parts."""
    end = time.monotonic() + 40
    while time.monotonic() < end:
        parts = [administered(url) for url in urls]
        if sum(parts) == JOBS and all(parts):
            return parts
        time.sleep(0.1)
    raise AssertionError(f"{parts} of {JOBS} jobs")


def test_a_killed_brain_loses_its_jobs_and_one_that_comes_back_gets_its_part(
    start: Callable[[], tuple[str, Popen[str]]],
) -> None:
    first, process = start()
    with BrainClient(first, retry=PATIENT) as client:
        for index in range(JOBS):
            job = {**REGISTRATION, "name": f"job-{index}"}
            client.register(f"uid-{index}", JobRegistration.model_validate(job))
    wait(first)
    second, _ = start()
    wait(first, second)
    process.kill()
    process.wait(10)
    wait(second)
    third, _ = start()
    wait(second, third)
