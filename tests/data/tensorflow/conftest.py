from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

STAND_IN = Path(__file__).with_name("stand_in")


@pytest.fixture
def tf(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The stand-in for TensorFlow, also in data workers: they are sent where modules are found."""
    monkeypatch.syspath_prepend(STAND_IN)
    before = {name: sys.modules.pop(name) for name in list(sys.modules) if _is_tensorflow(name)}
    yield importlib.import_module("tensorflow")
    for name in [name for name in sys.modules if _is_tensorflow(name)]:
        del sys.modules[name]
    sys.modules.update(before)


def _is_tensorflow(name: str) -> bool:
    return name.partition(".")[0] == "tensorflow"
