"""A trainer that is told to stop ends within 10 s, whoever of those it speaks to is away."""

from __future__ import annotations

import asyncio
import logging
import signal
from dataclasses import replace
from pathlib import Path

import pytest

from penstock.crds import environment as names
from penstock.crds.elasticjob import ElasticJob
from penstock.job.protocol import DataSpec, LeaseRequest
from penstock.job.settings import TrainerSettings, pod_identity
from penstock.trainer import shutdown as room
from penstock.trainer.control.coordinator import Coordinator, JobFacts
from penstock.trainer.journal import Journal, restore
from penstock.trainer.journal_writer import CLOSE_SECONDS, JournalWriter
from penstock.trainer.service import TrainerService

DATA = DataSpec(dataset_size=64, global_batch=8, epochs=1, slots_per_step=1)


class Line:
    """A Brain and a status that are told farewell, each as `leave` says."""

    def __init__(self, meeting: asyncio.Barrier | None) -> None:
        self.copies = self.nodes = self
        self.closed = False
        self.at_work = asyncio.Event()
        self._meeting = meeting

    async def leave(self) -> None:
        """Wait until all are here; without a meeting, for ever."""
        if self._meeting is None:
            await asyncio.Event().wait()
        else:
            await self._meeting.wait()

    async def register(self, describe: object) -> None:
        self.at_work.set()
        await asyncio.Event().wait()

    async def send_samples(self) -> None:
        await asyncio.Event().wait()

    async def keep_ledger(self) -> None:
        await asyncio.Event().wait()

    async def run(self, quiet_seconds: float) -> None:
        await asyncio.Event().wait()

    def number_from(self, incarnation: int) -> None:
        pass

    async def leave_ledger(self) -> None:
        await self.leave()

    async def settle(self, seconds: float) -> None:
        await self.leave()

    async def close(self) -> None:
        self.closed = True


def new_service(folder: Path) -> TrainerService:
    identity = pod_identity({})
    return TrainerService(TrainerSettings(identity, port=0, state_dir=folder))


async def stop_while_serving(service: TrainerService, line: Line) -> None:
    """Begin with this line, lease something, and be told to stop."""
    service._brain = service._status = line  # type: ignore[assignment]  # a fake of both lines
    running = asyncio.create_task(service.run())
    async with asyncio.timeout(50):
        await line.at_work.wait()
        ask = LeaseRequest(holder="a", data=DATA, max_slots=4)
        service._coordinator.grant_lease(ask, 0.0)
        signal.raise_signal(signal.SIGTERM)
        assert await running == 0
    assert line.closed


def test_farewells_wait_for_nobody_and_the_journal_is_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        meeting = asyncio.Barrier(3)  # of Brain, status and journal
        really = JournalWriter.close

        async def close(writer: JournalWriter, seconds: float = CLOSE_SECONDS) -> None:
            await meeting.wait()
            await really(writer, seconds)

        monkeypatch.setattr(JournalWriter, "close", close)
        await stop_while_serving(new_service(tmp_path), Line(meeting))

    asyncio.run(main())
    following = Coordinator(JobFacts(), "next")
    restore(Journal(tmp_path).path.read_bytes(), "the journal", following, 0.0)
    assert following.state.ledger is not None
    assert [lease.holder for lease in following.state.ledger.leases()] == ["a"]


def test_all_that_hangs_is_left_and_the_journal_is_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def stop(service: TrainerService) -> None:
        await stop_while_serving(service, Line(None))

    monkeypatch.setattr(room, "STOP_SECONDS", 3.0)
    with caplog.at_level(logging.WARNING):
        asyncio.run(stop(new_service(tmp_path)))
    assert "left after 3 s, before all was said" in caplog.messages
    following = Coordinator(JobFacts(), "next")
    restore(Journal(tmp_path).path.read_bytes(), "the journal", following, 0.0)
    assert following.state.ledger is not None


def test_server_and_journal_have_their_time_within_the_whole() -> None:
    assert room.CANCEL_SECONDS + room.SERVER_STOP_SECONDS + CLOSE_SECONDS <= room.STOP_SECONDS
    assert room.CANCEL_SECONDS + room.LAST_STATUS_SECONDS <= room.STOP_SECONDS < 10


def test_who_is_told_to_stop_while_it_begins_does_not_wait_for_the_job(tmp_path: Path) -> None:
    async def main() -> None:
        service = new_service(tmp_path)
        begins = asyncio.Event()

        async def begin() -> None:
            begins.set()
            await asyncio.Event().wait()

        # Never gets further, on purpose.
        service._begin = begin  # type: ignore[method-assign]
        running = asyncio.create_task(service.run())
        async with asyncio.timeout(50):
            await begins.wait()
            signal.raise_signal(signal.SIGTERM)
            assert await running == 0

    asyncio.run(main())


def test_what_a_job_did_is_said_in_words_whether_or_not_its_script_uses_the_api() -> None:
    coordinator = Coordinator(JobFacts(), "one")
    plain = coordinator.summary(0.0)
    assert "None" not in room.in_words(plain, 12)
    assert room.in_words(plain, 12).startswith("12 batches taken")
    assert room.in_words(plain, 0) == "the program ended by itself"
    known = replace(plain, data=DATA, samples_seen=64, result={"loss": 1})
    assert room.in_words(known, 8) == "64 samples seen, 0 lost, 0 repeated; result {'loss': 1}"


@pytest.mark.parametrize("token", ["", "of the group"])
def test_a_job_whose_pods_have_no_groups_token_shares_nothing(tmp_path: Path, token: str) -> None:
    """Whatever its spec says: the controller found somebody else's Service of the group's name."""
    identity = pod_identity({names.SHARE_TOKEN: token})
    service = TrainerService(TrainerSettings(identity, port=0, state_dir=tmp_path))
    container = {"name": "main", "image": "x"}
    worker = {"maxReplicas": 1, "template": {"spec": {"containers": [container]}}}
    service._job = ElasticJob.model_validate(
        {
            "metadata": {"name": "j", "namespace": "default", "uid": "u"},
            "spec": {
                "strategy": "AllReduce",
                "input": {"share": {"group": "sweep"}},
                "replicaSpecs": {"worker": worker},
            },
        }
    )
    share = service._input_options().share
    assert (share.group if share else None) == ("sweep" if token else None)
