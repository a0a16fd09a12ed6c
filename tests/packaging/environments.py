"""Environments that hold built wheels, what some extras need, and nothing else.

What they hold is what this environment has installed, found by following the requirements that the
distributions declare; so no network is needed, and the versions are those of requirements.lock.
"""

from __future__ import annotations

import subprocess
import sys
import venv
from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError, distribution, requires
from pathlib import Path
from typing import Final

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.patience import patient

ROOT: Final = Path(__file__).parents[2]
PROJECTS: Final = {"penstock": ROOT, "penstock-cluster": ROOT / "cluster"}
"""The distributions of this repository, and where each is built."""


def build(kind: str, folder: Path, name: str = "penstock", source: Path | None = None) -> Path:
    """The wheel, or the sdist, of a distribution of this source tree, or of another ``source``."""
    code = f"import sys; from hatchling.build import build_{kind}; print(build_{kind}(sys.argv[1]))"
    done = subprocess.run(
        [sys.executable, "-c", code, str(folder)],
        cwd=source or PROJECTS[name],
        capture_output=True,
        text=True,
        timeout=patient(20),
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return folder / done.stdout.strip().splitlines()[-1]


def needed(extras: Iterable[str], name: str = "penstock") -> set[str]:
    """Names of the distributions that one needs with these extras, itself left out.

    One that is not installed here, as TensorFlow, is named; what it needs itself is not known.
    """
    found: set[str] = set()
    waiting = [(name, frozenset(extras))]
    seen = set(waiting)
    while waiting:
        one, wanted = waiting.pop()
        try:
            texts = requires(one) or ()
        except PackageNotFoundError:
            continue
        for text in texts:
            requirement = Requirement(text)
            marker = requirement.marker
            if marker and not any(marker.evaluate({"extra": each}) for each in (*wanted, "")):
                continue
            step = (canonicalize_name(requirement.name), frozenset(requirement.extras))
            if step not in seen:
                seen.add(step)
                waiting.append(step)
            found.add(step[0])
    return found - {name}


class Environment:
    """A virtual environment without pip."""

    def __init__(self, folder: Path, wheels: Iterable[Path], needed: Iterable[str]) -> None:
        """``needed``: names of the distributions to link, but for our own."""
        self.bin = folder / "bin"
        venv.create(folder, with_pip=False, symlinks=True)
        self.packages = next(folder.glob("lib/python*/site-packages"))
        for name in set(needed) - PROJECTS.keys():
            self._link(name)
        done = subprocess.run(
            [
                sys.executable,
                "-m",
                "pip",
                "--python",
                str(self.bin / "python"),
                "install",
                "--quiet",
                "--no-index",
                "--no-deps",
                "--disable-pip-version-check",
                *map(str, wheels),
            ],
            capture_output=True,
            text=True,
            timeout=patient(20),
            check=False,
        )
        assert done.returncode == 0, done.stderr

    def _link(self, name: str) -> None:
        found = distribution(name)
        for part in {file.parts[0] for file in found.files or ()} - {"..", "__pycache__"}:
            target = self.packages / part
            if not target.is_symlink():
                target.symlink_to(Path(str(found.locate_file(part))))

    def run(self, *command: str) -> subprocess.CompletedProcess[str]:
        """Run a program of the environment, with nothing else in sight."""
        return subprocess.run(
            [str(self.bin / command[0]), *command[1:]],
            cwd=self.bin.parent,
            capture_output=True,
            text=True,
            timeout=patient(20),
            check=False,
            env={"PATH": str(self.bin), "HOME": str(self.bin.parent), "COLUMNS": "100"},
        )
