"""How far a loader that shares reads ahead: not so far that others could not take what it took."""

from __future__ import annotations

import pytest

from penstock.data.ledger import TileLedger
from penstock.data.window.free_share import FreeShare
from penstock.data.window.free_window import FreeOptions, FreeWindow
from penstock.data.window.rounds import Parts


def nobody(names: object) -> Parts:
    return {}


WINDOW = FreeWindow(TileLedger(8), 1, FreeOptions(1, nobody))


@pytest.mark.parametrize(
    ("window_bytes", "batch_bytes", "makers", "ahead"),
    [
        (0, 100, 1, 55),  # it keeps as much as it has room for
        (1 << 30, 100, 1, 55),
        (1000, 0, 1, 55),  # as far as is known batches are small
        (4000, 100, 1, 10),  # a quarter of forty batches
        (4000, 100, 2, 20),
        (1000, 100, 1, 2),
        (10, 100, 3, 3),  # one for each of them
    ],
)
def test_a_quarter_of_what_is_kept_is_read_ahead(
    window_bytes: int, batch_bytes: int, makers: int, ahead: int
) -> None:
    free = FreeShare("loader", WINDOW, window_bytes)
    assert free.bound(55, batch_bytes, makers) == ahead
