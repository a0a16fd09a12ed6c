"""A session's member measures its machine between two steps: the same check as before the training.

A machine that becomes slow while a job trains is seen by its steps only as far as these wait for
it, and a link not at all. So members measure again, together, after a step that all have ended:
compute and memory, and the link to one other member, another one each time. `schedule` says when;
the trainer compares (`training_check`).

It does no harm: it is off unless the job asks for it, takes at most the share of the time that the
job says, ends no step and no group, and what goes wrong is logged once. Measured is the CPU: what a
GPU does meanwhile is not waited for.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import Any, Final, Self

import httpx

from penstock.base.listener import is_loopback
from penstock.job import settings
from penstock.job.call_auth import CallAuth
from penstock.job.identities import PodIdentity
from penstock.job.protocol import HEADERS, Group, encode
from penstock.trainer.nodecheck.link import measure_link, serving
from penstock.trainer.nodecheck.messages import STEP_CHECK_PATH, StepMeasured
from penstock.trainer.nodecheck.probe import hardware, measure
from penstock.trainer.nodecheck.schedule import Order, Said, Schedule

logger = logging.getLogger(__name__)

COMPUTE_SECONDS: Final = 0.06
MEMORY_SECONDS: Final = 0.04
LINK_SECONDS: Final = 0.5
"""What does not come across within this time has failed."""
LINK_MEASURED_SECONDS: Final = 0.06
_SEND_SECONDS: Final = 5.0
_MOST_ADDRESS: Final = 300
_MOST_SPENT: Final = 60.0

Word = dict[str, Any]


class StepCheck:
    """Of one session's process; what members say goes with their agreements on steps."""

    def __init__(self, identity: PodIdentity, trainer: str, share: float) -> None:
        """``share``: of the time that may be spent on it."""
        self._identity = identity
        self._trainer = trainer
        self._share = share
        self._schedule: Schedule | None = None  # of the group's first member
        self._order: Order | None = None
        self._addresses: list[str] = []
        self._listening: ExitStack | None = None
        self._address = ""
        self._spent = 0.0
        self._sending: threading.Thread | None = None
        self._failed = False

    @classmethod
    def of_process(cls, environ: Mapping[str, str] = os.environ) -> Self | None:
        """What the environment asks for, if anything.

        Raises:
            SettingsError: the share is none.
        """
        share, trainer = settings.check_share(environ), settings.trainer_address(environ)
        if share is None or trainer is None:
            return None
        return cls(settings.pod_identity(environ), trainer, share)

    # ------------------------------------------------------------------ with a step's agreement

    def says(self) -> Word:
        """What this member says with its next step."""
        spent, self._spent = self._spent, 0.0
        return {"address": self._address, "spent": spent}

    def decide(self, arrived: Sequence[object], *, calm: bool) -> Word | None:
        """On the group's first member: what all are to do after this step.

        Args:
            arrived: what each member says of it; None: nothing.
            calm: nobody is about to leave.
        """
        now = time.monotonic()
        if self._schedule is None:
            self._schedule = Schedule(self._share, now)
        said = [_said(one) for one in arrived]
        order = self._schedule.decide(said, now, calm=calm)
        if order is None:
            return None
        return {"pairs": order.pairs, "addresses": [one.address for one in said]}

    def hear(self, told: object) -> None:
        """Take in what the first member has decided."""
        self._order, self._addresses = None, []
        try:
            if isinstance(told, dict):
                pairs = tuple(
                    (int(one), None if other is None else int(other))
                    for one, other in told["pairs"]
                )
                self._addresses = [str(each)[:_MOST_ADDRESS] for each in told["addresses"]]
                self._order = Order(pairs)
        except (KeyError, TypeError, ValueError) as error:
            self._note(error)

    def carry_out(self, group: Group, index: int, step: int) -> None:
        """Do it, between this step and the next; never raises for what goes wrong in it."""
        order, self._order = self._order, None
        if order is None:
            self._close()
            return
        if not order.pairs:
            self._listen()
            return
        pairs = dict(order.pairs)
        if index not in pairs:
            return
        began = time.perf_counter()
        try:
            self._send(self._measure(group, step, len(pairs), pairs[index]))
        except (OSError, RuntimeError, ValueError, MemoryError) as error:
            self._note(error)
        self._spent = time.perf_counter() - began

    def reset(self) -> None:
        """The group is gone: its first member may be another one next."""
        self._schedule = self._order = None
        self._close()

    # ------------------------------------------------------------------ inside

    def _listen(self) -> None:
        """Until the step after the one that is measured in."""
        identity = self._identity
        if self._listening is not None or (not identity.token and not is_loopback(identity.ip)):
            return
        listening = ExitStack()
        try:
            self._address = listening.enter_context(serving(identity.ip, identity.token))
        except (OSError, RuntimeError) as error:
            self._note(error)
        else:
            self._listening = listening

    def _close(self) -> None:
        """On a thread of its own: the one that listens looks up five times a second."""
        listening, self._listening, self._address = self._listening, None, ""
        if listening is not None:
            try:
                threading.Thread(target=listening.close, name="nodecheck-close").start()
            except RuntimeError:  # no thread is left
                listening.close()

    def _measure(self, group: Group, step: int, members: int, other: int | None) -> StepMeasured:
        identity, link, partner = self._identity, None, ""
        own = measure(COMPUTE_SECONDS, MEMORY_SECONDS)
        if other is not None and 0 <= other < min(len(self._addresses), len(group.members)):
            partner = str(group.members[other].id)
            link = measure_link(
                self._addresses[other], identity.token, LINK_SECONDS, LINK_MEASURED_SECONDS
            )
        return StepMeasured(
            rank=identity.rank,
            incarnation=identity.incarnation,
            node=identity.node,
            hardware=hardware(),
            group=group.number,
            step=step,
            members=members,
            partner=partner,
            compute=own.compute,
            memory=own.memory,
            link=link,
            failed=bool(partner) and link is None,
        )

    def _send(self, found: StepMeasured) -> None:
        """On a thread of its own: the training does not wait for the trainer."""
        if self._sending is not None and self._sending.is_alive():
            return  # the trainer has not taken the last one
        self._sending = threading.Thread(
            target=self._post, args=(found,), name="nodecheck-report", daemon=True
        )
        self._sending.start()

    def _post(self, found: StepMeasured) -> None:
        try:
            with httpx.Client(
                auth=CallAuth(self._identity.token),
                headers=HEADERS,
                timeout=_SEND_SECONDS,
                trust_env=False,
            ) as client:
                url = f"http://{self._trainer}{STEP_CHECK_PATH}"
                client.post(url, content=encode(found)).raise_for_status()
        except httpx.HTTPError as error:
            self._note(error)

    def _note(self, error: Exception) -> None:
        if not self._failed:
            self._failed = True
            logger.info("node %s is not checked between steps: %r", self._identity.node, error)


def _said(word: object) -> Said:
    """What a member says; one of an older release says nothing."""
    if isinstance(word, dict):
        with contextlib.suppress(KeyError, TypeError, ValueError):
            spent = float(word["spent"])
            return Said(
                str(word["address"])[:_MOST_ADDRESS], min(spent, _MOST_SPENT) if spent > 0 else 0.0
            )
    return Said()
