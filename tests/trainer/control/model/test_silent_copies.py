"""Which claims of training processes add up to one group, and which are copies: the pure rule."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.crds.conditions import JobReason
from penstock.job.protocol import AgentReport, ProcessState, TrainingProcess
from penstock.job.work_source import Part
from penstock.trainer.control.coordinator import Coordinator, JobFacts
from penstock.trainer.control.model.silent_copies import (
    CONFIRMED_SECONDS,
    SilentCopies,
    separate,
    unattached,
)

LONG = CONFIRMED_SECONDS


def process(
    rank: int = 0,
    world: int = 1,
    seconds: float | None = LONG,
    part: Part = Part.OWN,
    pid: int = 7,
    idle: float = 0.0,
    group: tuple[int, int] | None = None,
) -> TrainingProcess:
    widest, widest_rank = group or (world, rank)
    return TrainingProcess(
        pid=pid,
        rank=rank,
        world_size=world,
        seconds=seconds,
        part=part,
        idle=idle,
        widest=widest,
        widest_rank=widest_rank,
    )


ALONE = process()


@pytest.mark.parametrize(
    ("workers", "refused"),
    [
        ({}, []),
        ({0: [ALONE]}, []),
        ({0: [ALONE], 1: [ALONE]}, [0, 1]),
        ({0: [ALONE], 1: []}, []),  # the other one still loads its model
        ({0: [ALONE], 1: [process(seconds=None)]}, []),  # has joined a group of one, no step yet
        ({0: [ALONE], 1: [process(seconds=LONG - 1)]}, []),  # may be a few steps to warm up
        ({0: [process(0, 2)], 1: [process(1, 2)]}, []),
        ({0: [process(0, 2)], 1: [process(1, 2)], 2: [ALONE]}, [0, 1, 2]),  # a copy beside a group
        ({0: [process(0, 4), process(1, 4)], 1: [process(2, 4), process(3, 4)]}, []),
        ({0: [process(0, 2), process(1, 2)], 1: [process(0, 2), process(1, 2)]}, [0, 1]),
        ({0: [process(0, 2), process(1, 2)]}, []),  # one pod may have a group of its own
        ({0: [process(0, 2)], 1: [process(0, 2)]}, [0, 1]),
        ({0: [process(0, 2)], 1: [process(1, 3)]}, [0, 1]),
        # Beside the group, each pod trains a tokenizer of its own: the group is what counts.
        ({0: [process(0, 2), process(0, 1)], 1: [process(1, 2), process(0, 1)]}, []),
        # Groups that have only just been formed count for those who trained before.
        ({0: [process(0, 2, 1.0), ALONE], 1: [process(1, 2, 1.0), ALONE]}, []),
        # The group has ended, and its first rank goes on by itself while the others wait.
        ({0: [process(0, 1, 20.0)], 1: [process(1, 2, 60.0, idle=21.0)]}, []),
        ({0: [process(0, 1, 20.0)], 1: [process(1, 2, 60.0, idle=16.0)]}, []),  # heard late
        # Copies with long steps: the last of one lies within the time of the other.
        ({0: [process(0, 1, 60.0, idle=40.0)], 1: [process(0, 1, 120.0)]}, [0, 1]),
        ({0: [process(0, 1, 60.0)], 1: [process(0, 1, 60.0, idle=45.0)]}, [0, 1]),
        ({0: [process(part=Part.SESSION)], 1: [process(part=Part.SESSION)]}, []),
        ({0: [process(part=Part.CLOSED)], 1: [process(part=Part.CLOSED)]}, []),
        ({0: [process(part=Part.SERVERS)], 1: [process(part=Part.SERVERS)]}, []),
        ({0: [process(part=Part.SHARDS)], 1: [process(part=Part.SHARDS)]}, []),
    ],
)
def test_the_table(workers: dict[int, list[TrainingProcess]], refused: list[int]) -> None:
    assert separate(workers) == refused


@given(
    pods=st.lists(st.integers(1, 4), min_size=1, max_size=5),
    silent=st.sets(st.integers(0, 4)),
)
def test_one_group_is_never_refused_whoever_has_begun(pods: list[int], silent: set[int]) -> None:
    world, rank, workers = sum(pods), 0, {}
    for pod, size in enumerate(pods):
        seconds = None if pod in silent else LONG
        workers[pod] = [process(rank + local, world, seconds) for local in range(size)]
        rank += size
    assert separate(workers) == []


@given(pods=st.lists(st.integers(1, 4), min_size=2, max_size=5))
def test_groups_that_end_at_their_pods_are_refused(pods: list[int]) -> None:
    workers = {
        pod: [process(local, size) for local in range(size)] for pod, size in enumerate(pods)
    }
    assert separate(workers) == list(range(len(pods)))
    assert all(unattached(processes) for processes in workers.values())


@pytest.mark.parametrize(
    ("processes", "expected"),
    [
        ([], True),
        ([ALONE], True),
        ([process(0, 2), process(1, 2)], True),
        ([process(1, 2)], False),
        ([process(1, 2, None)], False),  # it joined a group and only evaluated
        ([process(part=Part.SHARDS, seconds=None)], False),
        ([process(0, 1, group=(2, 0))], False),  # it went on alone when the group had ended
    ],
)
def test_what_a_worker_that_has_ended_worked_with(
    processes: list[TrainingProcess], expected: bool
) -> None:
    assert unattached(processes) is expected


def report(
    rank: int = 0, *processes: TrainingProcess, life: str = "a", **fields: object
) -> AgentReport:
    return AgentReport(
        role="worker", rank=rank, incarnation=0, life=life, processes=processes, **fields
    )


def test_the_refusal_says_who_and_what_to_do_and_stands() -> None:
    copies = SilentCopies(job="mine")
    for rank in range(2):
        copies.hear(report(rank, ALONE), 0.0)
    copies.look(0.1)
    assert copies.refusal is not None
    assert copies.refusal.reason is JobReason.SEPARATE_COPIES
    for words in (
        "2 workers",
        "worker 0 is rank 0 of 1",
        "worker 1 is rank 0 of 1",
        "elastic.session",
        "--rdzv-endpoint=worker-0.mine:29400",
        "maxReplicas: 1",
        "independentWorkers: true",
    ):
        assert words in copies.refusal.message
    first = copies.refusal
    copies.hear(report(3, duplicates=(41, 42)), 1.0)
    assert copies.refusal is first


def test_an_agent_that_is_silent_says_nothing_about_now() -> None:
    copies = SilentCopies()
    copies.hear(report(0, ALONE), 0.0)
    copies.hear(report(1, ALONE), 6.0)
    copies.look(6.1)
    assert copies.refusal is None


def test_independent_workers_are_left_alone() -> None:
    copies = SilentCopies(independent=True)
    for rank in range(2):
        copies.hear(report(rank, ALONE), 0.0)
    copies.look(0.1)
    copies.judge_end(report(0), 2, 0.0)
    assert copies.refusal is None


def ended(rank: int, *processes: TrainingProcess) -> AgentReport:
    return report(rank, *processes, state=ProcessState.EXITED, exit_code=0)


@pytest.mark.parametrize(("workers", "refused"), [(1, False), (2, True)])
def test_a_worker_of_several_that_ended_by_itself_is_no_success(
    workers: int, refused: bool
) -> None:
    copies = SilentCopies()
    last = ended(0)
    copies.hear(last, 0.0)
    copies.judge_end(last, workers, 0.0)
    assert (copies.refusal is not None) is refused


def test_a_worker_that_came_when_the_group_was_through_is_no_copy() -> None:
    copies = SilentCopies()
    copies.hear(ended(0, process(0, 2)), 0.0)
    late = ended(1)  # it found the finished model, and had nothing to do
    copies.hear(late, 1.0)
    copies.judge_end(late, 2, 0.0)
    assert copies.refusal is None


def test_agents_that_cannot_say_what_their_processes_do_are_not_held_to_it() -> None:
    copies = SilentCopies()
    for rank in range(2):
        before = AgentReport(
            role="worker", rank=rank, incarnation=0, state=ProcessState.EXITED, exit_code=0
        )
        copies.hear(before, 0.0)
        copies.judge_end(before, 2, 0.0)
    copies.look(0.1)
    assert copies.alone(0.1) == []
    assert copies.refusal is None


def test_two_agents_that_go_on_speaking_for_one_rank_are_refused() -> None:
    copies = SilentCopies(independent=True)
    for second in range(5):
        copies.hear(report(0, life="a"), second)
        copies.hear(report(0, life="b"), second + 0.5)
    assert copies.refusal is not None
    assert copies.refusal.reason is JobReason.DUPLICATE_RANK


def test_an_agent_that_was_started_again_is_not() -> None:
    copies = SilentCopies()
    for second in range(5):
        copies.hear(report(0, life="a"), second)
    for second in range(5, 10):
        copies.hear(report(0, life="b"), second)
    assert copies.refusal is None


def test_one_report_of_a_dead_agent_may_be_late() -> None:
    copies = SilentCopies()
    for life in ("a", "a", "b", "a", "b", "b"):
        copies.hear(report(0, life=life), 0.0)
    assert copies.refusal is None


def test_two_sessions_in_one_pod_are_refused() -> None:
    copies = SilentCopies()
    copies.hear(report(3, duplicates=(41, 42)), 0.0)
    assert copies.refusal is not None
    assert copies.refusal.reason is JobReason.DUPLICATE_RANK
    assert "processes 41 and 42" in copies.refusal.message
    assert "worker 3" in copies.refusal.message


def test_agents_are_told_only_after_those_who_watch_the_job() -> None:
    trainer = Coordinator(JobFacts(), "trainer")
    trainer.expect_workers(range(2))
    assert not trainer.handle_agent_report(report(1), 0.0).undecided
    first = trainer.handle_agent_report(ended(0), 0.0)
    assert first.undecided
    assert not first.refused
    trainer.confirm_refusal_shown()
    second = trainer.handle_agent_report(ended(0), 0.5)
    assert second.refused.startswith("SeparateCopies: worker 0 of 2 has ended")
    assert not second.undecided
    assert not trainer.done()


def test_an_agent_of_the_previous_release_is_understood() -> None:
    said = report(0).model_dump(mode="json", exclude={"life", "processes", "duplicates"})
    assert AgentReport.model_validate(said).processes is None


def listened(copies: SilentCopies, *reports: AgentReport, seconds: int) -> list[str]:
    """What was said while these reports came every second for so long."""
    said = []
    for second in range(seconds + 1):
        for one in reports:
            copies.hear(one, second)
        said.append(copies.listen(second))
    return [warning for warning in said if warning]


def test_workers_that_stay_silent_are_warned_of_once_and_early() -> None:
    copies = SilentCopies()
    assert listened(copies, report(0), report(1), seconds=59) == []
    [said] = listened(copies, report(0), report(1), seconds=200)
    assert "2 workers have run for 60 s" in said
    assert "will not count as succeeded" in said
    assert "independentWorkers: true" in said
    assert copies.refusal is None


@pytest.mark.parametrize(
    ("copies", "reports"),
    [
        (SilentCopies(independent=True), [report(0), report(1)]),
        (SilentCopies(), [report(0)]),
        (SilentCopies(), [report(0), report(1, process(1, 2))]),
        (
            SilentCopies(),
            [AgentReport(role="worker", rank=rank, incarnation=0) for rank in range(2)],
        ),
    ],
)
def test_others_are_not_warned_of(copies: SilentCopies, reports: list[AgentReport]) -> None:
    assert listened(copies, *reports, seconds=100) == []
