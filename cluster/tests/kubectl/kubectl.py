"""The real kubectl, pointed at an embedded cluster.

The cluster must serve TLS: over plain HTTP kubectl leaves out its token.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from penstock_cluster.testing import RunningCluster

PROGRAM = shutil.which("kubectl")
needs_kubectl = pytest.mark.skipif(
    PROGRAM is None, reason="needs kubectl 1.32 or newer on the path"
)
_TIMEOUT_SECONDS = 40


@dataclass(frozen=True)
class Ran:
    """What a run of kubectl printed, and its exit code."""

    code: int
    out: str
    err: str

    @property
    def lines(self) -> list[str]:
        return self.out.splitlines()


@dataclass(frozen=True)
class Kubectl:
    """Runs kubectl as the cluster's administrator, with a home folder of its own."""

    cluster: RunningCluster
    folder: Path
    namespace: str = "default"

    def command(self, *arguments: str, verbose: bool = False) -> list[str]:
        head = [
            str(PROGRAM),
            f"--kubeconfig={self.cluster.kubeconfig_path}",
            f"--cache-dir={self.folder / 'cache'}",
            f"--namespace={self.namespace}",
        ]
        return [*head, *(["-v=6"] if verbose else []), *arguments]

    def environment(self) -> dict[str, str]:
        kept = {name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ}
        return {**kept, "HOME": str(self.folder), "KUBECTL_EXTERNAL_DIFF": "diff -u -N"}

    def run(self, *arguments: str, stdin: str | None = None, verbose: bool = False) -> Ran:
        """Run to the end; whatever the exit code."""
        done = subprocess.run(
            self.command(*arguments, verbose=verbose),
            input=stdin,
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_SECONDS,
            env=self.environment(),
            check=False,
        )
        return Ran(done.returncode, done.stdout, done.stderr)

    def ok(self, *arguments: str, stdin: str | None = None) -> str:
        """Run something that must succeed; its standard output."""
        ran = self.run(*arguments, stdin=stdin)
        assert ran.code == 0, f"kubectl {' '.join(arguments)}: {ran.err or ran.out}"
        return ran.out

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        """Start something that goes on, e.g. a watch; the caller ends it."""
        return subprocess.Popen(
            self.command(*arguments),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=self.environment(),
        )
