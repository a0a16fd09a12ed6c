from __future__ import annotations

from collections.abc import Iterator

import pytest
from torch.utils.data import _utils


@pytest.fixture(scope="session", autouse=True)
def _short_joins() -> Iterator[None]:
    """PyTorch's own loaders, left in the middle, wait five seconds for each of their workers.

    They do so when they are collected, in whatever test that is.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_utils, "MP_STATUS_CHECK_INTERVAL", 0.5)
        yield
