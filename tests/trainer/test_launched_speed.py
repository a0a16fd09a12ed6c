"""The speed of launched loops: from the steps of processes to the sample that the Brain gets."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from penstock.data.dispatcher import Dispatcher
from penstock.data.hooked import hooked
from penstock.data.protocol import ConsumerReport, QueueState
from penstock.job.protocol import AgentReport, MemberId, Phase, SessionReport, TrainingProcess
from penstock.trainer import training_evidence
from penstock.trainer.brain.job_sampler import JobSampler
from penstock.trainer.brain.launched_speed import LaunchedSpeed
from penstock.trainer.control.coordinator import Coordinator, JobFacts
from penstock.trainer.processes import Processes

POD = (0, 0)


def process(
    steps: int, seconds: float, pid: int = 7, idle: float = 0.0, saves: bool = True
) -> TrainingProcess:
    return TrainingProcess(
        pid=pid, world_size=2, steps=steps, step_seconds=seconds, idle=idle, saves=saves
    )


def test_the_ranks_of_a_world_are_summed() -> None:
    speed = LaunchedSpeed()
    assert speed.measure({POD: [process(10, 5.0)]}) == 2.0
    both = {POD: [process(30, 10.0)], (1, 0): [process(20, 5.0)]}
    assert speed.measure(both) == 8.0
    assert speed.steps == 50


def test_a_step_that_lasts_slows_the_speed_down_and_no_other_process_takes_it_over() -> None:
    speed = LaunchedSpeed()
    speed.measure({POD: [process(10, 5.0)]})
    assert speed.measure({POD: [process(10, 5.0, idle=0.2)]}) == 2.0
    assert speed.measure({POD: [process(10, 5.0, idle=4.0)]}) == 0.25
    assert speed.measure({POD: [process(4, 1.0, idle=0.1)]}) == 4.0, "it was started again"
    assert speed.measure({}) == 0.0
    assert speed.steps == 14


def test_processes_that_state_no_steps_have_no_speed() -> None:
    speed = LaunchedSpeed()
    assert speed.measure({POD: [process(0, 0.0)]}) == 0.0
    assert speed.steps == 0


def agents(
    coordinator: Coordinator, steps: int, now: float, launched: bool, saves: bool = True
) -> None:
    for rank in (0, 1):
        if launched:
            member = MemberId(rank=rank, incarnation=0, nonce=f"n{rank}")
            report = SessionReport(member=member, phase=Phase.READY, address="h:1", data=None)
            coordinator.handle_session_report(report, now)
        said = (process(steps, steps / 4, saves=saves and rank == 0),)
        reported = AgentReport(role="worker", rank=rank, incarnation=0, processes=said)
        coordinator.handle_agent_report(reported, now)


@pytest.mark.parametrize(("launched", "found"), [(True, (40, 8.0)), (False, (7, 3.0))])
def test_a_sample_has_the_steps_of_all_launched_ranks(
    launched: bool, found: tuple[int, float]
) -> None:
    dispatcher = Dispatcher("d")
    queue = QueueState(dequeued_per_second=3.0)
    dispatcher.consumer(ConsumerReport(name="c", address="h:1", taken=7, queue=queue), 0.0)
    coordinator = Coordinator(JobFacts(), identity="t")
    sampler = JobSampler(coordinator, dispatcher)
    agents(coordinator, 12, 0.5, launched)
    sampler.measure(3.0, 0.5)
    agents(coordinator, 20, 1.0, launched)
    sample = sampler.measure(3.0, 1.0)
    assert (sample.step, sample.steps_per_second) == found


def test_a_program_without_checkpoints_has_steps_and_no_speed_to_scale_by() -> None:
    coordinator = Coordinator(JobFacts(), identity="t")
    sampler = JobSampler(coordinator, None)
    for now, steps in ((0.5, 12), (1.0, 20)):
        agents(coordinator, steps, now, launched=True, saves=False)
        sample = sampler.measure(3.0, now)
    assert (sample.step, sample.steps_per_second) == (40, 0.0)
    agents(coordinator, 24, 1.5, launched=True)
    assert sampler.measure(3.0, 1.5).steps_per_second == 8.0


STEPS = """
import sys, time, torch
model = torch.nn.Linear(2, 1)
other = torch.nn.Linear(2, 1)
often, seldom = (torch.optim.SGD(one.parameters(), lr=0.1) for one in (model, other))

def train():
    for step in range(4):
        model(torch.ones(1, 2)).sum().backward()
        often.step()
        if step % 2:
            seldom.step()
        time.sleep(0.4)

train()
print("alone", flush=True)
sys.stdin.readline()
torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(),
                                     rank=0, world_size=1)
often.state_dict()
train()
"""


@pytest.mark.skipif(sys.platform != "linux", reason="abstract sockets are Linux's")
def test_a_process_of_a_group_states_its_steps_and_one_without_does_not() -> None:
    heard = Processes()
    environ = hooked({**os.environ, training_evidence.SOCKET: heard.name})
    command = [sys.executable, "-c", STEPS]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environ
    ) as program:
        try:
            assert program.stdout is not None
            assert program.stdout.readline() == b"alone\n"
            heard.receive()
            (alone,) = heard.read() or ()
            assert (alone.seconds is not None, alone.steps, alone.step_seconds) == (True, 0, 0.0)
            program.communicate(b"\n", timeout=55)
            assert program.returncode == 0
            heard.receive()
            (joined,) = heard.read(gone_too=True) or ()
            assert (alone.saves, joined.saves) == (False, True)
        finally:
            program.kill()
            heard.close()
    assert 4 <= joined.steps <= 7, "its newest statement may be a second old"
    assert joined.step_seconds >= 0.3 * joined.steps
