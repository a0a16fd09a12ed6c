"""Timeline, heatmap and tables: what they say, in 80 columns and without colours."""

from __future__ import annotations

import io
import time
from datetime import UTC, datetime
from typing import Any

import pytest
from rich.console import Console, RenderableType

from penstock.cli import wording
from penstock.cli.describe import description, share_facts
from penstock.cli.doctor.command import report
from penstock.cli.doctor.model.finding import fault, ok
from penstock.cli.fragmentation import cells, heatmap, mark
from penstock.cli.listing import jobs_table
from penstock.cli.share_group import group_of, members, names_of
from penstock.cli.timeline import timeline, timeline_table
from penstock.cli.top import top_table, usage
from penstock.wire import (
    Allocation,
    FragmentationView,
    InputView,
    NodeView,
    Plan,
    SampleView,
)
from penstock.wire.samples import ShareSample
from tests.client.embedded import condition, job

Json = dict[str, Any]


def drawn(view: RenderableType, width: int = 80) -> str:
    stream = io.StringIO()
    Console(file=stream, width=width, highlight=False, no_color=True).print(view)
    text = stream.getvalue()
    assert all(len(line) <= width for line in text.splitlines())
    return text


def scale(name: str, second: int, workers: int, **spec: Any) -> Json:
    annotations = spec.pop("annotations", {})
    conditions = spec.pop("conditions", [])
    return {
        "metadata": {
            "name": name,
            "creationTimestamp": f"2026-01-01T00:00:{second:02d}Z",
            "annotations": annotations,
        },
        "spec": {"source": "User", "roles": {"worker": {"replicas": workers}}, **spec},
        "status": {"conditions": conditions},
    }


def plan(number: int, second: int, workers: int, **more: Any) -> Plan:
    return Plan.model_validate(
        {
            "id": number,
            "job_uid": "u",
            "created_seconds": wording.seconds(f"2026-01-01T00:00:{second:02d}Z"),
            "source": "Brain",
            "algorithm": {"name": "scale_allreduce"},
            "reason": "Faster",
            "message": "more",
            "roles": {"worker": {"replicas": workers, "resources": {"cpu": "2"}}},
            **more,
        }
    )


def test_the_timeline_tells_every_plan_once_and_what_it_changed() -> None:
    applied = [condition("Applied")]
    superseded = [condition("Superseded")]
    refused = [{**condition("Failed"), "reason": "OverQuota"}]
    found = timeline(
        [plan(1, 1, 1), plan(2, 5, 3)],
        [
            scale("s1", 2, 1, annotations={"penstock.dev/plan": "1"}, conditions=superseded),
            scale("s2", 6, 3, annotations={"penstock.dev/plan": "2"}, conditions=applied),
            scale("mine", 8, 9, conditions=refused),
            scale("pinned", 9, 2, policy="Pin", conditions=applied),
        ],
    )
    assert [(each.source, each.changed, each.result) for each in found] == [
        ("Brain", "worker 1, cpu 2", "superseded"),
        ("Brain", "worker 1 → 3", "applied"),
        ("User", "worker 3 → 9", "refused: OverQuota"),
        ("User pin", "worker 3 → 2", "applied"),
    ]
    text = drawn(timeline_table(found, wording.seconds("2026-01-01T00:00:00Z")))
    assert "+9s" in text


def test_without_the_brain_its_plans_are_told_by_their_scales() -> None:
    one = scale("s1", 2, 1, annotations={"penstock.dev/plan": "1"}, source="Brain")
    assert [each.name for each in timeline([], [one])] == ["s1"]


@pytest.mark.parametrize(
    ("value", "character"),
    [(0.0, "·"), (0.1, "░"), (0.3, "▒"), (0.6, "▓"), (1.0, "█"), (-0.1, "-"), (-1.0, "#")],
)
def test_signs_have_characters_of_their_own(value: float, character: str) -> None:
    assert mark(value)[0] == character


def test_an_interval_shows_its_worst_moment() -> None:
    history = [
        FragmentationView(time=t, stranded_gpus=0, stranded_cpu_cores=0, nodes={"n": value})
        for t, value in ((1.0, 0.1), (2.0, -0.9), (9.0, 0.2), (11.0, 1.0))
    ]
    assert cells("n", history, 0.0, 10.0, 2) == [-0.9, 0.2]
    assert cells("other", history, 0.0, 10.0, 2) == [None, None]


def node(name: str, fragmentation: float, **more: Any) -> NodeView:
    return NodeView(
        name=name,
        milli_cpu=64_000,
        free_milli_cpu=32_500,
        accelerators=8,
        free_accelerators=2,
        fragmentation=fragmentation,
        time=1.0,
        **more,
    )


def test_the_heatmap_fits_and_shows_the_worst_nodes() -> None:
    names = [f"node-with-a-long-name-{index}.example.com" for index in range(30)]
    nodes = [node(name, index / 30) for index, name in enumerate(names)]
    nodes.append(node("gone", -1.0, cordoned=False))
    now = time.time()
    history = [
        FragmentationView(
            time=now - 60 * minute,
            stranded_gpus=3,
            stranded_cpu_cores=12,
            nodes={each.name: each.fragmentation for each in nodes},
        )
        for minute in range(59, -1, -1)
    ]
    text = drawn(heatmap(nodes, history, now, 60, 80, 10))
    assert "and 21 nodes that are less so" in text
    assert "#" in text
    assert "█" in text
    assert "-1.00" in text
    assert "32.5/64" in text
    assert "3 accelerators, 12 cores, of 31 nodes" in text


def test_top_says_what_is_known_and_marks_what_is_old() -> None:
    document = {**job("digits"), "status": {"state": "Running", "workers": "3/3"}}
    document["metadata"]["namespace"] = "team"
    now = 1000.0

    def sample(at: float, speed: float) -> SampleView:
        roles = {
            "worker": {
                "replicas": 3,
                "cpu_cores": 2.5,
                "hottest_cpu_cores": 1.0,
                "peak_memory_bytes": 2**30,
                "wait_share": 0.25,
            }
        }
        return SampleView.model_validate(
            {
                "time": at,
                "received_seconds": at,
                "step": 7,
                "steps_per_second": speed,
                "roles": roles,
            }
        )

    fresh = usage(document, [sample(990, 1.0), sample(999, 2.0)], now)
    assert (fresh.step, fresh.cpu_cores, fresh.wait_share) == (7, 2.5, 0.25)
    text = drawn(top_table([fresh, usage(document, [], now)], namespaces=True))
    assert "2.00" in text
    assert "1.0 GiB" in text
    assert "25%" in text
    assert "2.00?" in drawn(top_table([usage(document, [sample(900, 2.0)], now)], False))
    assert " PS " not in text, "no job has any"


def test_servers_have_a_column_where_a_job_has_servers() -> None:
    plain = {**job("digits"), "status": {"state": "Running", "workers": "3/3"}}
    served = {**job("clicks"), "status": {"state": "Running", "workers": "1/4", "ps": "2/3"}}
    for each in (plain, served):
        each["metadata"]["namespace"] = "team"
    found = [usage(each, [], 0.0) for each in (plain, served)]
    for table in (jobs_table([plain, served], 0.0), top_table(found, namespaces=False)):
        head, *_, last = drawn(table).splitlines()
        assert " PS " in head
        assert "1/4" in last
        assert "2/3" in last
    assert " PS " not in drawn(jobs_table([plain], 0.0))


def test_gpus_have_columns_where_a_job_reports_any() -> None:
    document = {**job("digits"), "status": {"state": "Running", "workers": "3/3"}}
    document["metadata"]["namespace"] = "team"
    role = {"replicas": 1, "cpu_cores": 2.5, "hottest_cpu_cores": 1.0, "peak_memory_bytes": 2**30}
    seen = {"gpus": 3, "gpu_utilization": 0.5, "gpu_memory_bytes": 20 * 2**30}
    other = {"gpus": 1, "gpu_utilization": 0.1}
    found = [
        usage(
            document,
            [
                SampleView.model_validate(
                    {
                        "time": 1,
                        "received_seconds": 1,
                        "step": 123_456,
                        "steps_per_second": 12.5,
                        "roles": roles,
                    }
                )
            ],
            2.0,
        )
        for roles in (
            {"worker": {**role, **seen}, "ps": {**role, **other}, "dataWorker": role},
            {"worker": role},
        )
    ]
    assert (found[0].gpu_utilization, found[0].gpu_memory_bytes) == (0.4, 20 * 2**30)
    assert (found[1].gpu_utilization, found[1].gpu_memory_bytes) == (None, None)
    text = drawn(top_table(found, namespaces=False))
    assert "GPU %" in text
    assert "GPU MEM" in text
    assert "40%" in text
    assert "20 GiB" in text
    assert "digits" in text
    assert "SPEED" not in text, "80 columns do not hold it as well"
    assert "SPEED" in drawn(top_table(found, namespaces=False, width=100), width=100)
    assert "GPU" not in drawn(top_table(found[1:], namespaces=False)), "no job reports any"


def test_the_doctors_report_needs_no_colour() -> None:
    text = drawn(report([ok("nodes", "fine"), fault("CRDs", "[old]", "upgrade [them]")]))
    assert "✓ ok" in text
    assert "✗ fault" in text
    assert "[old]" in text, "what stands in square brackets is text"
    assert "→ upgrade [them]" in text
    assert "1 fine, 1 fault" in text


@pytest.mark.parametrize(
    ("length", "said"),
    [(-5, "0s"), (119, "119s"), (125, "2m5s"), (1200, "20m"), (7300, "2h1m"), (10**6, "11d")],
)
def test_lengths_of_time(length: float, said: str) -> None:
    assert wording.duration(length) == said


def test_amounts_have_a_unit_that_fits() -> None:
    assert [wording.amount(each) for each in (12, 1023, 1.5 * 2**30, 2**60)] == [
        "12 B",
        "1.0 KiB",
        "1.5 GiB",
        "1024 PiB",
    ]


INPUT = InputView.model_validate(
    {
        "time": 1000.0,
        "source": "job",
        "unit": "batches/s",
        "processes": 2,
        "rate": 36.0,
        "stalled": 0.6,
        "causes": {"fetch": 0.1, "preparation": 0.5},
        "limits": {"accelerator": 90.9, "workers": 37.0},
        "cores": 4.0,
        "workers": 2,
        "data_workers": 0,
        "model_error": 0.01,
        "cut": "from ToTensor on local",
        "decision": {
            "data_workers": 6,
            "cores": 1,
            "promised": 90.9,
            "promised_low": 86.0,
            "promised_high": 95.0,
            "without": 36.0,
            "share": 0.6,
            "cut": "whole batch",
            "binding": "accelerator",
            "waits_for_storage": False,
            "why": "bound by workers at 18.5 batches/s; with 60% made by 3 data workers",
            "cut_why": "whole batch pays: 90.9 batches/s with 6 data workers, 36 without",
        },
    }
)


def test_a_job_is_described_with_its_input_and_the_schedulers_decisions() -> None:
    decision = Allocation(
        id="k", time=1003.0, job_uid="u", reason="DataStall", message="6 data workers at once"
    )
    known = job("mine")
    known["metadata"] |= {"creationTimestamp": "2026-01-01T00:00:00Z", "namespace": "team"}
    shown = drawn(description(known, [], [], [], None, 1005.0, INPUT, [decision]))
    assert "36.0 batches/s, waits 60% of the time (5s ago)" in shown
    assert "preparation 50%, fetch 10%" in shown
    assert "workers 37.0, accelerator 90.9" in shown
    assert "90.9 batches/s with 6 data workers (86.0 to 95.0)" in shown
    assert "from ToTensor on local" in shown
    assert "whole batch pays: 90.9 batches/s" in shown
    assert "6 data workers at once" in shown


def test_a_deadline_that_is_past_is_said_to_be() -> None:
    known = job("mine")
    known["metadata"] |= {"creationTimestamp": "2026-01-01T00:00:00Z", "namespace": "team"}
    known["spec"] |= {"objective": "Deadline", "deadline": "2026-03-01T00:00:00Z"}
    march = datetime(2026, 3, 1, tzinfo=UTC).timestamp()
    past = "Deadline by 2026-03-01T00:00:00Z (past: as fast as it can be)"
    assert past in drawn(description(known, [], [], [], None, march))
    assert "past" not in drawn(description(known, [], [], [], None, march - 1))
    known["status"] = {"completionTime": "2026-02-01T00:00:00Z"}
    assert "past" not in drawn(description(known, [], [], [], None, march))


def test_a_job_is_described_with_what_has_left_its_steps() -> None:
    on = {
        "name": "the loader of Images",
        "source": "worker-0",
        "state": "On",
        "prefix": "2 calls move (Tensor.float, Sequential)",
        "prefixPercent": 61,
        "crossingBytes": 16384,
        "movedPercent": 88,
    }
    kept = {"name": "encode", "source": "worker-1", "state": "FellBack", "movedPercent": 0}
    known = job("mine")
    known["metadata"] |= {"creationTimestamp": "2026-01-01T00:00:00Z", "namespace": "team"}
    known["status"] = {"input": {"partition": [on, {**kept, "why": "encode has hooks"}]}}
    shown = drawn(description(known, [], [], [], None, 1005.0))
    assert "On, 88 % of its steps moved" in shown
    assert "2 calls move (Tensor.float, Sequential); 61 %" in shown
    assert "16 KiB" in shown
    assert "worker-1: encode has hooks" in shown


def test_a_job_is_described_with_its_share_group() -> None:
    def member(name: str, group: str = "sweep", status: Any = None) -> dict[str, Any]:
        made = job(name)
        made["spec"]["input"] = {"share": {"group": group}}
        return {**made, "status": status or {}}

    ended = {"conditions": [{"type": "Succeeded", "status": "True"}]}
    jobs = [member("b"), member("a"), member("c", "other"), member("d", status=ended), job("e")]
    assert group_of(jobs[0]) == "sweep"
    assert group_of(jobs[-1]) == ""
    sharing = names_of(members("sweep", jobs))
    assert sharing == ["a", "b"]
    shared = ShareSample(
        group="sweep", data_workers=3, own_data_workers=1, made=100, taken=160, lag_tiles=5
    )
    known = member("a")
    known["metadata"] |= {"creationTimestamp": "2026-01-01T00:00:00Z", "namespace": "team"}
    facts = share_facts("sweep", sharing, shared)
    shown = drawn(description(known, [], [], [], None, 1005.0, sharing=facts))
    assert "Share group" in shown
    assert "a, b" in shown
    assert "3 of all members, 1 of this job" in shown
    assert "each made tile was taken 1.60 times" in shown
    assert "5 tiles" in shown
    assert share_facts("sweep", sharing, None) == {"Group": "sweep", "Members": "a, b"}


def test_jobs_that_run_say_when_they_end_where_any_does() -> None:
    def job(state: str, **status: str) -> Any:
        spec = {"strategy": "AllReduce", "replicaSpecs": {}}
        return {"metadata": {"name": "one"}, "spec": spec, "status": {"state": state, **status}}

    end = {"estimatedCompletionTime": "1970-01-01T03:20:00Z"}
    shown = drawn(jobs_table([job("Running", **end), job("Pending")], 0.0))
    assert "ETA" in shown
    assert "3h20m" in shown
    assert "ETA" not in drawn(jobs_table([job("Running"), job("Succeeded", **end)], 0.0))
