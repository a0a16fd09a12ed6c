from __future__ import annotations

from penstock.scheduler.model.decisions import Reason, Record
from penstock.scheduler.service.connections.events import event_of


def test_what_is_told_of_a_job_is_an_event_of_the_job() -> None:
    record = Record(
        key="k",
        time_seconds=0.0,
        job_uid="uid-a",
        namespace="team",
        job="a",
        policy="Fair",
        reason=Reason.FETCH_STALL,
        message="it waits for storage",
    )
    event = event_of(record, "me")
    assert event["involvedObject"]["kind"] == "ElasticJob"
    assert event["involvedObject"]["uid"] == "uid-a"
    assert event["metadata"]["namespace"] == "team"
    assert (event["type"], event["reason"]) == ("Warning", "FetchStall")
