"""What every test of the command line needs."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def heeded_ctrl_c() -> Iterator[None]:
    """A suite that a shell started in the background ignores SIGINT, and its children with it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)
