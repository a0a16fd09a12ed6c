"""The keyed queue: each key once, never twice at a time, failures apart from one another."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Coroutine
from typing import Any

from penstock.controller.queue import FIRST_DELAY_SECONDS, LONGEST_DELAY_SECONDS, KeyedQueue


def run(main: Coroutine[Any, Any, None]) -> None:
    asyncio.run(main)


def make() -> KeyedQueue[str]:
    return KeyedQueue(random.Random(7))


def test_a_key_is_there_once() -> None:
    async def main() -> None:
        queue = make()
        for _ in range(3):
            queue.add("a")
        queue.add("b")
        assert [await queue.get(), await queue.get()] == ["a", "b"]
        assert len(queue) == 0

    run(main())


def test_a_key_that_comes_in_while_worked_on_waits_for_its_worker() -> None:
    async def main() -> None:
        queue = make()
        queue.add("a")
        key = await queue.get()
        queue.add("a")
        queue.add("a")
        assert len(queue) == 0, "a second worker would get it"
        queue.done(key)
        assert len(queue) == 1
        assert await queue.get() == "a"
        queue.done("a")
        assert queue.idle

    run(main())


def test_get_waits() -> None:
    async def main() -> None:
        queue = make()
        waiting = asyncio.create_task(queue.get())
        await asyncio.sleep(0)
        assert not waiting.done()
        queue.add("late")
        assert await waiting == "late"

    run(main())


def test_add_after_keeps_the_earliest() -> None:
    async def main() -> None:
        queue = make()
        queue.add_after("a", 30)
        queue.add_after("a", 0.01)
        queue.add_after("a", 20)
        async with asyncio.timeout(5):
            assert await queue.get() == "a"
        queue.done("a")
        queue.close()

    run(main())


def test_failures_wait_longer_and_longer_with_jitter() -> None:
    async def main() -> None:
        queue = make()
        delays = [queue.failed("a") for _ in range(15)]
        for number, delay in enumerate(delays):
            longest = min(FIRST_DELAY_SECONDS * 2**number, LONGEST_DELAY_SECONDS)
            assert longest / 2 <= delay <= longest
        assert queue.failed("b") <= FIRST_DELAY_SECONDS, "one key's failures are not another's"
        queue.succeeded("a")
        assert queue.failed("a") <= FIRST_DELAY_SECONDS
        queue.close()

    run(main())


def test_a_server_that_names_a_pause_is_obeyed() -> None:
    async def main() -> None:
        queue = make()
        assert queue.failed("a", at_least_seconds=9) == 9
        queue.close()

    run(main())


def test_forget_drops_the_timer() -> None:
    async def main() -> None:
        queue = make()
        queue.add_after("a", 0.01)
        queue.forget("a")
        await asyncio.sleep(0.03)
        assert len(queue) == 0

    run(main())


def test_no_key_is_lost_or_worked_on_twice_under_load() -> None:
    async def main() -> None:
        queue = make()
        source = random.Random(3)
        active: set[str] = set()
        seen: dict[str, int] = {}
        wanted = dict.fromkeys("abcdefgh", 0)

        async def worker() -> None:
            while True:
                key = await queue.get()
                assert key not in active
                active.add(key)
                seen[key] = wanted[key]
                await asyncio.sleep(source.random() / 500)
                active.discard(key)
                queue.done(key)

        workers = [asyncio.create_task(worker()) for _ in range(4)]
        for _ in range(400):
            key = source.choice("abcdefgh")
            wanted[key] += 1
            if source.random() < 0.5:
                queue.add(key)
            else:
                queue.add_after(key, source.random() / 200)
            if source.random() < 0.2:
                await asyncio.sleep(0)
        for _ in range(500):
            if seen == wanted and queue.idle:
                break
            await asyncio.sleep(0.02)
        assert seen == wanted
        for one in workers:
            one.cancel()
        await asyncio.gather(*workers, return_exceptions=True)

    run(main())
