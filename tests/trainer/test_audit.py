"""The audit counts what was consumed, whatever should have been."""

from __future__ import annotations

import numpy as np
import pytest

from penstock.trainer import audit
from penstock.trainer.audit import Audit


def consume(books: Audit, epoch: int, *samples: int) -> None:
    books.consume(epoch, np.array(samples, dtype=np.int64))


def test_a_whole_epoch_is_clean() -> None:
    books = Audit(5)
    consume(books, 0, 4, 2)
    consume(books, 0, 0, 1, 3)
    books.finish()
    assert books.totals() == {"samples_seen": 5, "samples_lost": 0, "samples_repeated": 0}


def test_lost_and_repeated_samples_are_counted_each() -> None:
    books = Audit(5)
    consume(books, 0, 0, 0, 1, 1, 1)
    consume(books, 1, 0, 1, 2, 3, 4)
    books.finish()
    [first, second] = books.closed
    assert (first.samples_seen, first.samples_lost, first.samples_repeated) == (5, 3, 3)
    assert (second.samples_seen, second.samples_lost, second.samples_repeated) == (5, 0, 0)


def test_an_epoch_that_was_skipped_does_not_hide() -> None:
    books = Audit(3)
    consume(books, 0, 0, 1)
    consume(books, 1, 0, 1, 2)
    books.finish()
    assert books.totals()["samples_lost"] == 1


def test_the_counts_travel_with_the_state() -> None:
    books = Audit(4)
    consume(books, 0, 0, 1, 2, 3)
    consume(books, 1, 0, 1)
    other = Audit(4)
    consume(other, 0, 3, 3, 3)
    other.load_state_dict(books.state_dict())
    consume(other, 1, 2, 3)
    other.finish()
    assert other.totals() == {"samples_seen": 8, "samples_lost": 0, "samples_repeated": 0}
    consume(books, 1, 2)  # the original is independent
    books.finish()
    assert books.totals()["samples_lost"] == 1


def test_the_counts_of_another_dataset_are_refused() -> None:
    with pytest.raises(ValueError, match="counts"):
        Audit(4).load_state_dict(Audit(5).state_dict())


def test_a_large_dataset_is_counted_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit, "MAX_COUNTED_SAMPLES", 4)
    books = Audit(10)
    consume(books, 0, *range(10))
    books.finish()
    assert books.totals() == {"samples_seen": 10, "samples_lost": 0, "samples_repeated": 0}
    lossy = Audit(10)
    consume(lossy, 0, 0, 1, 2, 3, 4, 5, 6, 6, 8, 9, 9)  # within a block, 6 makes up for 7
    lossy.finish()
    assert lossy.totals() == {"samples_seen": 11, "samples_lost": 0, "samples_repeated": 1}


def test_only_the_newest_epochs_are_kept_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit, "MAX_KEPT_EPOCHS", 3)
    books = Audit(2)
    for epoch in range(10):
        consume(books, epoch, 0, 1)
    books.finish()
    assert [each.epoch for each in books.closed] == [7, 8, 9]
    assert books.totals()["samples_seen"] == 20
