"""Whether a job's workers train one model together, or each a copy of its own without knowing.

`separate` and `unattached` are the rule, without I/O and clock; `SilentCopies` applies it to the
newest report of each agent. Guesses are avoided: a worker that loads its model for ten minutes has
not trained yet and is waited for, and one that takes a few steps before it joins the others is
given `CONFIRMED_SECONDS`. What is refused:

- ``SeparateCopies``: two pods train at the same time, and no process group reaches over all pods
  that do. Or a worker of several has ended well and was never part of a group, a session or a
  lease. The same of the processes that one agent starts as ranks of one world.
- ``DuplicateRank``: two live processes are one rank. A program that was started again in its pod is
  not: its old process is dead.

A refusal stands, as a fatal problem of the job: a model that was trained in copies is not mended by
going on.

Workers that are silent, as those without PyTorch are, are judged at their end only. Whoever runs
them is warned after `SILENT_SECONDS`, not when hours are lost.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from penstock.crds.conditions import JobReason
from penstock.job.protocol import AgentReport, ProcessState, TrainingProcess
from penstock.job.work_source import Part
from penstock.trainer.control.model.problems import Problem, Problems

REFUSED: Final = 78
"""Exit code of the agents of a job that was refused, and of its trainer where there is no cluster.

EX_CONFIG of sysexits.h: what is to be changed is how the program is run."""
SOURCE: Final = "workers"
CONFIRMED_SECONDS: Final = 10.0
"""A process has trained as a rank for so long before that counts against its job."""
FRESH_SECONDS: Final = 5.0
"""An agent that has not reported for so long says nothing about who trains now."""
SILENT_SECONDS: Final = 60.0
"""Several programs have run for so long and none has said how it trains: time for a warning."""
PROVEN_REPORTS: Final = 2
"""An agent that was heard so often after its successor lives. Once may be a report that was late;
it sends one at a time."""
_MAX_LIVES: Final = 8
_SHOWN: Final = 4

Processes = Sequence[TrainingProcess]


@dataclass(frozen=True)
class Refusal:
    """Why a job cannot go on: the reason of its condition, and what to do, for people."""

    reason: JobReason
    message: str


def separate(workers: Mapping[int, Processes]) -> list[int]:
    """The workers that train apart from one another, by rank; none where all are well.

    Args:
        workers: what the processes of each worker's pod say of themselves, for live pods.
    """
    own = {rank: _own(processes) for rank, processes in workers.items()}
    training = _at_the_same_time(own)
    if len(training) < 2 or _one_group_over(training, own):
        return []
    return sorted(training)


def copies_within(processes: Processes) -> bool:
    """Whether processes that one agent started as ranks of one world train apart, at one time."""
    return _never_joined(processes) and (
        len(_at_the_same_time({one.pid: [one] for one in processes})) > 1
    )


def copies_at_end(processes: Processes) -> bool:
    """The same of processes that have all ended well, however short their training was."""
    trained = sum(one.seconds is not None for one in processes)
    return _never_joined(processes) and trained > 1


def _never_joined(processes: Processes) -> bool:
    return all(one.part is Part.OWN and one.widest == 1 for one in processes)


def _own(processes: Processes) -> list[TrainingProcess]:
    """The processes of a pod in which nothing of Penstock's divides the work."""
    divided = any(process.part is not Part.OWN for process in processes)
    return [] if divided else list(processes)


def _at_the_same_time(own: Mapping[int, Processes]) -> list[int]:
    """The pods that have trained for long enough, beside the one that began to last.

    A pod whose last step came before that has left the work to others: when a group has ended, its
    first rank may well go on by itself.
    """
    confirmed = {rank: list(filter(_is_confirmed, each)) for rank, each in own.items()}
    began = (one.idle + (one.seconds or 0.0) for each in confirmed.values() for one in each)
    newest = min(began, default=0.0)
    return [
        rank
        for rank, processes in confirmed.items()
        if any(newest - one.idle >= CONFIRMED_SECONDS for one in processes)
    ]


def _is_confirmed(process: TrainingProcess) -> bool:
    return process.seconds is not None and process.seconds >= CONFIRMED_SECONDS


def _one_group_over(pods: Sequence[int], own: Mapping[int, Sequence[TrainingProcess]]) -> bool:
    """Whether there is a world size that each pod claims, and no two pods the same rank of it."""
    members: dict[int, dict[int, set[int]]] = defaultdict(lambda: defaultdict(set))
    for pod in pods:
        for process in own[pod]:
            members[process.world_size][pod].add(process.rank)
    for by_pod in members.values():
        ranks = [rank for claimed in by_pod.values() for rank in claimed]
        if len(by_pod) == len(pods) and len(ranks) == len(set(ranks)):
            return True
    return False


def unattached(processes: Processes | None) -> bool:
    """Whether nothing that a pod's processes ever said points to others that they train with.

    Of processes that had no way to say so (None) nothing is known, and they are not held to it.
    """
    if processes is None:
        return False
    claimed: dict[int, set[int]] = defaultdict(set)
    for process in processes:
        if process.part is not Part.OWN:
            return False
        claimed[process.widest].add(process.widest_rank)
    return all(len(ranks) >= world for world, ranks in claimed.items())


def duplicate_rank(rank: int, who: str) -> Refusal:
    """Two live processes are one rank."""
    return Refusal(
        JobReason.DUPLICATE_RANK,
        f"two live processes are worker {rank} ({who}), and each would train as if it were alone. "
        "A session has one process in each worker: start it with `penstock run -- python train.py`,"
        " without torchrun or another launcher, and give each worker a PENSTOCK_RANK of its own "
        "where no cluster does",
    )


def copies_of_one_pod(rank: int, launched: int) -> Refusal:
    """Several processes of one pod each train a model."""
    return Refusal(
        JobReason.SEPARATE_COPIES,
        f"the {launched} processes of worker {rank} train separate copies of the model: each is "
        "rank 0 of 1 and sees all data. --nproc-per-node is for programs that call "
        "torch.distributed.init_process_group(), or use a library that does; start those that are "
        "meant to train apart without it",
    )


def _separate_copies(workers: Mapping[int, Processes], job: str, how: str) -> Refusal:
    told = [
        f"worker {rank} {_standing(processes)}"
        for rank, processes in sorted(workers.items())[:_SHOWN]
    ]
    if len(workers) > _SHOWN:
        told.append(f"and {len(workers) - _SHOWN} more")
    return Refusal(
        JobReason.SEPARATE_COPIES,
        f"{how}: {', '.join(told)}. Each would see all data and make a model of its own. Choose: "
        "use penstock.trainer.elastic.session (docs/training.md); or form one process group over "
        "all workers, started by `penstock run --nproc-per-node=N -- train.py`, or with "
        "MASTER_ADDR, MASTER_PORT, RANK and WORLD_SIZE, or by torchrun --nnodes=N "
        f"--rdzv-backend=c10d --rdzv-endpoint=worker-0.{job}:29400; or have one worker, "
        "maxReplicas: 1; or say independentWorkers: true (--independent without a cluster) where "
        "each worker is meant to run a program of its own",
    )


_SILENCE: Final = (
    "the programs of %d workers have run for %.0f s, and none has said that it trains, alone or "
    "with others: the job will not count as succeeded unless the workers form a group that "
    "Penstock can see (docs/training.md), or independentWorkers: true is said (--independent "
    "without a cluster), as it has to be where they speak to each other by other means than "
    "torch.distributed"
)


def _standing(processes: Processes) -> str:
    if not processes:
        return "was never seen to train"
    claims = sorted({(one.world_size, one.rank) for one in processes})
    return "is " + " and ".join(f"rank {rank} of {world}" for world, rank in claims[:_SHOWN])


@dataclass
class SilentCopies:
    """The watch over one job, which files its refusal among the job's problems."""

    problems: Problems = field(default_factory=Problems)
    job: str = "JOB"
    independent: bool = False
    """The spec says that the workers are programs of their own."""
    shown: bool = False
    """Whether those who watch the job have been told of the refusal: its workers are told after
    them, so that nobody takes their end for a failure to be mended by a restart."""
    _reports: dict[int, tuple[AgentReport, float]] = field(default_factory=dict)
    _lives: dict[int, dict[str, int]] = field(default_factory=dict)
    """Of each rank's newest incarnation: its agents, oldest first, and how often each was heard
    after its successor."""
    _silent_since: float | None = None
    _warned: bool = False

    @property
    def refusal(self) -> Problem | None:
        """Why the job cannot go on; stands once it is there."""
        return self.problems.fatal

    def hear(self, report: AgentReport, now: float) -> None:
        """Take in the report of a worker's agent that has not been superseded."""
        before = self._reports.get(report.rank)
        if before is not None and before[0].incarnation != report.incarnation:
            self._lives.pop(report.rank, None)
        self._reports[report.rank] = (report, now)
        if report.duplicates:
            who = "processes " + " and ".join(map(str, report.duplicates[:_SHOWN]))
            self._refuse(duplicate_rank(report.rank, who), now)
        if report.life and self._lives_twice(report):
            who = "two `penstock run` with one PENSTOCK_RANK"
            self._refuse(duplicate_rank(report.rank, who), now)

    def look(self, now: float) -> None:
        """Whether the workers train apart from one another now."""
        if self.independent or self.refusal is not None:
            return
        workers = self._running(now)
        if apart := separate(workers):
            found = {rank: workers[rank] for rank in apart}
            count = f"{len(apart)} workers train separate copies of the model"
            self._refuse(_separate_copies(found, self.job, count), now)
        for rank, processes in workers.items():
            launched = self._reports[rank][0].launched
            if launched > 1 and copies_within(processes):
                self._refuse(copies_of_one_pod(rank, launched), now)

    def listen(self, now: float) -> str:
        """Warn once where several workers of a job that divides no work stay silent; else empty."""
        if self.independent or self.refusal is not None or self._warned:
            return ""
        running = self._running(now)
        if len(running) < 2 or any(report.processes for report, _ in self._reports.values()):
            self._silent_since = None
            return ""
        if self._silent_since is None:
            self._silent_since = now
        if now - self._silent_since < SILENT_SECONDS:
            return ""
        self._warned = True
        return _SILENCE % (len(running), SILENT_SECONDS)

    def alone(self, now: float) -> list[int]:
        """The workers that train now, and not with another one."""
        return sorted(
            rank
            for rank, processes in self._running(now).items()
            if unattached(processes) and any(one.seconds is not None for one in processes)
        )

    def _running(self, now: float) -> dict[int, Processes]:
        return {
            rank: report.processes
            for rank, (report, seen) in self._reports.items()
            if report.processes is not None
            and report.state is ProcessState.RUNNING
            and now - seen <= FRESH_SECONDS
        }

    def judge_end(self, report: AgentReport, workers: int, now: float) -> None:
        """A worker's program has ended with 0, of a job of so many that divides no work."""
        if not self.independent and report.launched > 1 and copies_at_end(report.processes or ()):
            self._refuse(copies_of_one_pod(report.rank, report.launched), now)
        together = any(not unattached(said.processes) for said, _ in self._reports.values())
        if self.independent or workers < 2 or together:
            return
        how = f"worker {report.rank} of {workers} has ended without ever having worked with another"
        self._refuse(_separate_copies({report.rank: report.processes or ()}, self.job, how), now)

    def _lives_twice(self, report: AgentReport) -> bool:
        """Whether an agent goes on speaking for a pod for which a newer one speaks."""
        lives = self._lives.setdefault(report.rank, {})
        if report.life not in lives:
            while len(lives) >= _MAX_LIVES:
                del lives[next(iter(lives))]
            lives[report.life] = 0
        if report.life != next(reversed(lives)):
            lives[report.life] += 1
        return lives[report.life] >= PROVEN_REPORTS

    def _refuse(self, refusal: Refusal, now: float) -> None:
        if self.refusal is None:
            self.problems.report(SOURCE, refusal.reason, refusal.message, now, fatal=True)
