"""A member's measurements between steps: over real sockets, and whatever goes wrong is no harm."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pytest

from penstock.crds import environment
from penstock.job.protocol import Group, GroupMember, MemberId, Restore
from penstock.job.settings import SettingsError, pod_identity
from penstock.trainer.nodecheck import between_steps, schedule
from penstock.trainer.nodecheck.between_steps import StepCheck
from penstock.trainer.nodecheck.messages import StepMeasured
from tests.patience import patient

NOBODY = "127.0.0.1:1"


class Member(StepCheck):
    """Keeps what it would send."""

    def __init__(self, rank: int, share: float = 0.1) -> None:
        environ = {
            environment.JOB_TOKEN: "token",
            environment.RANK: str(rank),
            environment.NODE_NAME: f"n{rank}",
        }
        super().__init__(pod_identity(environ), NOBODY, share)
        self.sent: list[StepMeasured] = []

    def _send(self, found: StepMeasured) -> None:
        self.sent.append(found)


def group_of(size: int) -> Group:
    members = tuple(
        GroupMember(id=MemberId(rank=rank, incarnation=0, nonce="n"), address=f"host-{rank}:1")
        for rank in range(size)
    )
    return Group(
        number=7,
        members=members,
        source=0,
        start_step=0,
        restore=Restore.LIVE,
        shares=(1,) * size,
    )


def commit(members: list[Member], step: int, *, calm: bool = True) -> object:
    """One step's agreement of all, and what follows it; what the first one decided."""
    told = members[0].decide([member.says() for member in members], calm=calm)
    group = group_of(len(members))
    threads = []
    for index, member in enumerate(members):
        member.hear(told)
        threads.append(threading.Thread(target=member.carry_out, args=(group, index, step)))
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return told


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first round is not waited for."""
    monkeypatch.setattr(schedule, "WORST_SECONDS", 0.0)


@pytest.mark.usefixtures("soon")
def test_members_measure_together_each_with_a_partner() -> None:
    members = [Member(rank) for rank in range(3)]
    for step in range(3):
        commit(members, step)
    for member in members:
        [found] = member.sent
        assert (found.group, found.step, found.members) == (7, 1, 3)
        assert found.compute is not None
        assert found.compute > 1e6
        assert found.memory is not None
        assert not found.failed
    linked = {found.partner for member in members for found in member.sent if found.link}
    assert len(linked) == 2, "two of three have a partner"
    assert all(member.says()["address"] == "" for member in members), "somebody still listens"


@pytest.mark.usefixtures("soon")
def test_the_time_that_it_took_is_said_once() -> None:
    members = [Member(rank) for rank in range(2)]
    commit(members, 0)
    commit(members, 1)
    said = members[1].says()
    assert 0 < said["spent"] < patient(2.0)
    assert members[1].says()["spent"] == 0
    for member in members:
        member.reset()


@pytest.mark.usefixtures("soon")
def test_a_partner_that_is_gone_has_failed_in_time() -> None:
    members = [Member(rank) for rank in range(2)]
    commit(members, 0)
    members[0].hear({"pairs": [[0, 1], [1, 0]], "addresses": ["", NOBODY]})
    began = time.monotonic()
    members[0].carry_out(group_of(2), 0, 1)
    assert time.monotonic() - began < patient(2.0)
    [found] = members[0].sent
    assert found.failed
    assert found.partner == "worker-1.0"
    for member in members:
        member.reset()


@pytest.mark.parametrize(
    "told",
    [
        7,
        {},
        {"pairs": 3, "addresses": []},
        {"pairs": [[0]], "addresses": []},
        {"pairs": [["x", 1]], "addresses": []},
        {"pairs": [[0, 99]], "addresses": ["a:1"]},
        {"pairs": [[0, -1]], "addresses": ["a:1"]},
        {"pairs": [[0, 1]], "addresses": ["a:1"]},
        {"pairs": [[0, 1]], "addresses": ["a:1", "nothing"]},
        {"pairs": [[0, 1]], "addresses": [None, 7]},
    ],
)
def test_orders_that_cannot_be_read_are_not_carried_out(told: object) -> None:
    member = Member(0)
    member.hear(told)
    member.carry_out(group_of(2), 0, 5)
    assert not any(found.link for found in member.sent)


@pytest.mark.usefixtures("soon")
@pytest.mark.parametrize("said", [[None, None], [{}, {"address": "a:1"}], [[], "x"]])
def test_members_that_say_nothing_of_it_are_not_told_to_measure(said: list[object]) -> None:
    member = Member(0)
    opened = member.decide(said, calm=True)
    assert opened is not None
    assert opened["pairs"] == (), "they are told to listen"
    assert member.decide(said, calm=True) is None


@pytest.mark.usefixtures("soon")
def test_what_goes_wrong_is_logged_once_and_ends_nothing(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fails(*_: object) -> None:
        raise MemoryError

    caplog.set_level("INFO")
    monkeypatch.setattr(between_steps, "measure", fails)
    members = [Member(rank) for rank in range(2)]
    for step in range(8):
        commit(members, step)
    said = [record for record in caplog.records if "is not checked" in record.message]
    assert len(said) == 2, "each member says it once"


def test_a_trainer_that_is_away_or_of_an_older_release_is_no_matter(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO")
    check = StepCheck(pod_identity({environment.NODE_NAME: "n0"}), NOBODY, 0.1)
    check.hear({"pairs": [[0, None]], "addresses": [""]})
    check.carry_out(group_of(1), 0, 1)
    wait_until(lambda: "is not checked" in caplog.text)


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + patient(10)
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_it_is_off_unless_the_environment_asks_for_it() -> None:
    trainer = {environment.TRAINER_ADDRESS: "host:1"}
    assert StepCheck.of_process(trainer) is None
    assert StepCheck.of_process({environment.NODE_CHECK_SHARE: "0.001"}) is None
    assert StepCheck.of_process({**trainer, environment.NODE_CHECK_SHARE: "0.001"}) is not None


@pytest.mark.parametrize("share", ["0", "-1", "0.2", "much", "nan"])
def test_a_share_that_is_none_is_refused_by_name(share: str) -> None:
    environ = {environment.TRAINER_ADDRESS: "host:1", environment.NODE_CHECK_SHARE: share}
    with pytest.raises(SettingsError, match=f"NODE_CHECK_SHARE: '{share}'"):
        StepCheck.of_process(environ)
