"""Whether a data worker codes its batches: where its link is what bounds it, and coding is faster.

The link's speed is the kernel's account of this connection, so that many data workers behind one
link each see their part of it. Coding is tried only where the link takes far longer than coding
could, so that with a link that is fast enough nothing is ever done; and what cannot be coded is
tried less and less often. A data worker whose link is full has cores to spare.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Final

from penstock.crds import environment as names
from penstock.data.transport.batch_codec import Packed
from penstock.data.transport.dictionary_coding import Coded, Encoder
from penstock.data.transport.link_use import LinkUse

SLOW_SECONDS: Final = 2e-9
"""A byte, over a link of 4 Gb/s; coding takes about a third of that."""
GAIN: Final = 0.7
"""Of the time that a batch takes as it is; coded it has to be below."""
SEEN_BYTES: Final = 4 << 20
"""That have arrived since a link was looked at last."""
FIRST_PAUSE: Final = 16
LAST_PAUSE: Final = 4096
"""Batches that are not tried, after one that could not be coded."""
_SMOOTHING: Final = 0.3


class LinkCoding:
    """What is known of one connection, and what is done with its next batch."""

    def __init__(
        self, use: Callable[[], LinkUse | None], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._use = use
        self._clock = clock
        self._off = os.environ.get(names.LINK_CODING) == "0"
        self._encoder = Encoder()
        self._seen = LinkUse(0.0, 0)
        self._link: float | None = None  # seconds a byte
        self._encoding = 0.0  # seconds a byte; the best as long as unknown
        self._share = 0.0  # of a batch's bytes, when it is coded; also
        self._pause, self._left = FIRST_PAUSE, 0

    def code(self, packed: Packed, made_seconds: float) -> Coded | None:
        """The batch as it is to be sent, given what making it took; None: as it is."""
        if self._off:
            return None
        self._look()
        if self._left:
            self._left -= 1
            return None
        if not self._pays(packed.size, made_seconds):
            return None
        begun = self._clock()
        coded = self._encoder.encode(packed)
        self._encoding = _smoothed(self._encoding, (self._clock() - begun) / packed.size)
        if coded is None:
            self._left, self._pause = self._pause, min(2 * self._pause, LAST_PAUSE)
            return None
        self._pause = FIRST_PAUSE
        self._share = _smoothed(self._share, coded.size / packed.size)
        return coded

    def _look(self) -> None:
        now = self._use()
        if now is None:
            return
        arrived = now.bytes_arrived - self._seen.bytes_arrived
        if arrived >= SEEN_BYTES:
            busy = now.busy_seconds - self._seen.busy_seconds
            self._link = _smoothed(self._link or 0.0, busy / arrived)
            self._seen = now

    def _pays(self, size: int, made: float) -> bool:
        if self._link is None or self._link < SLOW_SECONDS:
            return False
        link, coding = size * self._link, size * self._encoding
        coded = self._share * link
        # The kernel sends one batch while the next one is made; a large one it sends meanwhile.
        one_by_one = coding + coded < GAIN * link
        return one_by_one and max(made + coding, coded) < GAIN * max(made, link)


def _smoothed(before: float, now: float) -> float:
    return before + _SMOOTHING * (now - before) if before else now
