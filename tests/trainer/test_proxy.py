"""What a job's pods say to each other goes to no proxy, whatever a company's image sets."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.elastic.processes import running_job
from tests.client.listener import Listener, listening

SAMPLES = 1437


@pytest.fixture
def listener() -> Iterator[Listener]:
    with listening() as found:
        yield found


def proxies(listener: Listener) -> dict[str, str]:
    """The variables of an image behind a proxy, with nothing exempt from it."""
    url = f"http://127.0.0.1:{listener.port}"
    names = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY")
    return {each: url for name in names for each in (name, name.lower())} | {
        "NO_PROXY": "",
        "no_proxy": "",
    }


@pytest.mark.slow
def test_a_session_behind_a_proxy_trains_to_its_end_without_it(
    tmp_path: Path, listener: Listener
) -> None:
    command = (sys.executable, "examples/digits/train.py", "--width=32", "--epochs=4")
    with running_job(tmp_path) as job:
        job.start_trainer("--workers=2")
        for rank in range(2):
            job.start_worker(rank, *command, environ=proxies(listener))
        assert set(job.exit_codes().values()) == {0}, job.logs()
        assert job.result()["samples_seen"] == 4 * SAMPLES
    assert listener.callers == 0
