"""A journal that was cut or damaged at any byte gives back a state that the ledger really had."""

from __future__ import annotations

import random

import pytest

from penstock.data.ledger import Ledger, LedgerOptions, LedgerState, SnapshotError
from penstock.data.ledger.events import from_record
from penstock.data.ledger.journal import append, begin, recover

OPTIONS = LedgerOptions(total_slots=500, lease_seconds=10)


def busy_ledger() -> tuple[bytes, list[tuple[int, dict[str, object]]]]:
    """A journal of a busy job, and the state as of each length at which a record ends."""
    chance = random.Random(1)
    books = Ledger(OPTIONS)
    journal = begin(books, extra={"group": 1})
    states = [(len(journal), books.snapshot())]
    held = []
    for turn in range(120):
        lease = books.lease(f"w{turn % 5}", float(turn), chance.randint(1, 9))
        if lease:
            held.append(lease)
        if held and chance.random() < 0.8:
            lease = held.pop(chance.randrange(len(held)))
            middle = chance.randint(lease.start + 1, lease.stop)
            books.complete(lease.fence, lease.start, middle)
            if middle < lease.stop:
                books.give_back(lease.fence)
        if turn == 60:
            books.adopt(books.watermark // 2)
            held.clear()
        for event in books.take_events():
            journal += append([event])
            states.append((len(journal), {}))
    replayed = LedgerState(OPTIONS)
    states = states[:1]
    for end, state in _replay(journal, replayed):
        states.append((end, state))
    assert states[-1][1] == books.snapshot()
    return journal, states


def _replay(journal: bytes, books: LedgerState) -> list[tuple[int, dict[str, object]]]:
    from penstock.data.ledger.journal import MAGIC, unframe

    found = []
    for record, end in unframe(journal, len(MAGIC)):
        if isinstance(record, list):
            books.apply(from_record(record))
            books.check_invariants()
            found.append((end, books.snapshot()))
    return found


def test_a_journal_that_is_cut_at_any_byte_gives_back_its_last_whole_record() -> None:
    journal, states = busy_ledger()
    head = states[0][0]
    for cut in range(len(journal) + 1):
        if cut < head:
            with pytest.raises(SnapshotError):
                recover(journal[:cut], OPTIONS, now=0.0)
            continue
        end, state = max(entry for entry in states if entry[0] <= cut)
        recovered = recover(journal[:cut], OPTIONS, now=0.0)
        assert recovered.good_bytes == end
        assert recovered.lost_bytes == cut - end
        assert recovered.extra == {"group": 1}
        assert recovered.ledger.snapshot() == state
        recovered.ledger.state.check_invariants()


def test_a_flipped_bit_ends_the_journal_before_the_damaged_record() -> None:
    journal, states = busy_ledger()
    chance = random.Random(2)
    for _ in range(300):
        at = chance.randrange(states[0][0], len(journal))
        damaged = bytearray(journal)
        damaged[at] ^= 1 << chance.randrange(8)
        recovered = recover(bytes(damaged), OPTIONS, now=0.0)
        end, state = max(entry for entry in states if entry[0] <= at)
        assert recovered.good_bytes == end
        assert recovered.ledger.snapshot() == state


def test_another_file_is_refused() -> None:
    with pytest.raises(SnapshotError, match="does not begin like a ledger journal"):
        recover(b"not a journal at all", OPTIONS, now=0.0)


@pytest.mark.parametrize("record", [None, [], ["unknown", 1], ["lease", 1], [["lease"]], "lease"])
def test_a_record_of_another_form_is_refused(record: object) -> None:
    with pytest.raises(SnapshotError, match="not a ledger event"):
        from_record(record)
