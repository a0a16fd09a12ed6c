"""Examples run with PyTorch as it is, as a program does that Penstock does not start."""

from __future__ import annotations

import pytest

from penstock.crds import environment


@pytest.fixture(autouse=True)
def _compiler_as_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(environment.LATE_COMPILER, "0")
