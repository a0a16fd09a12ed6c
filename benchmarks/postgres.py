"""A PostgreSQL server of one's own, for measurements and tests of the Brain.

It runs as an unprivileged user, in a temporary folder, on a free port of loopback, and ends with
its block.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import tempfile
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from benchmarks import programs

_USER: Final = "postgres"
_FORGETFUL: Final = (
    "-c",
    "fsync=off",
    "-c",
    "synchronous_commit=off",
    "-c",
    "full_page_writes=off",
)


class PostgresMissingError(Exception):
    """PostgreSQL cannot be run here; the text says why and what to do."""


@dataclass(frozen=True)
class PostgresServer:
    """A running server."""

    port: int

    def new_database(self, like: str = "") -> str:
        """Create an empty database, or a copy of one that nobody uses, by its URL; its URL."""
        name = f"t{uuid.uuid4().hex}"
        template = f" TEMPLATE {like.rpartition('/')[2]}" if like else ""
        _psql(self.port, f"CREATE DATABASE {name}{template}")
        return f"postgresql+asyncpg://{_USER}@127.0.0.1:{self.port}/{name}"

    def drop(self, url: str) -> None:
        """Drop a database, whoever is connected."""
        _psql(self.port, f"DROP DATABASE IF EXISTS {url.rpartition('/')[2]} WITH (FORCE)")


def _programs() -> Path | None:
    """The folder of initdb and postgres, the newest version; None where it is not installed."""
    found = sorted(
        Path("/usr/lib/postgresql").glob("*/bin/postgres"), key=lambda path: int(path.parts[4])
    )
    if found:
        return found[-1].parent
    on_path = shutil.which("postgres")
    return Path(on_path).parent if on_path else None


@contextlib.contextmanager
def running_postgres(*, durable: bool = False) -> Iterator[PostgresServer]:
    """A PostgreSQL server on a free port of loopback.

    Args:
        durable: what is committed is on the disk, as in a database that is to be kept.

    Raises:
        PostgresMissingError: It cannot be run here.
    """
    found = _programs()
    if found is None:
        raise PostgresMissingError(
            "PostgreSQL is not installed (Debian: apt-get install postgresql)"
        )
    with tempfile.TemporaryDirectory(prefix="penstock-pg-") as folder:
        data = Path(folder) / "data"
        demote = _demoted(Path(folder))
        if demote is None:
            raise PostgresMissingError(
                "PostgreSQL refuses to run as root, and there is no user postgres to become"
            )
        subprocess.run(
            [
                *demote,
                found / "initdb",
                "-D",
                data,
                "-U",
                _USER,
                "-A",
                "trust",
                "-E",
                "UTF8",
                "--no-sync",
                "--no-instructions",
            ],
            check=True,
            capture_output=True,
            timeout=60,
        )
        port = _free_port()
        log = Path(folder) / "log"
        with log.open("wb") as output:
            server = subprocess.Popen(
                [
                    *demote,
                    found / "postgres",
                    "-D",
                    data,
                    "-p",
                    str(port),
                    "-k",
                    folder,
                    "-c",
                    "listen_addresses=127.0.0.1",
                    *([] if durable else _FORGETFUL),
                ],
                stdout=output,
                stderr=output,
            )
            try:
                _wait(server, port, log)
                yield PostgresServer(port)
            finally:
                programs.end(server)


def _demoted(folder: Path) -> list[str | Path] | None:
    """What to put before a command so that it does not run as root."""
    if os.geteuid() != 0:
        return []
    setpriv = shutil.which("setpriv")
    known = subprocess.run(
        ["id", "-u", _USER], capture_output=True, text=True, timeout=10, check=False
    )
    if setpriv is None or known.returncode:
        return None
    shutil.chown(folder, _USER)
    return [setpriv, f"--reuid={_USER}", f"--regid={_USER}", "--clear-groups"]


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _wait(server: subprocess.Popen[bytes], port: int, log: Path) -> None:
    end = time.monotonic() + 30
    while time.monotonic() < end:
        if server.poll() is not None:
            raise AssertionError(f"PostgreSQL ended: {log.read_text()}")
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            break
        time.sleep(0.05)
    else:
        raise AssertionError(f"PostgreSQL does not listen: {log.read_text()}")
    while True:  # it listens a moment before it takes connections
        try:
            _psql(port, "SELECT 1")
        except subprocess.CalledProcessError:
            if time.monotonic() > end:
                raise
            time.sleep(0.05)
        else:
            return


def _psql(port: int, statement: str) -> None:
    folder = _programs()
    assert folder is not None, "a server runs"
    place = ("-h", "127.0.0.1", "-p", str(port), "-U", _USER, "-d", "postgres")
    subprocess.run(
        [folder / "psql", "-X", *place, "-c", statement],
        check=True,
        capture_output=True,
        timeout=30,
        env={**os.environ, "PGCONNECT_TIMEOUT": "10"},
    )
