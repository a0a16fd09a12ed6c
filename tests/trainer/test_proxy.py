"""What a job's pods say to each other goes to no proxy, whatever a company's image sets."""

from __future__ import annotations

import socket
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.elastic.processes import running_job

SAMPLES = 1437


class Listener:
    """A place where a proxy might be: it notes who comes, and says nothing to them."""

    def __init__(self) -> None:
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._socket.getsockname()[1]
        self.callers = 0
        self._thread = threading.Thread(target=self._listen, daemon=True)
        self._thread.start()

    def _listen(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            self.callers += 1
            connection.close()

    def close(self) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self._thread.join(10)


@pytest.fixture
def listener() -> Iterator[Listener]:
    found = Listener()
    yield found
    found.close()


def proxies(listener: Listener) -> dict[str, str]:
    """The variables of an image behind a proxy, with nothing exempt from it."""
    url = f"http://127.0.0.1:{listener.port}"
    names = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY")
    return {each: url for name in names for each in (name, name.lower())} | {
        "NO_PROXY": "", "no_proxy": "",
    }  # fmt: skip


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
