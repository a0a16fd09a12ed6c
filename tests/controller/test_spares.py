"""Spare workers come on top of everything else, and so only the job's own spec bounds them."""

from __future__ import annotations

from tests.controller.life import Life


def test_a_scale_asks_for_no_more_spares_than_the_spec_allows(life: Life) -> None:
    life.create_job(
        workers={"replicas": 2, "maxReplicas": 4, "spareReplicas": 1}, resourceLimits={"cpu": "4"}
    )
    life.settle()
    assert len(life.names("worker")) == 3
    life.create_scale("more", {"worker": {"spareReplicas": 4096}})
    life.settle()
    assert len(life.names("worker")) == 3
    assert life.scale_condition("more", "Admitted") == ("True", "OutOfRange")
    conditions = life.server.objects["scales"]["more"]["status"]["conditions"]
    told = next(one["message"] for one in conditions if one["type"] == "Admitted")
    assert told == (
        "spec.roles.worker.spareReplicas: 4096: the job's spec allows at most 1, so 1 counts"
    )
    life.create_scale("none", {"worker": {"spareReplicas": 0}})
    life.server.advance(1)
    life.settle()
    assert len(life.names("worker")) == 2


def test_a_job_without_spares_gets_none(life: Life) -> None:
    life.create_job(workers={"replicas": 1, "maxReplicas": 4})
    life.settle()
    life.create_scale("more", {"worker": {"spareReplicas": 4096}})
    life.settle()
    assert len(life.names("worker")) == 1


def test_of_two_scales_within_one_second_the_later_is_the_newer(life: Life) -> None:
    life.create_job(workers={"maxReplicas": 4})
    life.settle()
    life.create_scale("b-first", {"worker": {"replicas": 2}})
    life.create_scale("a-second", {"worker": {"replicas": 3}})
    life.settle()
    assert len(life.names("worker")) == 3
