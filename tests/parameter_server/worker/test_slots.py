"""A worker says of its slots what it did with them, until that has been heard."""

from __future__ import annotations

from penstock.job.protocol import DataSpec, LeaseReply
from penstock.parameter_server.worker.slots import Slots

DATA = DataSpec(dataset_size=30, global_batch=2, epochs=2, slots_per_step=1)


def test_slots_are_reported_as_they_were_worked_on() -> None:
    slots = Slots("worker-0.0/n", DATA)
    slots.take(LeaseReply(fence=7, start=3, stop=6, slots_per_step=1, lease_seconds=20))
    assert slots.begin() == 3
    slots.end()
    assert slots.begin() == 4
    request = slots.request(5)
    assert (request.completed, request.held, request.returned) == (((7, 3, 4),), (7,), ())
    assert slots.request(5).completed == ((7, 3, 4),), "until it has been heard"
    slots.end()
    slots.said()
    assert slots.begin() == 5
    slots.give_back(failed=True)
    request = slots.request(0)
    assert (request.completed, request.failed) == ((), ((7, 5),))
    assert (request.held, request.returned) == ((), (7,))
    slots.said()
    assert slots.request(0).returned == ()
