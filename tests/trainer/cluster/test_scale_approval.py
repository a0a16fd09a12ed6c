"""Which Scales ask the trainer about parameter servers, and what it answers."""

from __future__ import annotations

import asyncio
from typing import Any

from penstock.parameter_server.protocol import ServerStage
from penstock.trainer.cluster.kube import KubeError
from penstock.trainer.cluster.scale_approval import ScaleApproval, server_scales, with_answer
from tests.parameter_server.control.simulated_job import World

UID = "u"


def scale(
    name: str, replicas: int | None, prepared: str = "Unknown", applied: str = "False", **more: Any
) -> dict[str, Any]:
    reasons = {"Unknown": "AwaitingTrainer", "True": "ServersReady", "False": "ServersTooSmall"}
    conditions = [
        {"type": "Admitted", "status": "True", "reason": "Admitted"},
        {"type": "Prepared", "status": prepared, "reason": reasons[prepared], "message": "m"},
        {"type": "Applied", "status": applied, "reason": more.pop("reason", "AwaitingTrainer")},
    ]
    target = {"resources": {"cpu": "2"}} if replicas is None else {"replicas": replicas}
    return {
        "metadata": {
            "name": name,
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "resourceVersion": "7",
        },
        "spec": {"jobRef": {"name": "j", "uid": UID}, "roles": {"ps": target}, **more},
        "status": {"conditions": conditions},
    }


def test_what_asks_and_what_is_under_way() -> None:
    found = server_scales([scale("b", 3), scale("a", 4, "True", reason="Changing")], UID)
    assert [question.name for question in found.questions] == ["b"]
    assert found.cap == 3
    found = server_scales([scale("a", 4, "True", reason="Changing")], UID)
    assert (found.questions, found.cap) == ((), 4)


def test_what_is_applied_overridden_or_of_others_caps_nothing() -> None:
    for one in (
        scale("a", 1, "True", applied="True", reason="Applied"),
        scale("a", 1, "True", reason="PinnedByUser"),
        scale("a", 1, dryRun=True),
        scale("a", 1, jobRef={"uid": "another"}),
        scale("a", 1, "False"),
    ):
        assert server_scales([one], UID).cap is None
        assert not server_scales([one], UID).questions


def test_a_change_of_sizes_asks_and_caps_nothing() -> None:
    found = server_scales([scale("a", None)], UID)
    assert [question.replicas for question in found.questions] == [None]
    assert found.cap is None


def test_an_answer_leaves_other_conditions_alone() -> None:
    conditions = scale("a", 3)["status"]["conditions"]
    ready = with_answer(conditions, True)
    assert [one["type"] for one in ready] == ["Admitted", "Prepared", "Applied"]
    assert (ready[0], ready[2]) == (conditions[0], conditions[2])
    assert (ready[1]["status"], ready[1]["reason"]) == ("True", "ServersReady")
    refused = with_answer(conditions, "too small")[1]
    assert (refused["status"], refused["message"]) == ("False", "too small")


class FakeKube:
    """An API server that refuses the first write."""

    def __init__(self) -> None:
        self.written: list[tuple[str, str, list[Any]]] = []
        self.refusals = [KubeError(500, "away"), KubeError(409, "conflict")]

    async def set_scale_conditions(self, name: str, version: str, conditions: list[Any]) -> None:
        if self.refusals:
            raise self.refusals.pop()
        self.written.append((name, version, conditions))


def opened(servers: int) -> World:
    world = World(slots=400)
    for rank in range(servers):
        world.add_server(rank)
    world.add_worker(0)
    while not world.trainer.servers.serving:
        world.round()
    return world


def test_servers_that_come_are_consented_to_at_once_and_until_it_is_written() -> None:
    world, kube = opened(2), FakeKube()
    consent = ScaleApproval(world.trainer, UID)
    consent.changed([scale("a", 4)])
    for _ in range(4):
        asyncio.run(consent.answer(kube, world.now))  # type: ignore[arg-type]  # a fake of the API
    [(name, version, conditions)] = kube.written
    assert (name, version, conditions[1]["status"]) == ("a", "7", "True")


def test_servers_that_go_are_let_go_when_they_own_nothing() -> None:
    world, kube = opened(4), FakeKube()
    kube.refusals.clear()
    consent = ScaleApproval(world.trainer, UID)
    consent.changed([scale("a", 3)])
    asyncio.run(consent.answer(kube, world.now))  # type: ignore[arg-type]  # a fake of the API
    assert not kube.written
    for _ in range(60):
        world.round()
        world.check()
        asyncio.run(consent.answer(kube, world.now))  # type: ignore[arg-type]  # a fake of the API
        if kube.written:
            break
    assert world.servers[3].stage is ServerStage.EMPTY
    consent.changed([scale("a", 3, "True", reason="Changing")])  # its pod is still there
    for _ in range(30):
        world.round()
    layout = world.trainer.servers.layout
    assert layout is not None
    assert len(layout.servers) == 3


def test_too_little_memory_left_is_a_refusal_with_both_sums() -> None:
    world = World(slots=400)
    for rank in range(2):
        world.add_server(rank).memory = 20
    world.add_worker(0)
    while not world.trainer.servers.serving:
        world.round()
    kube = FakeKube()
    kube.refusals.clear()
    consent = ScaleApproval(world.trainer, UID)
    consent.changed([scale("a", 1)])
    asyncio.run(consent.answer(kube, world.now))  # type: ignore[arg-type]  # a fake of the API
    [(_, _, conditions)] = kube.written
    assert conditions[1]["status"] == "False"
    assert "needs 32 bytes" in conditions[1]["message"]
    assert "20 bytes of memory together" in conditions[1]["message"]
