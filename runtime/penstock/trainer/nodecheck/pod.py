"""A pod's part in the check: it measures when told to, and begins when told to, or soon anyway.

It does no harm: a trainer that is not there, or is of an older release, a partner that is not, and
anything else that goes wrong end the check, never the job. The program begins `MOST_SECONDS` after
the trainer was heard, and `TRAINER_SECONDS` after the start where it is not.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Final, TypeVar

import httpx

from penstock.base.listener import is_loopback
from penstock.job.call_auth import CallAuth
from penstock.job.identities import PodIdentity
from penstock.job.protocol import HEADERS, ProtocolError, decode, encode
from penstock.trainer.nodecheck.link import measure_link, serving
from penstock.trainer.nodecheck.messages import (
    CHECK_PATH,
    MOST_MEASURED,
    CheckReply,
    CheckReport,
    RoundMeasured,
)
from penstock.trainer.nodecheck.probe import hardware, measure

logger = logging.getLogger(__name__)
T = TypeVar("T")

MOST_SECONDS: Final = 5.0
POLL_SECONDS: Final = 0.05
TRAINER_SECONDS: Final = 30.0
"""For so long it waits for a trainer that starts when its workers do, and longer than they."""
HELD_SECONDS: Final = 60.0
"""How long a pod that is replaced waits for its end; then it begins."""
_CALL_SECONDS: Final = 1.0
_RETRY_SECONDS: Final = 0.2


async def check_pod(identity: PodIdentity, trainer: str, draining: asyncio.Event) -> None:
    """Take part in the check of this pod's machine; returns when the program may begin.

    Args:
        identity: of the pod.
        trainer: HOST:PORT of the job's trainer.
        draining: set when the pod is to end; the check ends with it.
    """
    try:
        async with asyncio.timeout(TRAINER_SECONDS) as limit:
            await _or(draining, _take_part(identity, trainer, draining, limit))
    except TimeoutError:
        logger.info("the check of node %s has no end: beginning without", identity.node)
    except (httpx.HTTPError, OSError, ProtocolError) as error:
        logger.info("no check of node %s: %r", identity.node, error)


async def _or(draining: asyncio.Event, work: Awaitable[None]) -> None:
    """Until the work is done, or the pod is to end."""
    tasks = [asyncio.ensure_future(work), asyncio.ensure_future(draining.wait())]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        if tasks[0] in done:
            tasks[0].result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _take_part(
    identity: PodIdentity, trainer: str, draining: asyncio.Event, limit: asyncio.Timeout
) -> None:
    kind = hardware()
    measured: dict[int, RoundMeasured] = {}
    heard = False
    client = httpx.AsyncClient(
        base_url=f"http://{trainer}",
        auth=CallAuth(identity.token),
        headers=HEADERS,
        timeout=_CALL_SECONDS,
        trust_env=False,
    )
    with _listening(identity) as address:

        async def report(*begun: RoundMeasured) -> CheckReply | None:
            said = CheckReport(
                rank=identity.rank,
                incarnation=identity.incarnation,
                node=identity.node,
                hardware=kind,
                address=address,
                measured=(*measured.values(), *begun),
            )
            return await _ask(client, said)

        async with client:
            while True:
                reply = await report()
                if reply is None:
                    await asyncio.sleep(_RETRY_SECONDS)
                    continue
                if reply.over:
                    return
                if not heard:
                    heard = True
                    limit.reschedule(asyncio.get_running_loop().time() + MOST_SECONDS)
                if reply.replaced:
                    logger.warning("%s: another pod takes the place of this one", reply.why)
                    limit.reschedule(asyncio.get_running_loop().time() + HELD_SECONDS)
                    await draining.wait()
                    return
                number = reply.round
                if number is not None and number not in measured and number < MOST_MEASURED:
                    measured[number] = await _measure(number, reply.partner, identity.token, report)
                else:
                    await asyncio.sleep(POLL_SECONDS)


async def _ask(client: httpx.AsyncClient, report: CheckReport) -> CheckReply | None:
    """What the trainer says; None where it is not there.

    Raises:
        ProtocolError: it knows no such call, or refuses it.
    """
    try:
        answer = await client.post(CHECK_PATH, content=encode(report))
    except httpx.TransportError:
        return None
    if answer.is_error:
        raise ProtocolError(f"{answer.status_code}, {answer.text[:200]}")
    return decode(CheckReply, answer.content)


async def _measure(
    number: int,
    partner: str,
    token: str,
    say: Callable[[RoundMeasured], Awaitable[object]],
) -> RoundMeasured:
    """Measure one round; ``say`` is given the machine's own speeds before its link is known."""
    own = await _to_its_end(measure)
    done = RoundMeasured(number=number, compute=own.compute, memory=own.memory)
    if not partner:
        return done
    linked = asyncio.ensure_future(_to_its_end(partial(measure_link, partner, token)))
    try:  # a trainer that is far away is not waited for twice
        await say(done.model_copy(update={"complete": False}))
    finally:
        link = await linked
    return done.model_copy(update={"link": link, "failed": link is None})


async def _to_its_end(work: Callable[[], T]) -> T:
    """What a thread makes of it; it is waited for even where nobody needs it any more.

    The program is started by a fork, which takes a product of matrices that is being computed the
    threads that it waits for: it would never end, and the agent would wait for it at its own end.
    """
    working = asyncio.ensure_future(asyncio.to_thread(work))
    try:
        return await asyncio.shield(working)
    except asyncio.CancelledError:
        await asyncio.wait([working])
        raise


@contextmanager
def _listening(identity: PodIdentity) -> Iterator[str]:
    """Where partners measure their link to this pod; empty where nobody may."""
    if not identity.token and not is_loopback(identity.ip):
        yield ""
        return
    with serving(identity.ip, identity.token) as address:
        yield address
