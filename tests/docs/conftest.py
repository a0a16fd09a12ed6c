from __future__ import annotations

from tests.data.tensorflow.conftest import tf

__all__ = ["tf"]
