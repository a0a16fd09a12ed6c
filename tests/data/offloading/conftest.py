"""What a test declares is declared in that test alone."""

from __future__ import annotations

import pytest

from penstock.data.offloading import loader_calls


@pytest.fixture(autouse=True)
def _declared_by_this_test_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process in which something is declared moves nothing else, to its end."""
    monkeypatch.setattr(loader_calls, "_recent", loader_calls._Recent())
