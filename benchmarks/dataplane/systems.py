"""Starting the systems of a comparison and telling them what to do.

Peers live in a virtual environment of the benchmark's own, `.penstock/peers`, which is made when a
peer is first asked for; PyTorch is the project's. All get the same allocator settings. A program
that needs a peer and Penstock runs in the peers' environment with `beside_project`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
import venv
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks import programs
from penstock.data.allocator import ALLOCATOR

ROOT = Path(__file__).parents[2]
PEERS_FOLDER = ROOT / ".penstock" / "peers"
PACKAGES = {
    "tfdata": ("tensorflow-cpu", "pillow"),
    "ray": ("ray[data]", "pillow"),
    "pyzmq": ("pyzmq", "numpy"),
}
MODULES = {
    "penstock-tcp": ("ours", "tcp"),
    "penstock-shm": ("ours", "shm"),
    "penstock-tcp-bare": ("ours", "bare"),
    "penstock-tcp-encrypted": ("ours", "encrypted"),
    "torch": ("torch_loader",),
    "tfdata": ("tfdata",),
    "ray": ("raydata",),
    "pyzmq": ("zmq",),
}
OURS = ("penstock-tcp", "penstock-shm")
VARIANTS = ("penstock-tcp-bare", "penstock-tcp-encrypted")
"""Ours over TCP, its frames without seals, as they never are in a job, and encrypted."""
PEERS = tuple(name for name in MODULES if name not in (*OURS, *VARIANTS))
START_SECONDS = 120
_SITE = "PENSTOCK_PEERS_SITE"
_LINK = (
    "import os; [__import__('site').addsitedir(one) for one in "
    f"os.environ.get({_SITE!r}, '').split(':') if one]\n"
)
"""A line that Python runs when it starts there: what the project has comes after the peers' own."""


def chosen_peers(text: str) -> list[str]:
    """The peers that ``--peers`` names. Raises ValueError for an unknown one."""
    if text in ("none", "all"):
        return list(PEERS) if text == "all" else []
    names = text.split(",")
    if unknown := [name for name in names if name not in PEERS]:
        raise ValueError(f"--peers: {unknown}; choose from {', '.join(PEERS)}, or none, or all")
    return names


def interpreter(system: str) -> str:
    """The Python that has the system, installing it where needed."""
    packages = PACKAGES.get(system)
    if packages is None:
        return sys.executable
    python = PEERS_FOLDER / "bin" / "python"
    if not python.exists():
        venv.create(PEERS_FOLDER, with_pip=True)
    paths = {"base": str(PEERS_FOLDER), "platbase": str(PEERS_FOLDER)}
    Path(sysconfig.get_path("purelib", "venv", paths), "beside.pth").write_text(_LINK)
    installed = PEERS_FOLDER / f".has-{system}"
    wanted = " ".join(packages)
    if not installed.exists() or installed.read_text() != wanted:
        subprocess.run([python, "-m", "pip", "install", "--quiet", *packages], check=True)
        installed.write_text(wanted)
    return str(python)


def beside_project(*before: str) -> dict[str, str]:
    """The environment in which the peers' Python finds Penstock and what it needs as well.

    ``before``: folders of modules that are found before all others.
    """
    path = os.pathsep.join((*before, str(ROOT)))
    return {**os.environ, "PYTHONPATH": path, _SITE: sysconfig.get_path("purelib")}


class System:
    """One running system."""

    def __init__(self, name: str, process: subprocess.Popen[str]) -> None:
        self.name = name
        self._process = process

    def ask(self, **wanted: Any) -> dict[str, float]:
        """One measurement."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(wanted) + "\n")
        self._process.stdin.flush()
        return self.answer()

    def answer(self) -> dict[str, Any]:
        """The next line of JSON; raises RuntimeError when the system has ended."""
        assert self._process.stdout is not None
        while line := self._process.stdout.readline():
            if line.startswith("{"):
                found: dict[str, Any] = json.loads(line)
                return found
        raise RuntimeError(f"{self.name} ended with code {self._process.wait()}")


@contextmanager
def running(name: str, errors: Path) -> Iterator[System]:
    """Start a system, wait until it is up, and end it."""
    module, *arguments = MODULES[name]
    environ = {
        **os.environ,
        **ALLOCATOR,
        "PYTHONPATH": str(ROOT),
        "TF_CPP_MIN_LOG_LEVEL": "3",
        "OMP_NUM_THREADS": "1",
    }
    with (errors / f"{name}.log").open("w") as log:
        process = subprocess.Popen(
            [interpreter(name), "-W", "ignore", "-m", f"benchmarks.dataplane.{module}", *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            env=environ,
            cwd=ROOT,
        )
        system = System(name, process)
        try:
            system.answer()
            yield system
        finally:
            assert process.stdin is not None
            process.stdin.close()
            programs.outlast(process)
            assert process.stdout is not None
            process.stdout.close()
