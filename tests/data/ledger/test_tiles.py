"""What a process has had of an epoch in free order: snapshots, duplicates, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest

from penstock.data.ledger import LedgerError, SnapshotError, TileLedger
from penstock.data.ledger.tiles import MAX_TILES


def consumed(ledger: TileLedger, *tiles: int) -> None:
    for tile in tiles:
        assert ledger.arrive(tile)
        ledger.consume(tile)


def test_a_tile_that_comes_twice_is_dropped() -> None:
    ledger = TileLedger(3)
    assert ledger.arrive(1)
    assert not ledger.arrive(1)
    ledger.consume(1)
    assert not ledger.arrive(1)
    assert ledger.lacking == 2


def test_a_snapshot_holds_what_was_consumed_and_the_rest_comes_again() -> None:
    ledger = TileLedger(20)
    consumed(ledger, 3, 7, 19)
    ledger.arrive(5)
    again = TileLedger.restore(20, ledger.snapshot())
    again.check_invariants()
    assert np.flatnonzero(~again.lacks).tolist() == [3, 7, 19]
    assert again.lacking == 17


def test_a_billion_samples_take_two_megabytes_at_most() -> None:
    ledger = TileLedger(1 << 24)
    assert len(ledger.snapshot()["consumed"]) <= 2 << 20


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"version": 9}, "version: 9"),
        ({"tiles": 21}, "the snapshot has 21, the epoch has 20"),
        ({"consumed": b"no"}, "damaged"),
        ({"consumed": b""}, "damaged"),
    ],
)
def test_a_snapshot_of_another_kind_is_refused(changes: dict[str, object], said: str) -> None:
    snapshot = {**TileLedger(20).snapshot(), **changes}
    with pytest.raises(SnapshotError, match=said):
        TileLedger.restore(20, snapshot)


def test_ranks_of_a_job_divide_its_tiles() -> None:
    own = np.arange(9) % 3 == 1
    ledger = TileLedger(9, own)
    assert ledger.lacking == 3
    assert not ledger.arrive(0), "another rank's"
    consumed(ledger, 1, 4, 7)
    assert not ledger.lacking
    ledger.check_invariants()


def test_what_cannot_be_is_refused() -> None:
    for tiles in (0, MAX_TILES + 1):
        with pytest.raises(LedgerError, match="tiles"):
            TileLedger(tiles)
    ledger = TileLedger(2)
    for wrong in (
        lambda: ledger.consume(0),
        lambda: ledger.arrive(2),
        lambda: TileLedger(2, np.ones(3, np.bool_)),
    ):
        with pytest.raises(LedgerError):
            wrong()
