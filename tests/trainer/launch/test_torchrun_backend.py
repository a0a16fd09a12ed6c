"""``torchrun --rdzv-backend=penstock``: its agents get their worlds from the job's trainer.

torchrun finds the backend among the entry points of installed distributions: here those of
pyproject.toml, in a folder on its path.
"""

from __future__ import annotations

import os
import sys
import tomllib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import psutil
import pytest
from torch.distributed.elastic.rendezvous import (
    RendezvousClosedError,
    RendezvousInfo,
    RendezvousParameters,
)

from benchmarks.elastic.processes import ROOT, TOKEN, Job, running_job
from penstock.crds import environment as names
from penstock.job.settings import pod_identity
from penstock.trainer.launch import torchrun_backend
from penstock.trainer.launch.torchrun_rendezvous import TrainerRendezvous
from tests.patience import patient
from tests.trainer.launched_job import SCRIPT, assert_ends_well, wait_for_world

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]


@pytest.fixture
def installed(tmp_path: Path) -> str:
    """A folder for PYTHONPATH with the entry points that a wheel of this tree would bring."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    information = tmp_path / "installed" / f"penstock-{project['version']}.dist-info"
    information.mkdir(parents=True)
    about = f"Metadata-Version: 2.1\nName: penstock\nVersion: {project['version']}\n"
    (information / "METADATA").write_text(about)
    lines = [
        line
        for group, entries in project["entry-points"].items()
        for line in (f"[{group}]", *(f"{name} = {target}" for name, target in entries.items()))
    ]
    (information / "entry_points.txt").write_text("\n".join(lines) + "\n")
    return str(information.parent)


def handler(job: Job, rank: int, incarnation: int = 0) -> TrainerRendezvous:
    """What torchrun makes in a pod."""
    environ = {
        names.RANK: str(rank),
        names.INCARNATION: str(incarnation),
        names.POD_IP: f"127.0.9.{rank + 1}",
        names.JOB_TOKEN: TOKEN,
    }
    return TrainerRendezvous("penstock", job.address, pod_identity(environ), "run")


@pytest.fixture
def job(tmp_path: Path) -> Iterator[Job]:
    with running_job(tmp_path) as running:
        running.start_trainer()
        yield running


def entered(*made: TrainerRendezvous) -> list[RendezvousInfo]:
    """What each of several agents is told, all of which wait for a world at the same time."""
    with ThreadPoolExecutor(len(made)) as pool:
        waiting = [pool.submit(one.next_rendezvous) for one in made]
        return [one.result(patient(30)) for one in waiting]


def wait_until(job: Job, look: Callable[[], object], what: str) -> None:
    job.wait_for(look, patient(20), what)


def test_agents_of_one_job_are_put_into_worlds_as_they_come_and_go(job: Job) -> None:
    with ExitStack() as stack:
        first, second = handler(job, 0), handler(job, 1)
        stack.callback(second.shutdown)
        told = entered(first, second)
        assert [(one.rank, one.world_size) for one in told] == [(0, 2), (1, 2)]
        stores = {
            (one.bootstrap_store_info.master_addr, one.bootstrap_store_info.master_port)
            for one in told
            if one.bootstrap_store_info is not None
        }
        assert len(stores) == 1
        told[0].store.set("from", "0")
        assert told[1].store.get("from") == b"0"
        assert first.num_nodes_waiting() == second.num_nodes_waiting() == 0

        third = handler(job, 2)
        stack.callback(third.shutdown)
        with ThreadPoolExecutor(1) as pool:
            joining = pool.submit(third.next_rendezvous)
            wait_until(job, first.num_nodes_waiting, "a pod more is announced")
            told = entered(first, second)
            assert (joining.result(patient(30)).rank, told[0].world_size) == (2, 3)

        first._line.close()  # as when its pod is lost: it says nothing more, and hosts no store
        with ThreadPoolExecutor(2) as pool:  # their processes fail of it, so both ask anew
            left = [pool.submit(one.next_rendezvous) for one in (second, third)]
            assert [one.result(patient(30)).rank for one in left] == [0, 1]


def test_an_agent_of_a_pod_that_was_replaced_is_told_so(job: Job) -> None:
    old = handler(job, 0)
    entered(old)
    new = handler(job, 0, incarnation=1)
    entered(new)

    def is_told() -> bool:
        try:
            old.num_nodes_waiting()
        except RendezvousClosedError:
            return True
        return False

    wait_until(job, is_told, "the older process is refused")
    old._line.close()
    new.shutdown()


def test_who_comes_when_all_is_trained_ends_well(job: Job) -> None:
    trained = handler(job, 0)
    entered(trained)
    late = handler(job, 1)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(late.next_rendezvous)
        trained.shutdown()
        with pytest.raises(SystemExit) as ended:
            waiting.result(patient(30))
    assert ended.value.code == 0
    late.shutdown()


def test_without_a_trainer_it_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    parameters = RendezvousParameters("penstock", "", "none", 1, 1)
    monkeypatch.delenv(names.TRAINER_ADDRESS, raising=False)
    with pytest.raises(ValueError, match="torchrun --standalone"):
        torchrun_backend.create(parameters)
    monkeypatch.setenv(names.TRAINER_ADDRESS, "nowhere")
    with pytest.raises(ValueError, match="expected HOST:PORT"):
        torchrun_backend.create(parameters)


def torchrun(*words: str) -> tuple[str, ...]:
    options = ("--rdzv-backend=penstock", "--nproc-per-node=1", *words)
    return (sys.executable, "-m", "torch.distributed.run", *options)


def kill_pod(job: Job, rank: int) -> None:
    """Everything in it, as a container's end does: torchrun's processes outlive their agent."""
    agent = psutil.Process(job.workers[rank].pid)
    inside = agent.children(recursive=True)
    job.kill(rank)
    del job.workers[rank]
    for process in inside:
        if process.is_running():
            process.kill()


def test_the_world_goes_on_when_the_pod_of_its_store_is_killed(
    installed: str, tmp_path: Path
) -> None:
    environ = {"PYTHONPATH": os.pathsep.join((installed, *sys.path[1:]))}
    command = (*torchrun("--max-restarts=9"), SCRIPT, str(tmp_path))
    with running_job(tmp_path) as job:
        job.start_trainer()
        for rank in range(2):
            job.start_worker(rank, *command, environ=environ)
        began = wait_for_world(job, 2)
        kill_pod(job, 0)
        alone = wait_for_world(job, 1, began)
        job.start_worker(0, *command, environ=environ)
        wait_for_world(job, 2, alone)
        assert_ends_well(job)
