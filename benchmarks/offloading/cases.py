"""What is trained, and where: workloads and environments.

Those of permits stand for FastFlow's (PVLDB 16(5), section 7): seven workloads by how many vCPUs
they need beside one V100 (Fig. 7) and how many bytes a second they move, in environments of so many
vCPUs here and there. Seven vCPUs are two permits here, so that 28 are eight data workers. Needs and
bytes that the paper does not give are ours; `published` says which it does.

Those with files are real work on real cores: the program and its one local worker have the first,
a data worker has the second.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final, Literal

Kind = Literal["permits", "real"]

VCPUS: Final = 3.5
"""Of FastFlow's, for one permit."""
CORE_SECONDS: Final = 0.020
"""Of a permit, for a batch."""
RECEIVE: Final = 0.6e-9
"""Seconds of a core for a byte that is received, as Penstock's model has it."""
GIGABIT: Final = 125e6


@dataclass(frozen=True)
class Workload:
    """One program.

    Attributes:
        kind: of its input work.
        files: of real work: which.
        step_seconds: of its training, for a batch.
        batch: samples of one.
        batch_bytes: that move where a batch is made elsewhere.
        published: by FastFlow, of these.
    """

    name: str
    kind: Kind
    step_seconds: float
    batch: int = 1
    batch_bytes: float = 0.0
    files: str = ""
    published: str = ""


@dataclass(frozen=True)
class Environment:
    """Where it trains.

    Attributes:
        local: cores of the training, and local workers.
        remote: data workers that may be had, of a core each.
        link: bytes a second to the training, all of them together; 0: as much as there is.
        slowness: of a core elsewhere, beside one here.
        storage_seconds: that a sample takes of a storage that serves one at a time.
        neighbour: somebody else computes on the data worker's core all the time.
        cold: each sample is read from storage, too.
    """

    name: str
    kind: Kind
    local: int
    remote: int
    link: float = 0.0
    slowness: float = 1.0
    storage_seconds: float = 0.0
    neighbour: bool = False
    cold: bool = False

    def permits(self) -> dict[str, int]:
        """How many of each."""
        return {"local": self.local, "remote": self.remote, "link": 1, "storage": 1}

    def setup(self, workload: Workload) -> dict[str, Any]:
        """The workload here, as the program is told of it."""
        link = workload.batch_bytes / self.link / workload.batch if self.link else 0.0
        permits = workload.kind == "permits"
        return {
            "kind": "permits" if permits else workload.files,
            "step_seconds": workload.step_seconds,
            "batch": workload.batch,
            "workers": self.local,
            "receive_seconds": RECEIVE * workload.batch_bytes if permits else 0.0,
            "seconds": CORE_SECONDS if permits else 0.0,
            "link_seconds": link,
            "storage_seconds": self.storage_seconds,
            "slowness": self.slowness,
        }


@dataclass(frozen=True)
class Plan:
    """Environments, and what is trained in each."""

    pairs: list[tuple[Environment, list[Workload]]] = field(default_factory=list)


def _of_fastflow(name: str, vcpus: float, megabytes: float, published: str = "") -> Workload:
    """From the vCPUs and the MB a second that it needs at full speed."""
    rate = vcpus / VCPUS / CORE_SECONDS
    return Workload(
        name, "permits", 1 / rate, batch_bytes=megabytes * 1e6 / rate, published=published
    )


FASTFLOW: Final = {
    one.name: one
    for one in (
        _of_fastflow("T", 20.0, 410.0, "20 vCPUs, 410 MB/s"),
        _of_fastflow("G", 10.0, 90.0, "10 vCPUs"),
        _of_fastflow("C", 14.0, 200.0),
        _of_fastflow("S", 30.0, 60.0, "30 vCPUs, 80 % prep stall"),
        _of_fastflow("R", 12.0, 110.0, "no stall at 14 vCPUs"),
        _of_fastflow("M", 5.0, 20.0, "no stall at 7 vCPUs"),
        _of_fastflow("L", 6.5, 275.0, "no stall at 7 vCPUs, 275 MB/s"),
    )
}
REAL: Final = {
    one.name: one
    for one in (
        Workload("jpeg", "real", 0.008, 16, 16 * 3 * 128 * 128 * 4, "jpeg"),
        Workload("arrays", "real", 0.010, 16, 16 * 3 * 160 * 160 * 4, "arrays"),
        Workload("text", "real", 0.009, 16, 16 * 1024 * 8, "text"),
    )
}
ENVIRONMENTS: Final = {
    one.name: one
    for one in (
        Environment("7:7", "permits", 2, 2),
        Environment("7:14", "permits", 2, 4),
        Environment("7:21", "permits", 2, 6),
        Environment("7:28", "permits", 2, 8),
        Environment("14:7", "permits", 4, 2),
        Environment("7:PRD", "permits", 2, 8, link=0.8 * GIGABIT),
        Environment("1:1", "real", 1, 1),
        Environment("1:1, thin link", "real", 1, 1, link=0.4 * GIGABIT),
        Environment("1:1, neighbour", "real", 1, 1, neighbour=True),
    )
}
SWEPT: Final = Plan(
    [(ENVIRONMENTS[name], [FASTFLOW[one] for one in "TGCSR"]) for name in ("7:7", "7:21", "7:PRD")]
    + [(one, list(REAL.values())) for one in ENVIRONMENTS.values() if one.kind == "real"]
)
GAINS: Final = (2, 4, 6, 8, 9, 10, 11, 12, 14, 16, 20)
"""Percent that data workers may bring at most."""
THRESHOLD: Final = Plan(
    [
        (
            ENVIRONMENTS["7:7"],
            [
                Workload(
                    f"{gain} %",
                    "permits",
                    CORE_SECONDS / ENVIRONMENTS["7:7"].local / (1 + gain / 100),
                )
                for gain in GAINS
            ],
        )
    ]
)
"""Programs that differ in this alone."""
FIGURE_6: Final = Plan(
    [(one, list(FASTFLOW.values())) for one in ENVIRONMENTS.values() if one.kind == "permits"]
)
