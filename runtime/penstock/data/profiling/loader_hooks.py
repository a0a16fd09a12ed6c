"""A PyTorch loader that writes down what it and its workers do, and is otherwise as it was.

Two places are wrapped: where the program asks an iterator for a batch, and where a maker fetches
one. Loaders of any kind pass there, map-style or iterable, with workers or without. When the
session is over the program's own methods are put back.
"""

from __future__ import annotations

import atexit
import os
import sys
import time
import weakref
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from penstock.data.clocks import busy_seconds
from penstock.data.profiling import record_files, thread_counts
from penstock.data.profiling.by_identity import ByIdentity
from penstock.data.profiling.device_copies import DeviceCopies, InitialisedDevices
from penstock.data.profiling.held_window import HeldWindow
from penstock.data.profiling.maker_hooks import LOADER, Makers
from penstock.data.profiling.record_files import RecordFile
from penstock.data.profiling.training_steps import TrainingSteps
from penstock.data.sizes import batch_bytes
from penstock.throughput.observations.records import IN_LINE
from penstock.throughput.observations.session import (
    Budget,
    Phase,
    Session,
    begin,
    epoch_ended,
    filled,
    taken,
)

BATCHES: Final = "PENSTOCK_PROFILE_BATCHES"
STORAGE: Final = "PENSTOCK_PROFILE_STORAGE"
"""The variable that says 0 where no file may be dropped from memory."""
_TOLD: Final = frozenset({Phase.RETAINED, Phase.COLD})
"""Of which makers are told when they begin."""
_MOST_KINDS: Final = 1000
_DEEPEST: Final = 30


def install(module: Any) -> None:
    """Wrap PyTorch's loaders; ``module`` is `torch.utils.data`."""
    folder = Path(os.environ[record_files.FOLDER])
    makers = Makers(folder)
    if module.get_worker_info() is None and LOADER not in os.environ:
        Loaders(folder, makers, module.dataloader._BaseDataLoaderIter).install(module)
    fetchers = module._utils.fetch
    for fetcher in (fetchers._MapDatasetFetcher, fetchers._IterableDatasetFetcher):
        makers.install(fetcher, module.get_worker_info)


class _Watched:
    """One loader of the program and the session that measures it.

    One that is made anew for each epoch, in the same place and as the one before, is the same.
    """

    def __init__(self, number: int, session: Session) -> None:
        self.number = number
        self.session = session
        self.loader: weakref.ref[Any] = lambda: None  # type: ignore[assignment]  # none yet
        self.iterator: weakref.ref[Any] = lambda: None  # type: ignore[assignment]  # none yet
        self.held: HeldWindow | None = None
        self.returned: float | None = None
        self.steps = 0  # of optimizers, when its last batch was delivered
        self.trained = False
        self.sized = 0
        self.looked = 0.0
        """Seconds that went into looking since the last batch was there."""
        self.faults = 0
        """Pages that its thread had filled when the last batch was there; then, of the step."""


class Loaders:
    """What the training process writes down: when it asks for batches, and when it has them."""

    def __init__(self, folder: Path, makers: Makers, iterators: Any) -> None:
        self._folder = folder
        self._makers = makers
        self._class = iterators
        self._plain: list[tuple[Any, str, Any]] = []
        self._over = False
        self._training: TrainingSteps | None = None  # before a loader is iterated
        self._begin_process()

    def _begin_process(self) -> None:
        """Nothing was seen of this process yet: it imports PyTorch, or was forked after that."""
        self._process = os.getpid()
        self._out = RecordFile(self._folder, self._process)
        self._watched: ByIdentity[_Watched] = ByIdentity()
        self._by_kind: dict[tuple[Any, ...], _Watched] = {}
        self._told: set[tuple[Phase, int]] = set()
        self._by_iterator: ByIdentity[_Watched] = ByIdentity()
        self._count = 0

    def install(self, module: Any) -> None:
        """Wrap the iterators of PyTorch's loaders."""
        import torch

        self._torch = torch
        self._copies = DeviceCopies(torch)
        self._pin_module = module._utils.pin_memory
        self._worker_info = module.get_worker_info
        single = module.dataloader._SingleProcessDataLoaderIter
        several = module.dataloader._MultiProcessingDataLoaderIter
        replaced = (
            (single, "__init__"),
            (several, "__init__"),
            (several, "_reset"),
            (self._class, "__next__"),
        )
        self._plain = [(owner, name, owner.__dict__[name]) for owner, name in replaced]
        begin_single, begin_several, plain_reset, plain_next = (one[2] for one in self._plain)

        def init_single(this: Any, loader: Any) -> None:
            if self._is_watching():
                self._begin(this, loader)
            begin_single(this, loader)

        def init_several(this: Any, loader: Any) -> None:
            if not self._is_watching():
                begin_several(this, loader)
                return
            number = self._begin(this, loader).number
            os.environ[LOADER] = f"{self._process}:{number}"
            try:
                begin_several(this, loader)  # and its workers
            finally:
                os.environ.pop(LOADER, None)
            self._note_workers(this, number)

        def reset(this: Any, loader: Any, first_iter: bool = False) -> None:
            watched = self._by_iterator.get(this)
            if watched is not None and not first_iter:
                self._epoch(watched, this)
            plain_reset(this, loader, first_iter)

        def following(this: Any) -> Any:
            entered = time.monotonic()  # what follows is none of the program's step
            watched = self._by_iterator.get(this)
            if watched is None or self._over or self._process != os.getpid():
                return plain_next(this)
            if watched.session.phase is Phase.DONE:
                batch, first = plain_next(this), watched.returned is None
                self._end_if_known(watched, first)
                watched.returned = time.monotonic()
                return batch
            return self._next(plain_next, this, watched, entered)

        single.__init__, several.__init__ = init_single, init_several
        several._reset, self._class.__next__ = reset, following
        # One process of a program may end long before the one that trains begins.
        atexit.register(self._end, "the program ended", finished=False)

    def _is_watching(self) -> bool:
        """Whether this process's loaders are measured; one that was forked begins with nothing."""
        if self._over or self._worker_info() is not None:
            return False
        if self._process != os.getpid():
            if LOADER in os.environ:
                return False
            self._copies.end()
            self._copies = DeviceCopies(self._torch)
            self._begin_process()
        return True

    def _note_workers(self, iterator: Any, number: int) -> None:
        """A fork server gives its workers the variables of the loader that it was started for."""
        pids = [
            worker.pid
            for worker in getattr(iterator, "_workers", ())
            if getattr(getattr(worker, "_popen", None), "method", "") == "forkserver"
        ]
        if pids:
            self._out.write({"k": "workers", "l": number, "pids": pids})

    def _begin(self, iterator: Any, loader: Any) -> _Watched:
        """An iterator is made; its workers begin soon."""
        if self._training is None:
            self._training = TrainingSteps(self._torch)
        watched = self._watched.get(loader)
        if watched is None:
            watched = self._same_or_new(loader)
            watched.loader = weakref.ref(loader)
            self._watched.put(loader, watched)
        self._by_iterator.put(iterator, watched)
        self._epoch(watched, iterator)
        return watched

    def _same_or_new(self, loader: Any) -> _Watched:
        kind = (*self._described(loader, 0).values(), _iterated_at())
        earlier = self._by_kind.get(kind)
        if earlier is not None and earlier.loader() is None:
            return earlier
        self._count += 1
        workers = int(loader.num_workers)
        window = workers * int(loader.prefetch_factor or 2) if workers else 0
        if sys.platform != "linux":
            window = 0
        most = _number(BATCHES, 60)
        budget = Budget(min(20, most), most, fixed=_rank_and_world()[1] > 1)
        if not _number(STORAGE, 1):
            budget = replace(budget, cold=0)
        watched = _Watched(self._count, begin(window, budget))
        if len(self._by_kind) < _MOST_KINDS:
            self._by_kind[kind] = watched
        self._out.write({"k": "loader", **self._described(loader, watched.number)})
        return watched

    def _described(self, loader: Any, number: int) -> dict[str, Any]:
        try:
            samples = len(loader.dataset)
        except Exception:  # noqa: BLE001 - the program's own, which alone nobody may have asked
            samples = 0
        rank, world = _rank_and_world()
        return {
            "l": number,
            "dataset": type(loader.dataset).__name__,
            "workers": int(loader.num_workers),
            "prefetch": int(loader.prefetch_factor or 2),
            "batch": int(loader.batch_size or 0),
            "samples": samples,
            "in_turn": bool(getattr(loader, "in_order", True)),
            "rank": rank,
            "world": world,
        }

    def _epoch(self, watched: _Watched, iterator: Any) -> None:
        if watched.held is not None:
            watched.held.release()
        watched.session = epoch_ended(watched.session)
        watched.iterator = weakref.ref(iterator)
        watched.returned = None
        watched.held = HeldWindow(iterator)

    def _next(self, plain: Any, iterator: Any, watched: _Watched, entered: float) -> Any:
        if watched.iterator() is not iterator:  # two iterators of one loader at once
            return plain(iterator)
        self._makers.loader = watched.number
        copies, _ = self._copies.take()
        called, cpu_called = time.monotonic(), time.process_time()
        watched.looked += called - entered
        watched.faults = max(0, thread_counts.faults() - watched.faults)
        held = watched.held
        assert held is not None
        asked = called
        if watched.session.holds:
            ready = held.fill() if HeldWindow.possible(iterator) else 0
            watched.session = filled(watched.session, ready)
            if watched.session.defers:
                held.defer()
            asked = time.monotonic()
        maker = _maker(iterator)
        phase = watched.session.phase
        try:
            batch = plain(iterator)
        except BaseException:
            held.release()
            watched.session = epoch_ended(watched.session)
            watched.returned = None
            raise
        returned, cpu_returned = time.monotonic(), time.process_time()
        first = watched.returned is None
        trained = None if first or asked != called else called - (watched.returned or 0.0)
        if trained is not None or first:
            watched.session = taken(watched.session, trained, returned - asked)
        elif phase is Phase.DRAIN:  # the first of a drain was preceded by no step of it
            watched.session = taken(watched.session, None, returned - asked)
        if phase is Phase.DRAIN and not watched.session.defers:
            held.release()
        _, pinned = self._copies.take()
        size = 0
        if watched.sized < 8 and phase is Phase.NORMAL:
            watched.sized += 1
            size = batch_bytes(batch)
        self._out.write(
            {
                "k": "got",
                "l": watched.number,
                "m": maker,
                "a": asked,
                "h": asked - called,
                "r": returned,
                "ca": cpu_called,
                "cr": cpu_returned,
                "p": phase.value,
                "f": first,
                "t": not first and self._steps() > watched.steps,
                "z": size,
                "y": copies,
                "i": pinned,
                "o": 0.0 if first else watched.looked,
                "n": 0 if first else watched.faults,
            }
        )
        self._tell_makers(watched)
        if watched.session.phase is not phase and Phase.NORMAL in (phase, watched.session.phase):
            self._out.write({"k": "machine", "l": watched.number, "b": busy_seconds()})
        if not self._copies.begun and watched.session.phase is not Phase.WARM_UP:
            self._copies.begin(InitialisedDevices(self._torch), self._pin_module)
        watched.returned = time.monotonic()
        watched.looked = watched.returned - returned
        watched.faults = thread_counts.faults()
        self._end_if_known(watched, first)
        return batch

    def _tell_makers(self, watched: _Watched) -> None:
        phase, told = watched.session.phase, (watched.session.phase, watched.number)
        if phase not in _TOLD or told in self._told:
            return
        self._told.add(told)
        record_files.begin(phase, self._folder, str(self._process), watched.number)

    def _end_if_known(self, watched: _Watched, first: bool) -> None:
        """The session is over with the loader that is trained on, and not with a validation's."""
        steps = self._steps()
        watched.trained = watched.trained or (not first and steps > watched.steps)
        watched.steps = steps
        if watched.session.phase is Phase.DONE and (watched.trained or self._reads_to_train()):
            self._end("done")

    def _steps(self) -> int:
        return self._training.steps if self._training else 0

    def _reads_to_train(self) -> bool:
        return self._training is not None and self._training.may_be_without

    def _end(self, why: str, *, finished: bool = True) -> None:
        if self._over or self._process != os.getpid():
            return
        self._over = True
        for owner, name, plain in self._plain:
            setattr(owner, name, plain)
        self._copies.end()
        if self._training is not None:
            self._training.end()
        self._makers.end()
        self._out.write({"k": "end", "why": why})
        self._out.close()
        if finished:
            record_files.finish(self._folder)


def _rank_and_world() -> tuple[int, int]:
    """Of the process group, where there is one: not every launcher sets variables."""
    distributed = sys.modules.get("torch.distributed")
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        return int(distributed.get_rank()), int(distributed.get_world_size())
    return _number("RANK", 0), _number("WORLD_SIZE", 1)


def _number(variable: str, default: int) -> int:
    """Of the environment; what is none there is the program's, who may mean something else."""
    text = os.environ.get(variable, "")
    return int(text) if text.isascii() and text.isdecimal() else default


def _iterated_at() -> tuple[str, int]:
    """Where the program iterates a loader: the first frame that is neither PyTorch's nor ours."""
    frame = sys._getframe(1)
    for _ in range(_DEEPEST):
        name = frame.f_globals.get("__name__", "")
        if not name.startswith(("torch.utils.data", "penstock.")):
            break
        if frame.f_back is None:
            break
        frame = frame.f_back
    return frame.f_code.co_filename, frame.f_lineno


def _maker(iterator: Any) -> int:
    """The worker that makes the batch which is delivered next."""
    tasks = getattr(iterator, "_task_info", None)
    if tasks is None:
        return IN_LINE
    info = tasks.get(iterator._rcvd_idx)
    return int(info[0]) if info else IN_LINE
