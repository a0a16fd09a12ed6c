"""Which changes of parameter servers the cluster asks the trainer about, and its answers.

The controller asks by ``Prepared=Unknown`` on a Scale. Nothing has to be prepared for servers that
come; servers that go are let go once they own nothing. From the question until the Scale is applied
the ranks that are to go get no partitions, so that nothing moves back to them in between.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from penstock.base.enums import Role
from penstock.base.fields import write_time
from penstock.crds.conditions import ScaleCondition, ScaleReason
from penstock.crds.scale_order import position_of
from penstock.parameter_server.control.events import RanksCapped
from penstock.trainer.cluster.kube import KubeClient, KubeError
from penstock.trainer.control.coordinator import Coordinator

logger = logging.getLogger(__name__)

Json = Mapping[str, Any]


@dataclass(frozen=True)
class Question:
    """A Scale that waits for the trainer; ``replicas`` of servers, None: it does not change."""

    name: str
    version: str
    replicas: int | None
    conditions: tuple[Json, ...]


@dataclass(frozen=True)
class ServerScales:
    """What the job's Scales say of its servers.

    ``cap``: ranks from it on are to go, by the newest Scale that is under way; None: by none.
    """

    questions: tuple[Question, ...] = ()
    cap: int | None = None


def server_scales(scales: Iterable[Json], uid: str) -> ServerScales:
    """Read the Scales of a job: those that ask, and the one that is being carried out."""
    questions: list[Question] = []
    cap: int | None = None
    for scale in sorted(scales, key=position_of):
        spec, metadata = scale.get("spec") or {}, scale["metadata"]
        if (spec.get("jobRef") or {}).get("uid") != uid or spec.get("dryRun"):
            continue
        conditions = tuple((scale.get("status") or {}).get("conditions") or ())
        known = {one.get("type"): (one.get("status"), one.get("reason")) for one in conditions}
        admitted = known.get(ScaleCondition.ADMITTED, ("", ""))[0] == "True"
        target = (spec.get("roles") or {}).get(Role.PS.value)
        if (
            not admitted
            or target is None
            or known.get(ScaleCondition.FAILED, ("", ""))[0] == "True"
        ):
            continue
        replicas = target.get("replicas")
        asked = known.get(ScaleCondition.PREPARED) == ("Unknown", ScaleReason.AWAITING_TRAINER)
        if asked:
            version = str(metadata.get("resourceVersion", ""))
            questions.append(Question(metadata["name"], version, replicas, conditions))
        if replicas is not None and (asked or _under_way(known)):
            cap = int(replicas)
    return ServerScales(tuple(questions), cap)


def _under_way(known: Mapping[Any, tuple[Any, Any]]) -> bool:
    """Whether a Scale that we consented to is being carried out."""
    prepared = known.get(ScaleCondition.PREPARED) == ("True", ScaleReason.SERVERS_READY)
    status, reason = known.get(ScaleCondition.APPLIED, ("", ""))
    waiting = (ScaleReason.AWAITING_TRAINER, ScaleReason.CHANGING)
    return prepared and status != "True" and (not reason or reason in waiting)


class ScaleApproval:
    """The trainer's answers; each Scale is asked about until the API server has the answer."""

    def __init__(self, coordinator: Coordinator, uid: str) -> None:
        self._coordinator = coordinator
        self._uid = uid
        self._scales = ServerScales()
        self._answered: set[tuple[str, str]] = set()  # name and version
        self._failing: set[str] = set()  # said in the log

    def changed(self, scales: Iterable[Json]) -> None:
        """The job's Scales are these now."""
        self._scales = server_scales(scales, self._uid)
        self._coordinator.observe(RanksCapped(self._scales.cap), time.monotonic())
        known = {(question.name, question.version) for question in self._scales.questions}
        self._answered &= known
        self._failing &= {name for name, _ in known}

    async def answer(self, kube: KubeClient, now: float) -> None:
        """Answer what can be answered now."""
        for question in self._scales.questions:
            if (question.name, question.version) in self._answered:
                continue
            servers, replicas = self._coordinator.servers, question.replicas
            consent = True if replicas is None else servers.consent(int(replicas), now)
            if consent is None:
                continue
            try:
                await kube.set_scale_conditions(
                    question.name, question.version, with_answer(question.conditions, consent)
                )
            except KubeError as error:
                if error.code != 409 and question.name not in self._failing:
                    logger.warning(
                        "Scale %s cannot be answered: %s; trying on", question.name, error
                    )
                    self._failing.add(question.name)
                continue
            self._answered.add((question.name, question.version))
            told = "prepared" if consent is True else f"refused: {consent}"
            logger.info("Scale %s: the parameter servers are %s", question.name, told)


def with_answer(conditions: Iterable[Json], consent: bool | str) -> list[dict[str, Any]]:
    """A Scale's conditions with the trainer's answer among them; the others stay as they are."""
    ready = consent is True
    answer = {
        "status": "True" if ready else "False",
        "reason": ScaleReason.SERVERS_READY if ready else ScaleReason.SERVERS_TOO_SMALL,
        "message": "" if ready else str(consent),
        "lastTransitionTime": write_time(datetime.now(UTC)),
    }
    return [
        {**one, **answer} if one.get("type") == ScaleCondition.PREPARED else dict(one)
        for one in conditions
    ]
