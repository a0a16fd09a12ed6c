"""Messages of this release and of the one before are understood by each other."""

from __future__ import annotations

import msgpack

from penstock.job.protocol import AgentReport, GpuUsage, Usage, decode, encode

USED = Usage(
    cpu_cores=1.5, memory_bytes=5, gpus=(GpuUsage(uuid="GPU-a", utilization=0.5, memory_bytes=7),)
)
REPORT = AgentReport(role="worker", rank=1, incarnation=0, usage=USED, life="a")


def test_a_report_with_gpus_arrives_as_it_was() -> None:
    assert decode(AgentReport, encode(REPORT)) == REPORT


def test_the_release_before_is_told_nothing_of_gpus() -> None:
    told = msgpack.unpackb(encode(REPORT.for_release_before()))
    assert told["usage"] == {"cpu_cores": 1.5, "memory_bytes": 5}
    nothing = REPORT.model_copy(update={"usage": None})
    assert nothing.for_release_before().usage is None


def test_an_agent_without_gpus_says_what_the_release_before_said() -> None:
    said = encode(Usage(cpu_cores=1.5, memory_bytes=5))
    assert msgpack.unpackb(said) == {"cpu_cores": 1.5, "memory_bytes": 5}
    assert decode(Usage, said).gpus == ()
