"""Workers come and go in whole units, whoever asks for however many."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from penstock.base.enums import Role
from penstock.controller.reconcile.desired.targets import compute_target
from tests.controller.life import Life
from tests.controller.test_targets import admitted, spec


@given(unit=st.integers(1, 8), least=st.integers(1, 4), more=st.integers(0, 4), data=st.data())
def test_the_target_is_the_largest_multiple_within_what_is_asked_for(
    unit: int, least: int, more: int, data: st.DataObject
) -> None:
    found = spec(nodeUnit=unit, minReplicas=least * unit, maxReplicas=(least + more) * unit)
    asked = data.draw(st.integers(0, 60))
    replicas = compute_target(found, [admitted("s", {"worker": {"replicas": asked}})]).role(
        Role.WORKER
    )
    allowed = range(least * unit, (least + more) * unit + 1, unit)
    assert replicas.replicas == max((one for one in allowed if one <= asked), default=allowed[0])


def test_spares_are_whole_units_too() -> None:
    found = spec(nodeUnit=2, minReplicas=2, maxReplicas=4, spareReplicas=4)
    for asked, counts in ((4, 4), (3, 2), (1, 0)):
        scales = [admitted("s", {"worker": {"replicas": 4, "spareReplicas": asked}})]
        assert compute_target(found, scales).role(Role.WORKER).spare == counts


def test_other_roles_have_no_unit() -> None:
    found = spec(nodeUnit=4, minReplicas=4)
    target = compute_target(found, [admitted("s", {"dataWorker": {"replicas": 3}})])
    assert target.role(Role.DATA_WORKER).replicas == 3


def test_a_scale_is_told_what_counts_of_it(life: Life) -> None:
    life.create_job(workers={"nodeUnit": 2, "minReplicas": 2, "maxReplicas": 8})
    life.settle()
    life.create_scale("plan", {"worker": {"replicas": 5}})
    life.settle()
    assert len(life.pods("worker")) == 4
    assert life.scale_condition("plan", "Admitted") == ("True", "OutOfRange")
    [told] = [
        one["message"]
        for one in life.server.objects["scales"]["plan"]["status"]["conditions"]
        if one["type"] == "Admitted"
    ]
    assert "5: the job has from 2 to 8 in multiples of 2, so 4 counts" in told
