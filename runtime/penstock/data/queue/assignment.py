"""Who is asked for which steps: the lowest first, of the one with the least to do."""

from __future__ import annotations

import time
from typing import Any

from penstock.data.queue.batch_queue import BatchQueue
from penstock.data.queue.credits import credits_of, has_room
from penstock.data.queue.worker_connection import WorkerConnection

Steps = dict[WorkerConnection, list[tuple[int, Any]]]
"""Steps and their indices, by who is asked for them."""


def assign_steps(queue: BatchQueue, usable: list[WorkerConnection]) -> Steps:
    """Lease what there is room for.

    Each maker has work in proportion to its speed (`credits_of`), and no more of them work at once
    than the queue's bound allows. The step that the program waits for goes to a local worker even
    if all have their share, where somebody gave it back; without local workers the program makes it
    itself.
    """
    window, now = queue.window, time.monotonic()
    seconds = [link.batch_seconds for link in usable if link.batch_seconds]
    fastest = min(seconds, default=0.0)
    rooms: list[tuple[WorkerConnection, int, int]] = []
    making = 0
    for link in usable:
        credits_ = credits_of(queue.prefetch, link.batch_seconds, fastest, queue.batch_bytes)
        held = window.unmade_by(link.name)
        making += held > 0
        if has_room(held, credits_, link.batch_seconds):
            rooms.append((link, held, credits_))
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
    local = [link for link in usable if link.local]
    if local and window.starved:
        link = min(local, key=lambda one: window.unmade_by(one.name))
        if (asked := window.ask(link.name, now, retry=True)) is not None:
            steps.setdefault(link, []).append(asked)
    return steps


def _fullness(room: tuple[WorkerConnection, int, int]) -> float:
    return room[1] / room[2]
