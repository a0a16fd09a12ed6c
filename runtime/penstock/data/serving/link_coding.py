"""Whether and how a data worker codes its batches: as the job says, or where the link binds.

The link's speed is the kernel's account of this connection, so that many data workers behind one
link each see their part of it. Coding is tried only where the link takes far longer than coding
could, so that with a link that is fast enough nothing is ever done; and what cannot be coded is
tried less and less often. A data worker whose link is full has cores to spare.

Where two codings are allowed each is tried, and the better one by what it took and what it left is
kept (`penstock.data.serving.coding_choice`); the other is tried again now and then, since batches
change. So are both where neither was worth it: one bad moment must not decide for good. What the
first try takes does not count: it learns what batches have in them, in memory that is new.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from penstock.data.serving.coding_choice import Known, choose
from penstock.data.transport.batch_codec import Packed
from penstock.data.transport.codings import UNTOLD, Allowed, Coding
from penstock.data.transport.dictionary_coding import WORTH, Coded, Encoder
from penstock.data.transport.link_use import LinkUse
from penstock.data.transport.zstd_coding import ZstdEncoder
from penstock.data.variables import LINK_CODING

logger = logging.getLogger(__name__)

SLOW_SECONDS: Final = 2e-9
"""A byte, over a link of 4 Gb/s; coding takes about a third of that."""
GAIN: Final = 0.7
"""Of the time that a batch takes as it is; coded it has to be below."""
SEEN_BYTES: Final = 4 << 20
"""That have arrived since a link was looked at last."""
FIRST_PAUSE: Final = 16
LAST_PAUSE: Final = 4096
"""Batches that are not tried, after one that could not be coded."""
FORGOTTEN_AFTER: Final = 512
"""Batches that another coding, or none, was better for; then this one is tried again."""
ALWAYS_WORTH: Final = 0.97
"""Of its bytes: where batches are always coded, one that would have more is sent as it is."""
_SMOOTHING: Final = 0.3


@dataclass(slots=True)
class _Tried:
    """One coding, and what became of it."""

    known: Known = field(default_factory=Known)
    pause: int = FIRST_PAUSE
    left: int = 0
    """Batches for which it is not tried."""
    passed_over: int = 0
    warm: bool = False
    """Whether it was tried once, and the next try counts."""


class LinkCoding:
    """What is known of one connection, and what is done with its next batch."""

    def __init__(
        self,
        use: Callable[[], LinkUse | None],
        clock: Callable[[], float] = time.monotonic,
        name: str = "",
    ) -> None:
        """``name``: of the training process, for the log."""
        self._use = use
        self._clock = clock
        self._name = name
        self._off = not LINK_CODING.now()
        self._encoder = Encoder()
        self._zstd: ZstdEncoder | None = None
        self._tried = {coding: _Tried() for coding in Coding}
        self._seen = LinkUse(0.0, 0)
        self._link: float | None = None  # seconds a byte
        self._told = False

    def code(self, packed: Packed, made_seconds: float, allowed: Allowed = UNTOLD) -> Coded | None:
        """The batch as it is to be sent, given what making it took; None: as it is.

        ``allowed``: what the training process says; it may change.
        """
        if self._off or not allowed.codings:
            return None
        self._look()
        ready: dict[Coding, Known] = {}
        for coding in allowed.codings:
            one = self._tried[coding]
            if one.left:
                one.left -= 1
            else:
                ready[coding] = one.known
        if not ready:
            return None
        chosen: Coding | None
        if allowed.always:
            (chosen,) = ready
        elif self._link is None or self._link < SLOW_SECONDS:
            return None
        else:
            chosen = choose(packed.size, self._link, made_seconds, ready, GAIN)
        self._pass_over(ready, chosen)
        if chosen is None:
            return None
        return self._encode(chosen, packed, always=allowed.always)

    def _encode(self, coding: Coding, packed: Packed, *, always: bool) -> Coded | None:
        one = self._tried[coding]
        begun = self._clock()
        coded = self._coded(coding, packed, ALWAYS_WORTH if always else WORTH)
        seconds = (self._clock() - begun) / max(1, packed.size)
        share = one.known.share
        if coded is not None:
            one.pause = FIRST_PAUSE
            share = _smoothed(share, coded.size / packed.size)
        else:
            one.left, one.pause = one.pause, min(2 * one.pause, LAST_PAUSE)
            if always and not self._told:
                self._told = True
                logger.info(
                    "batches for %s do not become smaller by %s: most are sent as they are",
                    self._name,
                    coding,
                )
        if one.warm or coded is None:
            one.known = Known(_smoothed(one.known.seconds, seconds), share)
        one.warm = one.warm or coded is not None
        return coded

    def _coded(self, coding: Coding, packed: Packed, worth: float) -> Coded | None:
        if coding is Coding.DICTIONARY:
            return self._encoder.encode(packed)
        if self._zstd is None:
            self._zstd = ZstdEncoder()
        return self._zstd.encode(packed, worth)

    def _pass_over(self, ready: dict[Coding, Known], chosen: Coding | None) -> None:
        for coding in ready:
            one = self._tried[coding]
            one.passed_over = 0 if coding is chosen else one.passed_over + 1
            if one.passed_over >= FORGOTTEN_AFTER:
                one.known, one.passed_over = Known(), 0

    def _look(self) -> None:
        now = self._use()
        if now is None:
            return
        arrived = now.bytes_arrived - self._seen.bytes_arrived
        if arrived >= SEEN_BYTES:
            busy = now.busy_seconds - self._seen.busy_seconds
            self._link = _smoothed(self._link or 0.0, busy / arrived)
            self._seen = now


def _smoothed(before: float, now: float) -> float:
    return before + _SMOOTHING * (now - before) if before else now
