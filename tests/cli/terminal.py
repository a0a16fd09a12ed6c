"""Runs commands in this process, as a shell would see them."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

from penstock.cli.main import app


@dataclass(frozen=True)
class Ran:
    """What a command printed, and its exit code."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


@dataclass(frozen=True)
class Terminal:
    """A shell with a kubeconfig, and a Brain that is named or found."""

    kubeconfig: Path | None
    brain_url: str | None = None

    def __call__(self, *arguments: str, stdin: str | None = None, columns: int = 80) -> Ran:
        environment = {
            "KUBECONFIG": str(self.kubeconfig) if self.kubeconfig else None,
            "PENSTOCK_BRAIN_URL": self.brain_url,
            "PENSTOCK_BRAIN_TOKEN": None,
            "PENSTOCK_BRAIN_TOKEN_FILE": None,
            "PENSTOCK_BRAIN_ACCOUNT": None,
            "PENSTOCK_SYSTEM_NAMESPACE": None,
            "COLUMNS": str(columns),
        }
        done = CliRunner().invoke(app, list(arguments), input=stdin, env=environment)
        if done.exception is not None and not isinstance(done.exception, SystemExit):
            raise done.exception
        return Ran(done.exit_code, done.stdout, done.stderr)

    def ok(self, *arguments: str, **more: Any) -> Ran:
        """Run something that must succeed."""
        ran = self(*arguments, **more)
        assert ran.code == 0, f"{' '.join(arguments)}: {ran.code} {ran.err}{ran.out}"
        return ran
