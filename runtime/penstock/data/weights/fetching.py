"""How a data worker comes by the weights of what it is to call: from its node, or by asking.

The training process is asked for one part after the other, over the connection that its batches go
by, so that nobody else listens and nothing new is to be trusted. It happens beside the work: until
the weights are there batches are made without the results that need them. What fails is tried again
as long as the connection lasts.
"""

from __future__ import annotations

import logging
import mmap
import threading
import time
import weakref
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Final

from penstock.data.complaints import Complaints
from penstock.data.errors import DataError, FrameError
from penstock.data.transport import messages
from penstock.data.transport.messages import SILENCE_SECONDS
from penstock.data.weight_bundle import Weights
from penstock.data.weights.node_folder import NodeFolder, Part, WeightsError, node_folder

logger = logging.getLogger(__name__)

LOOK_SECONDS: Final = 0.1
RETRY_SECONDS: Final = 30.0

Send = Callable[[int, Any], None]
"""Sends a message of a kind, with a header."""


class AskedParts:
    """What one training process is asked for, a part at a time."""

    def __init__(self) -> None:
        self._one_at_a_time = threading.Lock()
        self._changed = threading.Condition()
        self._asked: tuple[bytes, int, int] | None = None
        self._came: memoryview | None = None
        self._problem = ""
        self._closed = threading.Event()

    def ask(self, send: Send, digest: bytes, offset: int, size: int) -> memoryview:
        """So many bytes of weights.

        Raises:
            WeightsError: they are not to be had, or did not come in time.
            FrameError: the connection is over.
        """
        with self._one_at_a_time:
            with self._changed:
                self._asked, self._came, self._problem = (digest, offset, size), None, ""
            send(messages.NEED, [digest, offset, size])
            deadline = time.monotonic() + SILENCE_SECONDS
            with self._changed:
                while not self._answered():
                    if not self._changed.wait(deadline - time.monotonic()):
                        self._problem = f"nothing came in {SILENCE_SECONDS:.0f} s"
                self._asked, came = None, self._came
            if came is not None:
                return came
            if self._closed.is_set():
                raise FrameError("the connection is over")
            raise WeightsError(f"{size} bytes of weights at {offset}: {self._problem}")

    def _answered(self) -> bool:
        return self._came is not None or bool(self._problem) or self._closed.is_set()

    def put(self, digest: bytes, offset: int, problem: str, body: memoryview) -> None:
        """A part has come; one that nobody waits for (any more) is dropped."""
        with self._changed:
            if self._asked is None or (digest, offset) != self._asked[:2]:
                return
            if problem:
                self._problem = str(problem)[:500]
            elif len(body) != self._asked[2]:
                self._problem = f"{len(body)} bytes came where {self._asked[2]} were due"
            else:
                self._came = body
            self._changed.notify_all()

    def close(self) -> None:
        """The connection is over."""
        self._closed.set()
        with self._changed:
            self._changed.notify_all()

    def wait(self, seconds: float) -> bool:
        """Wait so long; True: the connection is over."""
        return self._closed.wait(seconds)


class WeightsKeeper:
    """The weights of one data worker; see the module's docstring."""

    def __init__(self, folder: Callable[[], NodeFolder] = node_folder) -> None:
        self._folder = folder
        self._held: weakref.WeakValueDictionary[bytes, mmap.mmap] = weakref.WeakValueDictionary()
        self._provided: weakref.WeakSet[Weights] = weakref.WeakSet()
        self._complaints = Complaints()

    def provide(self, wanted: Iterable[Weights], send: Send, parts: AskedParts, whose: str) -> None:
        """Attach these, now or when they have come, each once; ``whose``: for people."""
        for weights in wanted:
            if weights in self._provided:
                continue
            self._provided.add(weights)
            if (memory := self._held.get(weights.digest)) is not None:
                weights.attach(memory)
                continue
            bring = partial(self._bring, weights, send, parts, whose)
            threading.Thread(target=bring, name="penstock-weights", daemon=True).start()

    def _bring(self, weights: Weights, send: Send, parts: AskedParts, whose: str) -> None:
        while True:
            try:
                memory = self._obtain(weights, send, parts)
            except FrameError:
                return
            except (DataError, OSError) as error:
                subject = "a declared function is not called here, for want of its weights:"
                self._complaints.add(f"{whose}: {subject}", str(error))
                if parts.wait(RETRY_SECONDS):
                    return
            else:
                self._held[weights.digest] = memory
                weights.attach(memory)
                return

    def _obtain(self, weights: Weights, send: Send, parts: AskedParts) -> mmap.mmap:
        folder = self._folder()
        since = time.time()
        while True:
            if (memory := folder.find(weights)) is not None:
                return memory
            stands_still = time.time() - max(since, folder.written_at(weights)) > SILENCE_SECONDS
            part = folder.begin(weights, beside=stands_still)
            if part is not None:
                with part:
                    return _fetch(part, weights, send, parts)
            if parts.wait(LOOK_SECONDS):  # another data worker of this node asks for them
                raise FrameError("the connection is over")


def _fetch(part: Part, weights: Weights, send: Send, parts: AskedParts) -> mmap.mmap:
    while True:
        resumed = part.resumed
        while part.have < weights.size:
            size = min(messages.PART_BYTES, weights.size - part.have)
            part.write(parts.ask(send, weights.digest, part.have, size))
        try:
            return part.finish()
        except WeightsError:
            if not resumed:
                raise
            part.resumed = False  # what another has left was wrong: all of it anew
