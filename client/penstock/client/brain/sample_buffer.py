"""Keeps what could not be sent: a trainer whose Brain is away goes on training.

Bounded: the oldest samples are dropped first, and counted, so that the Brain learns how many it
never saw. Nothing here waits or sends; the owner takes a batch, sends it, and confirms it.
"""

from __future__ import annotations

from collections import deque

from penstock.wire.samples import (
    MAX_SAMPLES_PER_BATCH,
    JobEvent,
    Sample,
    SampleBatch,
)


class SampleBuffer:
    """Samples and events of one job that the Brain has not confirmed yet, oldest first."""

    def __init__(self, max_samples: int = 1000, max_events: int = 1000) -> None:
        if max_samples < 1 or max_events < 1:
            raise ValueError(
                f"max_samples and max_events must be at least 1, got {max_samples}, {max_events}"
            )
        self._samples: deque[Sample] = deque()
        self._events: deque[JobEvent] = deque()
        self._max_samples = max_samples
        self._max_events = max_events
        self._dropped = 0

    def __len__(self) -> int:
        return len(self._samples)

    @property
    def dropped(self) -> int:
        """Samples dropped for want of room and not yet reported."""
        return self._dropped

    def add(self, sample: Sample) -> None:
        """Keep one more sample; without room, the oldest goes."""
        if len(self._samples) >= self._max_samples:
            self._samples.popleft()
            self._dropped += 1
        self._samples.append(sample)

    def add_event(self, event: JobEvent) -> None:
        """Keep one more event; without room, the oldest goes."""
        if len(self._events) >= self._max_events:
            self._events.popleft()
        self._events.append(event)

    def batch(self, limit: int = 64) -> SampleBatch | None:
        """The oldest samples, to be sent now; None where nothing waits."""
        limit = max(1, min(limit, MAX_SAMPLES_PER_BATCH))
        if not (self._samples or self._events):
            return None
        return SampleBatch(
            samples=[*self._samples][:limit], events=[*self._events][:limit], dropped=self._dropped
        )

    def confirm(self, batch: SampleBatch) -> None:
        """Forget what the Brain has confirmed; what was dropped meanwhile stays dropped."""
        sent = {id(sample) for sample in batch.samples}
        while self._samples and id(self._samples[0]) in sent:
            self._samples.popleft()
        seen = {id(event) for event in batch.events}
        while self._events and id(self._events[0]) in seen:
            self._events.popleft()
        self._dropped -= batch.dropped
