"""The proof's way from recording to relying on a partition, and each way out of it."""

from __future__ import annotations

import pytest

from penstock.base.enums import PartitionPhase as Phase
from penstock.data.partition.errors import ProofError
from penstock.data.partition.events import (
    Asked,
    Changed,
    Chosen,
    Compared,
    Diverged,
    Event,
    Grouped,
    NotCompared,
    Recorded,
)
from penstock.data.partition.proof import MAX_SEGMENTS, Mode, Proof, Settings, apply

MEMBERS = ("a", "b")


class Job:
    """Members that go step by step together and say at once what they found."""

    def __init__(self, settings: Settings | None = None) -> None:
        self.proof = Proof(settings or Settings())
        self.step = 0
        self.tell(Grouped(1, dict.fromkeys(MEMBERS, ""), 0))

    def tell(self, event: Event) -> None:
        self.proof = apply(self.proof, event)
        self.proof.check_invariants()

    def run(self, steps: int = 1) -> list[Mode]:
        modes = []
        for _ in range(steps):
            epoch = self.proof.epoch
            for member in sorted(self.proof.members):
                self.tell(Asked(epoch, member, self.step))
            mode = self.proof.mode(self.step)
            assert mode is not None
            modes.append(mode)
            for member in sorted(self.proof.members):
                if mode is Mode.RECORD:
                    self.tell(Recorded(epoch, member, self.step, "s"))
                elif mode is Mode.COMPARE:
                    self.tell(Compared(epoch, member, self.step))
            self.step += 1
        return modes

    def reach(self, phase: Phase) -> None:
        while self.proof.phase is not phase or self.proof.segments[-1].first_step > self.step:
            if self.proof.recorded_alike:
                self.tell(Chosen(self.proof.epoch, "p", "the cheapest cut"))
            self.run()


def test_three_steps_are_recorded_ten_compared_and_then_one_in_a_thousand() -> None:
    job = Job()
    assert job.run(3) == [Mode.RECORD] * 3
    assert job.proof.recorded_alike
    assert job.run(2) == [Mode.RECORD] * 2, "until it is chosen what moves"
    job.tell(Chosen(1, "p", "the cheapest cut"))
    first = job.proof.horizon
    assert job.run(first - job.step) == [Mode.RECORD] * (first - 5), "what was granted stays"
    assert job.run(10) == [Mode.COMPARE] * 10
    assert job.proof.phase is Phase.ON
    job.run(job.proof.horizon - job.step)
    modes = job.run(2001)
    assert [place for place, mode in enumerate(modes) if mode is Mode.COMPARE] == [0, 1000, 2000]
    assert set(modes) == {Mode.COMPARE, Mode.PARTITIONED}


def test_a_step_is_granted_before_it_is_begun() -> None:
    job = Job()
    assert job.proof.mode(0) is None
    job.tell(Asked(1, "a", 0))
    assert job.proof.mode(Settings().ahead - 1) is not None
    assert job.proof.mode(Settings().ahead) is None
    with pytest.raises(ProofError, match="step 9: b may ask for 0 to 4"):
        job.tell(Asked(1, "b", 9))


@pytest.mark.parametrize("phase", [Phase.VERIFYING, Phase.ON])
def test_a_difference_ends_it_for_all_from_the_same_step(phase: Phase) -> None:
    job = Job()
    job.reach(phase)
    job.tell(Asked(1, "a", job.step))
    horizon = job.proof.horizon
    granted = [job.proof.mode(step) for step in range(job.step, horizon)]
    job.tell(Compared(1, "b", job.step, "3 bits of pixels"))
    assert [job.proof.mode(step) for step in range(job.step, horizon)] == granted
    assert job.proof.phase is Phase.FELL_BACK
    assert f"step {job.step} of b: differs: 3 bits of pixels" in job.proof.why
    job.step = horizon
    assert job.run(50) == [Mode.RAW] * 50
    with pytest.raises(ProofError, match="has not just recorded alike"):
        job.tell(Chosen(1, "p", ""))


def test_the_reason_tells_up_to_which_step_all_was_seen_equal() -> None:
    job = Job(Settings(compare_every=10))
    job.reach(Phase.ON)
    job.run(25)
    equal = job.proof.segments[-1].first_step + 20
    job.tell(Changed(1, "a", job.step, "encoder.weight was written"))
    assert job.proof.why.endswith(f"(all members were seen equal up to step {equal})")


def test_unlike_recordings_are_repeated_and_then_given_up() -> None:
    job = Job()
    for attempt in range(3):
        assert job.proof.phase is Phase.RECORDING
        job.step = max(job.step, job.proof.segments[-1].first_step)
        for step in range(job.step, job.step + 3):
            for member in MEMBERS:
                job.tell(Asked(1, member, step))
                job.tell(Recorded(1, member, step, f"{member} {attempt}"))
        job.step += 3
    assert job.proof.phase is Phase.FELL_BACK
    assert "b called other things in step" in job.proof.why


def test_where_nothing_is_to_move_the_reason_is_kept() -> None:
    job = Job()
    job.run(3)
    job.tell(Chosen(1, "", "nothing is stateless: x stays: Random"))
    assert (job.proof.phase, job.proof.why) == (
        Phase.FELL_BACK,
        "nothing is stateless: x stays: Random",
    )


def test_three_divergences_end_it_and_one_said_twice_is_one() -> None:
    job = Job()
    job.reach(Phase.ON)
    for number in range(3):
        job.run()
        for _ in range(2):
            job.tell(Diverged(1, "a", job.step - 1, "mul where div was due"))
        assert len(job.proof.divergences) == number + 1
    assert job.proof.phase is Phase.FELL_BACK
    assert "mul where div was due; 3 steps diverged" in job.proof.why


def test_what_was_not_compared_is_compared_later() -> None:
    job = Job()
    job.reach(Phase.VERIFYING)
    job.tell(Asked(1, "a", job.step))
    job.tell(NotCompared(1, "a", job.step))
    assert "nothing came for a to compare" in job.proof.why
    job.reach(Phase.ON)


def test_a_step_that_was_granted_to_compare_is_not_recorded() -> None:
    job = Job()
    job.reach(Phase.VERIFYING)
    job.tell(Asked(1, "a", job.step))
    with pytest.raises(ProofError, match=f"step {job.step}: Recorded; it was granted as Compare"):
        job.tell(Recorded(1, "a", job.step, "s"))


def test_a_member_that_is_too_far_behind_ends_it() -> None:
    job = Job(Settings(recorded_steps=1, compared_steps=5, ahead=1))
    job.reach(Phase.VERIFYING)
    for step in range(job.step, job.step + 3 * MAX_SEGMENTS):
        job.tell(Asked(1, "a", step))
        if job.proof.mode(step) is Mode.COMPARE:
            job.tell(NotCompared(1, "a", step))
    assert job.proof.phase is Phase.FELL_BACK
    assert f"a member is {MAX_SEGMENTS} changes behind" in job.proof.why


def test_who_has_the_prefix_starts_as_the_group_is_and_the_first_step_is_compared() -> None:
    job = Job()
    job.reach(Phase.ON)
    job.run(20)
    job.step -= 7
    job.tell(Grouped(2, {"a": "p", "c": "p"}, job.step))
    assert job.run(3) == [Mode.COMPARE, Mode.PARTITIONED, Mode.PARTITIONED]


def test_who_has_not_sends_all_back_to_the_raw_batch_with_the_first_step() -> None:
    job = Job()
    job.reach(Phase.ON)
    job.run(20)
    redone = job.step - 7
    job.tell(Grouped(2, {"a": "p", "b": "p", "c": ""}, redone))
    assert job.proof.why == "c came without the group's prefix: all record again"
    job.step = redone
    assert job.run(3) == [Mode.RECORD] * 3, "partitioned in one try, raw in the other"
    job.reach(Phase.ON)


def test_a_group_that_fell_back_stays_so_whoever_comes() -> None:
    job = Job()
    job.reach(Phase.ON)
    job.run()
    job.tell(Compared(1, "a", job.step - 1, "a bit"))
    job.tell(Grouped(2, {"c": "p"}, job.step))
    assert job.run(20) == [Mode.RAW] * 20
    assert "a bit" in job.proof.why


@pytest.mark.parametrize(
    ("event", "message"),
    [
        (Grouped(2, {}, 0), "epoch 2: has no members"),
        (Grouped(2, {"a": ""}, -1), "first_step: -1"),
        (Asked(2, "a", 0), "epoch 2: this group is in 1"),
        (Asked(1, "z", 0), "member z: is not of epoch 1"),
        (Recorded(1, "a", 4, "s"), "step 4: was granted to nobody; 4 is the next"),
        (Compared(1, "a", 0), "step 0: Compared; it was granted as Record"),
        (Chosen(1, "p", ""), "has not just recorded alike"),
    ],
)
def test_what_cannot_be_is_refused_and_changes_nothing(event: Event, message: str) -> None:
    job = Job()
    job.tell(Asked(1, "a", 0))
    before = job.proof
    with pytest.raises(ProofError, match=message):
        job.tell(event)
    assert job.proof is before


def test_who_has_no_part_of_a_step_records_and_compares_later() -> None:
    job = Job()
    for step in range(20):
        for member in MEMBERS:
            job.tell(Asked(1, member, step))
        job.tell(Recorded(1, "a", step, "s"))
        if step in (5, 9, 17):
            assert not job.proof.recorded_alike
            job.tell(Recorded(1, "b", step, "s"))
    assert job.proof.recorded_alike
    assert len(job.proof.seen["a"]) == 3, "what says nothing new is not kept"
    job.tell(Chosen(1, "p", "the cheapest cut"))
    for step in range(20, 100):
        for member in MEMBERS:
            job.tell(Asked(1, member, step))
        if job.proof.mode(step) is Mode.COMPARE and job.proof.phase is Phase.VERIFYING:
            job.tell(Compared(1, "a", step))
            if step % 4 == 0:
                job.tell(Compared(1, "b", step))
    assert job.proof.phase is Phase.ON
    assert job.proof.why == "10 steps were equal bit by bit for all members"


def test_a_recording_that_is_late_and_unlike_has_all_record_again() -> None:
    job = Job()
    job.run(3)
    assert job.proof.recorded_alike
    job.tell(Asked(1, "a", 3))
    job.tell(Recorded(1, "a", 3, "other"))
    assert not job.proof.recorded_alike
    assert job.proof.recordings == 1


def test_settings_that_count_nothing_are_refused() -> None:
    with pytest.raises(ProofError, match="ahead: 0; must be at least 1"):
        Settings(ahead=0)
