"""Run a program with the hooks of the profiler in it, and make a profile of what they wrote down.

The program is a child with the same terminal, output and exit code as alone. Nothing that goes
wrong here ends it.
"""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

from penstock.base.exit_codes import shell_code
from penstock.data.child_program import end_of, signals_to, stop_program
from penstock.data.cores import usable_cores
from penstock.data.hooked import hooked
from penstock.data.machine import machine
from penstock.data.profiling import record_files
from penstock.data.profiling.cold_reads import read_cold
from penstock.data.profiling.loader_hooks import BATCHES, STORAGE
from penstock.data.profiling.maker_hooks import LOADER
from penstock.data.profiling.new_memory import cost_of_new
from penstock.data.profiling.record_folder import record_folder
from penstock.throughput.errors import ProfileError
from penstock.throughput.observations.analysis import Seen, profile_of
from penstock.throughput.observations.copies import Copies
from penstock.throughput.observations.new_memory import NewMemory, typical
from penstock.throughput.observations.records import Delivery, Loader, Made, SampleReads
from penstock.throughput.observations.session import Phase, warm_up
from penstock.throughput.profiles.profile import Profile

POLL_SECONDS: Final = 0.1
PROGRESS_SECONDS: Final = 60.0
"""Until it is first said how far a session is; then after twice as long each time."""
_UNEQUAL: Final = 0.1
_LAUNCHERS: Final = ("torch.distributed.run", "torch.distributed.launch")
"""Modules that start a program which is named behind them."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """How to profile.

    Attributes:
        batches: of the program as it runs, at most.
        stop: end the program when its profile is there.
        storage: read files of the program again, cold, and drop some while it runs.
    """

    batches: int = 60
    stop: bool = False
    storage: bool = True


def run_profiled(
    command: Sequence[str],
    wanted: Wanted,
    tell: Callable[[Profile | ProfileError], None],
    environ: Mapping[str, str],
    say: Callable[[str], None] = lambda _: None,
) -> int:
    """Run the program; ``tell`` is called once, as soon as its profile is there or cannot be.

    ``say``: how far it is, where that takes long.

    Returns:
        The program's exit code, as a shell has it.

    Raises:
        OSError: the program cannot be started.
        ProfileError: there can be no folder for what is written down; nothing is started.
    """
    with ExitStack() as stack:
        try:
            folder = stack.enter_context(record_folder())
        except OSError as error:
            raise ProfileError(
                f"no folder for temporary files ({error.strerror}): set TMPDIR to one that can be "
                "written"
            ) from error
        environment = {
            **{key: value for key, value in environ.items() if key != LOADER},
            record_files.FOLDER: str(folder),
            BATCHES: str(wanted.batches),
            STORAGE: str(int(wanted.storage)),
        }
        began = time.monotonic()
        program = subprocess.Popen(command, env=hooked(environment))
        with signals_to(program):
            due = PROGRESS_SECONDS
            while program.poll() is None and not record_files.is_finished(folder):
                time.sleep(POLL_SECONDS)
                if time.monotonic() - began >= due:
                    say(f"after {due:.0f} s {_progress(list(_observed(folder)), wanted)}")
                    due *= 2
            if program.poll() is None and wanted.stop:
                stop_program(program)
            try:
                found: Profile | ProfileError = _profile(folder, command, wanted)
            except ProfileError as error:
                found = _with_the_end_of(program, error, stopped=wanted.stop)
            tell(_timed(found, time.monotonic() - began))
            return end_of(program, stopped=wanted.stop)


def _progress(observed: Sequence[_Observed], wanted: Wanted) -> str:
    """How far a session is: a program may run for hours whose profile cannot be made."""
    if not observed:
        return "no DataLoader was iterated yet"
    most = max(observed, key=lambda one: (len(one.normal), len(one.deliveries)))
    loader = most.loader
    said = (
        f"{len(most.normal)} of at most {wanted.batches} batches of {loader.dataset} are measured"
    )
    if most.normal or not loader.workers:
        return said
    passed = warm_up(loader.workers * loader.prefetch)
    return f"{said}; the first {passed} of each epoch are not: its workers fill their window"


def _with_the_end_of(
    program: subprocess.Popen[bytes], error: ProfileError, *, stopped: bool
) -> ProfileError:
    """What kept a program from being profiled may be that it failed."""
    code = program.poll()
    if stopped or not code:
        return error
    return ProfileError(f"the program ended with code {shell_code(code)}: {error}")


def _timed(found: Profile | ProfileError, seconds: float) -> Profile | ProfileError:
    if isinstance(found, ProfileError):
        return found
    return replace(found, keys={**found.keys, "seconds": f"{seconds:.1f}"})


@dataclass(frozen=True, slots=True)
class _Observed:
    """Everything of one loader in one training process."""

    loader: Loader
    deliveries: list[Delivery]
    made: list[Made]
    files: list[str]
    busy: float
    pinning: list[tuple[float, float]]
    trained: bool
    memory: list[NewMemory]

    @property
    def normal(self) -> list[Delivery]:
        return [one for one in self.deliveries if one.phase is Phase.NORMAL]

    @property
    def stalled(self) -> float:
        own = self.normal
        time_ = own[-1].returned - own[0].called if len(own) > 1 else 0.0
        return sum(one.waited for one in own) / time_ if time_ > 0 else 0.0


def _profile(folder: Path, command: Sequence[str], wanted: Wanted) -> Profile:
    observed = list(_observed(folder))
    if not observed:
        raise ProfileError(
            "no DataLoader was iterated: the program loads its data in another way, or ended "
            "before its first batch"
        )
    trained = [one for one in observed if one.trained] or observed
    most = max(len(one.normal) for one in trained)
    ranks = [one for one in trained if len(one.normal) >= most / 2]
    chosen = max(
        ranks, key=lambda one: (one.stalled if one.loader.world > 1 else 0.0, len(one.normal))
    )
    cores = usable_cores()
    seen = Seen(
        program=program_name(command),
        loader=chosen.loader,
        cores=cores,
        deliveries=chosen.deliveries,
        made=chosen.made,
        busy=chosen.busy if os.cpu_count() == cores else 0.0,
        memory=typical(chosen.memory) if chosen.memory else cost_of_new(),
        pinning=chosen.pinning,
        keys={"dataset": chosen.loader.dataset, "machine": machine()},
    )
    if wanted.storage and chosen.files:
        seen = replace(seen, reading=read_cold(chosen.files, max(1, chosen.loader.workers)))
    profile = profile_of(seen)
    notes = [*profile.notes, *_notes(observed, ranks, chosen)]
    return replace(profile, notes=tuple(notes), processes=len({one.loader.rank for one in ranks}))


def _notes(
    observed: Sequence[_Observed], ranks: Sequence[_Observed], chosen: _Observed
) -> Iterator[str]:
    world = [one for one in ranks if one.loader.world > 1]
    shares = sorted(one.stalled for one in world)
    if shares and shares[-1] - shares[0] > _UNEQUAL:
        yield (
            f"ranks differ: rank {chosen.loader.rank} waits {shares[-1]:.0%} of its time for data, "
            f"another {shares[0]:.0%}; all of them go as fast as the slowest, and this is its "
            "profile"
        )
    others = [
        one for one in observed if one.loader.rank == chosen.loader.rank and one is not chosen
    ]
    if others:
        names = ", ".join(sorted({f"{one.loader.dataset} ({one.loader.number})" for one in others}))
        yield f"other loaders of the program were not profiled: {names}"
    if not any(one.queued for one in chosen.made):
        yield "this system does not say how long a thread waits for a core: it counts as fetching"


def _observed(folder: Path) -> Iterator[_Observed]:
    """Of every training process, its loaders; makers name the loader, and their process its."""
    loaders: dict[tuple[str, int], dict[str, Any]] = {}
    got: dict[tuple[str, int], list[dict[str, Any]]] = {}
    made: list[tuple[str, dict[str, Any]]] = []
    busy: dict[tuple[str, int], list[float]] = {}
    workers: dict[str, tuple[str, int]] = {}
    for process, record in record_files.read_records(folder):
        match record.get("k"):
            case "loader":
                loaders[process, record["l"]] = record
            case "got":
                got.setdefault((process, record["l"]), []).append(record)
            case "machine":
                busy.setdefault((process, record["l"]), []).append(record["b"])
            case "workers":
                workers.update((str(pid), (process, record["l"])) for pid in record["pids"])
            case "made" | "files":
                made.append((process, record))
    for (process, number), record in loaders.items():
        own = [
            one
            for maker, one in made
            if workers.get(maker, (one["t"], one["l"])) == (process, number)
        ]
        deliveries = [_delivery(one) for one in got.get((process, number), [])]
        yield _Observed(
            loader=Loader(
                number=number,
                dataset=record["dataset"],
                workers=record["workers"],
                prefetch=record["prefetch"],
                batch_size=record["batch"],
                samples=record["samples"],
                in_turn=record["in_turn"],
                rank=record["rank"],
                world=record["world"],
            ),
            deliveries=deliveries,
            pinning=sorted(
                (begin, end) for one in got.get((process, number), []) for begin, end in one["i"]
            ),
            trained=any(one["t"] for one in got.get((process, number), [])),
            busy=_busy_cores(busy.get((process, number), []), deliveries),
            made=[_made(one) for one in own if one["k"] == "made"],
            memory=[NewMemory(*one["y"]) for one in own if one["k"] == "made" and one["y"]],
            files=list(
                dict.fromkeys(path for one in own if one["k"] == "files" for path in one["paths"])
            ),
        )


def _busy_cores(seconds: Sequence[float], deliveries: Sequence[Delivery]) -> float:
    """Of the whole machine while the program ran as alone; 0 if that was in several pieces."""
    normal = [one for one in deliveries if one.phase is Phase.NORMAL]
    if len(seconds) < 2 or not seconds[0] or len(normal) < 2:
        return 0.0
    length = normal[-1].returned - normal[0].called
    return (seconds[1] - seconds[0]) / length if length > 0 else 0.0


def _delivery(record: Mapping[str, Any]) -> Delivery:
    return Delivery(
        maker=record["m"],
        called=record["a"],
        returned=record["r"],
        cpu_called=record["ca"],
        cpu_returned=record["cr"],
        phase=Phase(record["p"]),
        first=record["f"],
        held=record["h"],
        nbytes=record["z"],
        looked=record["o"],
        faults=record["n"],
        copies=tuple(
            Copies(bool(blocking), bool(pinned), bool(idle), number, seconds, nbytes)
            for blocking, pinned, idle, number, seconds, nbytes in record["y"]
        ),
    )


def _made(record: Mapping[str, Any]) -> Made:
    return Made(
        maker=record["m"],
        begin=record["b"],
        end=record["e"],
        cpu=record["c"],
        queued=record["q"],
        samples=record["n"],
        collate_cpu=record["cc"],
        collate_seconds=record["cs"],
        stages=record["s"],
        sizes=record["z"],
        other_cpu=record["o"],
        read=record["r"],
        missed=record["x"],
        faults=record["f"],
        retained=record["w"],
        cooled=record["d"],
        reads=SampleReads(*record["u"]),
    )


def program_name(command: Sequence[str]) -> str:
    """The script or module, as people call it."""
    for before, argument in pairwise(["", *command]):
        if argument.endswith(".py"):
            return Path(argument).name
        if before == "-m" and argument not in _LAUNCHERS:
            return argument
    return Path(command[0]).name
