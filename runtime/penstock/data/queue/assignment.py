"""Who is asked for which steps: the lowest first, of the one with the least to do.

The batches of a stream all come from one maker, so of a dataset that is iterated it is streams that
are given out, and whoever has one is asked for its batches.

For measurements (PENSTOCK_DATA_SHARE) steps are divided by counting instead, as FastFlow does it
(PVLDB 16(5), section 5.3): a share of 0.3 has data workers make three of ten, evenly spread.
"""

from __future__ import annotations

import math
import time
from functools import partial
from typing import Any, Final

from penstock.data.queue.batch_queue import BatchQueue
from penstock.data.queue.credits import credits_of, has_room, is_quick
from penstock.data.queue.worker_connection import WorkerConnection
from penstock.data.window.affinity import Maker, preference, weight_of
from penstock.data.window.free_window import FreeWindow
from penstock.data.window.reorder_buffer import ReorderBuffer
from penstock.data.window.stream_window import StreamWindow

MISSING_SECONDS: Final = 3.0
"""So long after an epoch's beginning streams are kept for data workers that are not connected."""

Steps = dict[WorkerConnection, list[tuple[int, Any]]]
"""Steps and their indices, by who is asked for them."""


def assign_steps(queue: BatchQueue, usable: list[WorkerConnection], *, alone: bool) -> Steps:
    """Lease what there is room for.

    Each maker has work in proportion to its speed (`credits_of`), and no more of them work at once
    than the queue's bound allows. One that is not known to be quick gets one step at a time: two
    neighbouring steps of one maker come one after the other, where two makers bring them at once,
    and whoever takes part first would have the first two for ever. The step that the program waits
    for goes to a local worker even if all have their share, where somebody gave it back; without
    local workers the program makes it itself.

    Args:
        queue: of a dataset that is indexed.
        usable: makers that can be asked now.
        alone: nobody else is to be expected beside a single one of them.
    """
    window, now = queue.window, time.monotonic()
    assert not isinstance(window, StreamWindow | FreeWindow), "see assign_streams, assign_tiles"
    seconds = [link.batch_seconds for link in usable if link.batch_seconds]
    fastest = min(seconds, default=0.0)
    rooms: list[tuple[WorkerConnection, int, int]] = []
    making = 0
    for link in usable:
        credits_ = credits_of(queue.prefetch, link.batch_seconds, fastest, queue.batch_bytes)
        held = window.unmade_by(link.name)
        making += held > 0
        if has_room(held, credits_, link.batch_seconds):
            quick = alone or is_quick(link.batch_seconds)
            rooms.append((link, held, credits_ if quick else min(credits_, held + 1)))
    steps: Steps = {}
    while rooms:
        link, held, credits_ = chosen = min(rooms, key=_fullness)
        rooms.remove(chosen)
        if not held and making >= queue.bound.makers:
            continue  # there is no memory for one more
        if (asked := window.ask(link.name, now, retry=link.local)) is None:
            break
        making += not held
        steps.setdefault(link, []).append(asked)
        if held + 1 < credits_:
            rooms.append((link, held + 1, credits_))
    _ask_starved(window, usable, steps, now)
    return steps


def _ask_starved(
    window: ReorderBuffer, usable: list[WorkerConnection], steps: Steps, now: float
) -> None:
    """Ask a local worker for the step that the program waits for and nobody has."""
    local = [link for link in usable if link.local]
    if local and window.starved:
        link = min(local, key=lambda one: window.unmade_by(one.name))
        if (asked := window.ask(link.name, now, retry=True)) is not None:
            steps.setdefault(link, []).append(asked)


def assign_static(queue: BatchQueue, usable: list[WorkerConnection], *, alone: bool) -> Steps:
    """As `assign_steps`, but each step of the data worker that it is for, where that costs nothing.

    See `penstock.data.window.affinity`. Where there is no memory for all to work at once it is as
    without.
    """
    window, affinity, now = queue.window, queue.affinity, time.monotonic()
    assert isinstance(window, ReorderBuffer), "see assign_streams, assign_tiles"
    assert affinity is not None, "sharding is static"
    if all(link.local for link in usable) or queue.bound.makers < len(usable):
        return assign_steps(queue, usable, alone=alone)
    seconds = [link.batch_seconds for link in usable if link.batch_seconds]
    fastest = min(seconds, default=0.0)
    makers = []
    for link in usable:
        credits_ = credits_of(queue.prefetch, link.batch_seconds, fastest, queue.batch_bytes)
        held, room = window.unmade_by(link.name), 0
        if has_room(held, credits_, link.batch_seconds):
            room = credits_ - held if alone or is_quick(link.batch_seconds) else 1
        weight = weight_of(link.batch_seconds, fastest)
        makers.append(Maker(link.name, held, room, max(1, credits_ // 2), weight, link.local))
    near = window.position + max(len(makers), window.ahead // 4)
    links = {link.name: link for link in usable}
    steps: Steps = {}
    for step, name in sorted(affinity.plan(window.free_steps(), makers, near, now)):
        if (asked := window.ask(name, now, step=step)) is not None:
            steps.setdefault(links[name], []).append(asked)
    _ask_starved(window, usable, steps, now)
    return steps


def _fullness(room: tuple[WorkerConnection, int, int]) -> float:
    return room[1] / room[2]


def assign_tiles(
    queue: BatchQueue, usable: list[WorkerConnection]
) -> dict[WorkerConnection, list[tuple[int, int]]]:
    """Ask for batches of a loader that shares, of whom its rounds say (`Rounds.whom_to_ask`)."""
    window, now = queue.window, time.monotonic()
    assert isinstance(window, FreeWindow), "of a loader that shares"
    seconds = [link.batch_seconds for link in usable if link.batch_seconds]
    fastest = min(seconds, default=0.0)
    steps: dict[WorkerConnection, list[tuple[int, int]]] = {}
    rooms = {
        link: credits_of(queue.prefetch, link.batch_seconds, fastest, queue.batch_bytes)
        for link in usable
    }
    by_name = {link.name: link for link in rooms}
    while rooms:
        link = by_name[window.rounds.whom_to_ask([one.name for one in rooms])]
        held = window.unmade_by(link.name)
        asked = window.ask(link.name, now) if held < rooms[link] else None
        if asked is None:
            del rooms[link]
        else:
            steps.setdefault(link, []).append(asked)
    return steps


def is_remote(step: int, share: float) -> bool:
    """Whether a step is one of the share."""
    return math.floor((step + 1) * share + 1e-9) > math.floor(step * share + 1e-9)


def divides(queue: BatchQueue, usable: list[WorkerConnection]) -> bool:
    """Whether a share of a queue is forced, and there are makers on both sides to divide it.

    Where there are none on one side, the other makes its steps: a share is no reason to wait.
    """
    sides = {link.local for link in usable}
    return queue.share is not None and len(sides) == 2


def assign_share(queue: BatchQueue, usable: list[WorkerConnection]) -> Steps:
    """Lease what there is room for, each step on the side that a share has it on.

    Steps are given out strictly in order: the side that is behind holds back the other, which could
    only fill the window. What a data worker could not make goes to a local worker.

    Args:
        queue: of a dataset that is indexed, with a share.
        usable: makers that can be asked now, of both sides.
    """
    steps: Steps = {}
    while any(_assign_one(queue, usable, steps, local=local) for local in (True, False)):
        pass
    return steps


def _assign_one(
    queue: BatchQueue, usable: list[WorkerConnection], steps: Steps, *, local: bool
) -> bool:
    """Lease the lowest free step to the least busy maker of a side; whether it is that side's."""
    window, share = queue.window, queue.share
    assert not isinstance(window, StreamWindow | FreeWindow), "a stream is made by one process"
    assert share is not None, "see divides"
    held = {link: window.unmade_by(link.name) for link in usable}
    link = min((one for one in usable if one.local is local), key=lambda one: held[one])
    seconds = [one.batch_seconds for one in usable if one.batch_seconds]
    fastest = min(seconds, default=0.0)
    most = credits_of(queue.prefetch, link.batch_seconds, fastest, queue.batch_bytes)
    if held[link] >= max(most, queue.prefetch):
        return False
    if not held[link] and sum(map(bool, held.values())) >= queue.bound.makers:
        return False  # there is no memory for one more

    def suits(step: int, failed: bool) -> bool:
        return local is (failed or not is_remote(step, share))

    asked = window.ask(link.name, time.monotonic(), retry=local, suits=suits)
    if asked is not None:
        steps.setdefault(link, []).append(asked)
    return asked is not None


def assign_streams(queue: BatchQueue, usable: list[WorkerConnection], expected: int) -> Steps:
    """Give out streams, and ask for the batches of those that are given out.

    A stream is made by one process and no faster than that. So a data worker gets one stream, and
    more only where there are no local workers, and then not those that would be others' who are on
    their way; local workers have what is left, each the stream of its number, as in PyTorch.

    Args:
        queue: of a dataset that is iterated.
        usable: makers that can be asked now.
        expected: data workers that are on their way.
    """
    window, now = queue.window, time.monotonic()
    assert isinstance(window, StreamWindow), "see assign_steps"
    _give_out(window, usable, expected, static=queue.affinity is not None)
    steps: Steps = {}
    making = sum(window.unmade_by(link.name) > 0 for link in usable)
    for link in usable:
        held = window.unmade_by(link.name)
        room = max(1, queue.prefetch) * max(1, window.held_by(link.name)) - held
        if room <= 0 or (not held and making >= queue.bound.makers):
            continue
        while room > 0 and (asked := window.ask(link.name, now)) is not None:
            making += not held
            held, room = held + 1, room - 1
            steps.setdefault(link, []).append(asked)
    return steps


def _give_out(
    window: StreamWindow, usable: list[WorkerConnection], expected: int, *, static: bool
) -> None:
    data = sorted((link for link in usable if not link.local), key=lambda one: one.name)
    weights = {link.name: 1.0 for link in data}

    def liking(name: str, stream: int) -> tuple[int, int]:
        """How much a stream is for a data worker: static, it goes where it was in other epochs."""
        rank = preference(stream, weights).index(name) if static else 0
        return -rank, stream

    local = [link for link in usable if link.local]
    most = 1 if local else window.count
    if not local and expected:  # whoever is first leaves the others their part
        most = -(-window.count // (len(data) + expected))
    while able := [
        link for link in data if window.held_by(link.name) < most and window.free_for(link.name)
    ]:
        link = min(able, key=lambda one: window.held_by(one.name))
        free = window.free_for(link.name)
        window.claim(link.name, max(free, key=partial(liking, link.name)))
    kept = expected
    for link in sorted(local, key=lambda one: -one.number):
        if link.number in window.free_for(link.name):
            if kept > 0:
                kept -= 1
                continue
            window.claim(link.name, link.number)


def expected_workers(queue: BatchQueue, age: float, *, missing: int, opening: int) -> int:
    """Data workers that streams are kept for: on their way, and not for long.

    Args:
        queue: of a dataset that is iterated.
        age: of its epoch, in seconds.
        missing: data workers that the job has and that are not connected.
        opening: such as are opening the pipeline, for which they import what the program did.
    """
    if not queue.portable:
        return 0
    return missing * (age < MISSING_SECONDS) + opening * (age < queue.opening_seconds)
