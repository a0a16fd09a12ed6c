"""What a training process imports for its input pipeline, and what it does not."""

from __future__ import annotations

import subprocess
import sys

import pytest

FOREIGN = ("torch", "tensorflow", "kopf", "kubernetes", "fastapi", "sqlalchemy")


@pytest.mark.parametrize(
    "module",
    [
        "penstock.data",
        "penstock.data.loader",
        "penstock.data.worker_process",
        "penstock.data.dispatcher",
        "penstock.data.tensorflow",
    ],
)
def test_no_framework_is_imported(module: str) -> None:
    code = f"import sys, {module}; print([one for one in {FOREIGN!r} if one in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=50)
    assert done.stdout.strip() == "[]", done.stderr
