"""Steps of samples that are of like length: tf.data service's coordinated reads, as an order.

A step is as slow as its longest sample, on the slowest rank. So the samples of a step are of one
bucket of lengths, on all ranks (tf.data service, SoCC 23, section 3.6). There a worker forms rounds
of an endless stream and every rank waits for the round; here it is an order like any other, a pure
function of (lengths, boundaries, seed, epoch): it is agreed on before the epoch begins, so that
nothing has to be coordinated while it runs, an epoch ends exactly, and a rank that is lost, comes
back or is one of fewer changes nothing.

Guarantees: each epoch has every sample once, in as many steps as without buckets; a step has
samples of one bucket, or of neighbours where one ends; slots share a step in equal numbers (one
more or less) and nearly equal lengths. Which samples a step has does not depend on the number of
slots, but for the last two where the rest of all is smaller than that number.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import Any, Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from penstock.data.ledger.order import SampleOrder, Slot
from penstock.data.ledger.permutation import Permutation, derive_seed

MAX_SAMPLES: Final = 1 << 28
"""An epoch's order is held in memory, 8 bytes a sample."""
MAX_BUCKETS: Final = 4096
_LARGEST: Final = (1 << 63) - 1
_KEPT_EPOCHS: Final = 2
"""While the batches of one are taken those of the next are begun."""
_STEPS: Final = 0x57E9
"""Sets the order of steps apart from that of samples."""


@dataclass(frozen=True, eq=False)
class Buckets:
    """How samples are divided by length.

    Attributes:
        lengths: of each sample, in whatever unit; int64 of shape ``(samples,)``.
        boundaries: longest of each bucket, ascending; longer samples are one more bucket.
        tokens: of a slot's samples at most, each padded to its bucket's boundary; None: all steps
            have the global batch's number of samples. A slot has at least one sample.
    """

    lengths: NDArray[np.int64]
    boundaries: tuple[int, ...]
    tokens: int | None = None

    @classmethod
    def of(cls, lengths: ArrayLike, boundaries: ArrayLike, tokens: int | None = None) -> Buckets:
        """Read them.

        Raises:
            ValueError: names what cannot be.
        """
        found = checked_lengths(lengths)
        steps = _integers("boundaries", boundaries).tolist()
        if len(steps) > MAX_BUCKETS or steps[0] < 1 or any(a >= b for a, b in pairwise(steps)):
            raise ValueError(
                f"boundaries: {steps[:8]}; they must be positive and ascending, {MAX_BUCKETS} at "
                "most"
            )
        return cls(found, tuple(steps), None if tokens is None else _positive("tokens", tokens))

    @cached_property
    def digest(self) -> str:
        """Of all that decides an order: equal on ranks that will agree."""
        told = hashlib.blake2b(self.lengths.tobytes(), digest_size=16)
        told.update(repr((self.boundaries, self.tokens)).encode())
        return told.hexdigest()

    @cached_property
    def numbers(self) -> NDArray[np.int64]:
        """The bucket of each sample; int64 of shape ``(samples,)``."""
        found: NDArray[np.int64] = np.searchsorted(self.boundaries, self.lengths, side="left")
        return found

    def padded(self, bucket: int) -> int:
        """Length that a bucket's samples are padded to: its boundary, or the longest of all."""
        if bucket < len(self.boundaries):
            return self.boundaries[bucket]
        return int(self.lengths.max())


def checked_lengths(lengths: ArrayLike) -> NDArray[np.int64]:
    """Lengths of samples as a row, each at least 0.

    Raises:
        ValueError: names what cannot be.
    """
    found = _integers("lengths", lengths)
    if len(found) > MAX_SAMPLES:
        raise ValueError(f"lengths: {len(found)} samples; at most {MAX_SAMPLES}")
    if (least := int(found.min())) < 0:
        at = int(found.argmin())
        raise ValueError(f"lengths: sample {at} has length {least}; 0 is the least")
    return found


def _positive(name: str, value: Any) -> int:
    """Raises ValueError: it is no integer of at least 1."""
    if not isinstance(value, int | np.integer) or isinstance(value, bool) or value < 1:
        raise ValueError(f"{name}: {value!r}; it must be an integer of at least 1")
    return int(value)


def _integers(name: str, given: ArrayLike) -> NDArray[np.int64]:
    """Raises ValueError: they are no row of integers, or one has more than 63 bits."""
    values = np.asarray(given)
    if values.ndim != 1 or not len(values) or values.dtype.kind not in "iu":
        raise ValueError(
            f"{name}: an array of {values.dtype} of shape {values.shape}; it must be a row of "
            "integers"
        )
    if (most := int(values.max())) > _LARGEST:
        raise ValueError(f"{name}: {most}; at most {_LARGEST}")
    return values.astype(np.int64)


@dataclass(frozen=True)
class SizedOrder(SampleOrder):
    """An order by length as it is known without the lengths: the sizes of its steps, and no more.

    They are those of a `BucketOrder` that leaves slots empty.
    """

    def samples(self, slot: Slot) -> NDArray[np.int64]:
        """Raises LookupError: it takes the lengths to know them."""
        raise LookupError(f"{slot}: which samples it holds depends on lengths, not known here")

    def step_samples(self, epoch: int, step: int) -> NDArray[np.int64]:
        """As `samples`."""
        return self.samples(Slot(epoch, step, 0))


@dataclass(frozen=True)
class BucketOrder(SampleOrder):
    """As `SampleOrder`, with steps of like length; see the module's docstring.

    The last step of an epoch is the rest of the longest bucket. Where that has fewer samples than
    there are slots, it gets some of the step before it, so that no slot is empty (it goes with that
    step where there are too few for both); without ``fills_slots`` some slots stay empty, and steps
    are then numbered and sized as by `SampleOrder`.
    """

    buckets: Buckets = field(kw_only=True, compare=False)
    fills_slots: bool = field(kw_only=True, default=True)
    digest: str = field(init=False, default="")

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(self.buckets.lengths) != self.dataset_size:
            raise ValueError(
                f"lengths: of {len(self.buckets.lengths)} samples; the dataset has "
                f"{self.dataset_size}"
            )
        object.__setattr__(self, "digest", self.buckets.digest)

    @cached_property
    def _sizes(self) -> NDArray[np.int64]:
        """Of the steps, from the shortest samples to the longest: a rest moves to the next."""
        if self.buckets.tokens is None:
            full, left = divmod(self.dataset_size, self.global_batch)
            found = [self.global_batch] * full
        else:
            found, left = self._sizes_by_tokens(self.buckets.tokens)
        wanted = max(0, self.slots_per_step - left) if self.fills_slots and found and left else 0
        if wanted and found[-1] - wanted < self.slots_per_step:
            found[-1] += left
        elif left:
            if wanted:
                found[-1] -= wanted
            found.append(left + wanted)
        return np.array(found, np.int64)

    def _sizes_by_tokens(self, tokens: int) -> tuple[list[int], int]:
        counts = np.bincount(self.buckets.numbers, minlength=len(self.buckets.boundaries) + 1)
        found: list[int] = []
        left = 0
        for bucket in np.flatnonzero(counts).tolist():
            each = max(1, tokens // max(1, self.buckets.padded(bucket))) * self.slots_per_step
            steps, left = divmod(left + int(counts[bucket]), each)
            found += [each] * steps
        return found, left

    @cached_property
    def steps_per_epoch(self) -> int:
        """Steps of one epoch; the last may be of another size."""
        return len(self._sizes)

    @cached_property
    def _ends(self) -> NDArray[np.int64]:
        """Positions, in an epoch's order, at which steps end."""
        return np.cumsum(self._sizes[self._sequence(0)])

    def step_size(self, step: int) -> int:
        """Samples in a step of an epoch."""
        return int(self._ends[step] - (self._ends[step - 1] if step else 0))

    def positions(self, slot: Slot) -> tuple[int, int]:
        """The half-open range of positions, in the epoch's order, that the slot holds."""
        size = self.step_size(slot.step)
        start = int(self._ends[slot.step]) - size
        return (
            start + size * slot.micro // self.slots_per_step,
            start + size * (slot.micro + 1) // self.slots_per_step,
        )

    def samples(self, slot: Slot) -> NDArray[np.int64]:
        """The indices of the slot's samples: int64 of shape ``(samples of the slot,)``."""
        first = int(self._ends[slot.step]) - self.step_size(slot.step)
        start, stop = self.positions(slot)
        return self.step_samples(slot.epoch, slot.step)[start - first : stop - first]

    def step_samples(self, epoch: int, step: int) -> NDArray[np.int64]:
        """The indices of all samples of a step, slot by slot."""
        if epoch not in self._epochs:
            while len(self._epochs) >= _KEPT_EPOCHS:
                del self._epochs[next(iter(self._epochs))]
            self._epochs[epoch] = self._by_length(epoch), self._sequence(epoch)
        by_length, sequence = self._epochs[epoch]
        at = int(sequence[step])
        start = int(self._starts[at])
        return self._balanced(by_length[start : start + int(self._sizes[at])])

    # ------------------------------------------------------------------ inside

    @cached_property
    def _epochs(self) -> dict[int, tuple[NDArray[np.int64], NDArray[np.int64]]]:
        """Samples and steps of the last epochs that were asked for: each takes a sort of all."""
        return {}

    @cached_property
    def _starts(self) -> NDArray[np.int64]:
        return np.cumsum(self._sizes) - self._sizes

    def _by_length(self, epoch: int) -> NDArray[np.int64]:
        """All samples from the shortest bucket to the longest, each bucket mixed."""
        mixed = np.arange(self.dataset_size, dtype=np.int64)
        if self.shuffle:
            seed = derive_seed(self.seed, epoch)
            mixed = Permutation(self.dataset_size, seed).take(0, self.dataset_size)
        return mixed[np.argsort(self.buckets.numbers[mixed], kind="stable")]

    def _sequence(self, epoch: int) -> NDArray[np.int64]:
        """Which step, by length, comes when; those of another size stay at the end.

        Where steps differ in size it is the same in all epochs, so that a step has one size.
        """
        count = len(self._sizes)
        last = int((self._sizes != self.global_batch).sum()) if self.buckets.tokens is None else 1
        whole = count - last
        if not self.shuffle or not whole:
            return np.arange(count, dtype=np.int64)
        number = epoch if self.buckets.tokens is None else 0
        mixed = Permutation(whole, derive_seed(self.seed, number, _STEPS)).take(0, whole)
        return np.append(mixed, np.arange(whole, count))

    def _balanced(self, chosen: NDArray[np.int64]) -> NDArray[np.int64]:
        """A step's samples so that all slots get about the same lengths.

        The longest are dealt first, to and fro over the slots, as cards are.
        """
        slots, size = self.slots_per_step, len(chosen)
        if slots == 1 or size < 2:
            return chosen
        longest_first = chosen[np.argsort(-self.buckets.lengths[chosen], kind="stable")]
        shares = np.diff(np.arange(slots + 1) * size // slots)
        rounds = int(shares.max())
        # Who gets how much is fixed; in the last round only those with one more are dealt to.
        dealt: list[NDArray[np.int64]] = []
        for turn in range(rounds):
            taking = np.flatnonzero(shares > turn)
            dealt.append(taking if turn % 2 == 0 else taking[::-1])
        owner = np.concatenate(dealt)
        return longest_first[np.argsort(owner, kind="stable")]
