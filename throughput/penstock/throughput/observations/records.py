"""What is written down of a program while it is profiled; times are seconds of one clock."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from penstock.throughput.observations.copies import Copies
from penstock.throughput.observations.session import Phase

DATASET = "dataset"
"""The stage that a sample comes from before its first transform."""
IN_LINE = -1
"""The number of the maker where the training process makes its batches itself."""


@dataclass(frozen=True, slots=True)
class Loader:
    """One loader of the program.

    Attributes:
        number: of the loader in its process.
        dataset: name of its class.
        workers, prefetch: as it was made with.
        batch_size: samples; 1 where the dataset makes whole batches.
        samples: of an epoch; 0: it does not say.
        in_turn: batches are delivered in the order in which they were dealt.
        rank, world: of the process in its group.
    """

    number: int
    dataset: str
    workers: int
    prefetch: int
    batch_size: int
    samples: int = 0
    in_turn: bool = True
    rank: int = 0
    world: int = 1


@dataclass(frozen=True, slots=True)
class Delivery:
    """One batch as the training saw it.

    Attributes:
        maker: number of the worker, or `IN_LINE`.
        called, returned: when the program asked for it, and when it had it; what is withheld counts
            as asked for when it is let go.
        held: seconds for which it was withheld before.
        cpu_called, cpu_returned: CPU seconds of the training process until then.
        phase: of the session.
        first: of an epoch.
        nbytes: of the batch; 0: not looked at.
        copies: to a device, that the training's thread made since the batch before.
        looked: seconds since then that went into looking: none of the program's.
        faults: pages of new memory that the training's thread has filled since the batch before.
    """

    maker: int
    called: float
    returned: float
    cpu_called: float
    cpu_returned: float
    phase: Phase
    first: bool = False
    held: float = 0.0
    nbytes: int = 0
    copies: tuple[Copies, ...] = ()
    looked: float = 0.0
    faults: int = 0

    @property
    def waited(self) -> float:
        """Seconds."""
        return self.returned - self.called


@dataclass(frozen=True, slots=True)
class SampleReads:
    """Of samples that were made one by one: those that read from storage, and the others.

    Attributes:
        hits, misses: how many.
        hit_cpu, miss_cpu: CPU seconds of all of each, until they were made.
        missed: bytes that came from storage.
    """

    hits: int = 0
    hit_cpu: float = 0.0
    misses: int = 0
    miss_cpu: float = 0.0
    missed: int = 0

    def __add__(self, other: SampleReads) -> SampleReads:
        return SampleReads(
            self.hits + other.hits,
            self.hit_cpu + other.hit_cpu,
            self.misses + other.misses,
            self.miss_cpu + other.miss_cpu,
            self.missed + other.missed,
        )


@dataclass(frozen=True, slots=True)
class Made:
    """One batch as its maker saw it; seconds of the thread that made it.

    Attributes:
        maker: number of the worker, or `IN_LINE`.
        begin, end: when.
        cpu: on a core.
        queued: ready to run, and without a core; 0 where the system does not say.
        samples: in it.
        collate_cpu, collate_seconds: of the collating in it.
        stages: of composed transforms, by name: CPU seconds a sample.
        sizes: bytes of a sample after each of these, and after what comes before them (`DATASET`),
            of some batches, and where a sample could be cut there.
        other_cpu: of the maker's other threads since the batch before: handing over, mostly.
        read: bytes that were read.
        missed: of them, those that came from storage.
        faults: pages of new memory that the maker's thread filled.
        retained: batches, with this one, since the maker's memory is kept as that of a program
            which makes its own (`new_memory`); 0: it is not.
        cooled: files that it opened were dropped from memory before.
        reads: of its samples; nothing where they were not made one by one.
    """

    maker: int
    begin: float
    end: float
    cpu: float
    queued: float = 0.0
    samples: int = 1
    collate_cpu: float = 0.0
    collate_seconds: float = 0.0
    stages: Mapping[str, float] = field(default_factory=dict)
    sizes: Mapping[str, float] = field(default_factory=dict)
    other_cpu: float = 0.0
    read: int = 0
    missed: int = 0
    faults: int = 0
    retained: int = 0
    cooled: bool = False
    reads: SampleReads = SampleReads()

    @property
    def as_it_runs(self) -> bool:
        """Whether it was made as the program has it, and nothing was tried on its maker."""
        return not self.retained and not self.cooled

    @property
    def blocked(self) -> float:
        """Seconds that were neither on a core nor waiting for one."""
        return max(0.0, self.end - self.begin - self.cpu - self.queued)
