"""What was measured of one program on one machine, and its form as JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import MISSING, asdict, dataclass, field, fields, replace
from typing import Any, Final, cast, get_args

from penstock.throughput.errors import ProfileError
from penstock.throughput.profiles.figures import (
    LEAST,
    MOST_BYTES,
    MOST_CORES,
    MOST_RATE,
    MOST_SECONDS,
    hold_number,
    hold_whole,
    shown,
)
from penstock.throughput.profiles.measured import Measured
from penstock.throughput.profiles.resources import Resources
from penstock.throughput.profiles.stage import Kind, StageCost

VERSION: Final = 1
LARGEST_BYTES: Final = 4 << 20
"""A profile is a few kilobytes; a text that is larger than this is none."""
MOST_STAGES: Final = 64
MOST_QUANTILES: Final = 1024
MOST_NAMES: Final = 256
"""Causes, keys and notes, of each."""
LONGEST_NAME: Final = 1024
LONGEST_NOTE: Final = 4096
MOST_CONTENTION: Final = 100.0
"""With it, a second core would make every other a hundred times slower."""
MOST_OF_MEAN: Final = 1e9
"""What the time of a batch is beside the mean."""
MOST_PROCESSES: Final = 10**6
MOST_SHARE: Final = 1.01
"""Of the time, for a cause: it is a quotient of sums, which need not be 1 to the last bit."""
_FIGURES: Final = (
    ("stalled", 0, 1),
    ("model_error", -MOST_RATE, MOST_RATE),
    ("step_cores", 0, MOST_CORES),
    ("hand_over_seconds", 0, MOST_SECONDS),
    ("copy_seconds", 0, MOST_SECONDS),
    ("sharing_cpu_seconds", 0, MOST_SECONDS),
    ("release_seconds", 0, MOST_SECONDS),
    ("contention", 0, MOST_CONTENTION),
    ("others", 0, MOST_CORES),
)


@dataclass(frozen=True, slots=True)
class Storage:
    """What the program reads.

    Attributes:
        bytes_per_sample: that its dataset reads, from memory or not.
        total_bytes: of all samples; 0: unknown.
        hits: share of the bytes that was in memory when the profile was taken.
        cold_seconds: blocked time of one sample whose bytes are not in memory.
        cold_bytes_per_second: of the storage, with as many readers as the loader has; 0: unknown.
        cold_cpu_seconds: of one sample whose bytes are not in memory: what it costs more than one
            from memory (pages to find, a request, and caches that others have used meanwhile); 0:
            unknown.
    """

    bytes_per_sample: float
    total_bytes: float = 0.0
    hits: float = 1.0
    cold_seconds: float = 0.0
    cold_bytes_per_second: float = 0.0
    cold_cpu_seconds: float = 0.0

    def __post_init__(self) -> None:
        """Refuse what cannot be."""
        for name, most in (
            ("bytes_per_sample", MOST_BYTES),
            ("total_bytes", MOST_BYTES),
            ("hits", 1),
            ("cold_seconds", MOST_SECONDS),
            ("cold_bytes_per_second", MOST_RATE),
            ("cold_cpu_seconds", MOST_SECONDS),
        ):
            hold_number(f"storage.{name}", getattr(self, name), 0, most)


@dataclass(frozen=True, slots=True)
class Transport:
    """What it costs to have a batch made elsewhere, in CPU seconds a byte at either end.

    The defaults are those of the data plane over TCP, sealed, as `benchmarks.transport` has them.
    """

    send_cpu_seconds: float = 0.7e-9
    receive_cpu_seconds: float = 0.6e-9

    def __post_init__(self) -> None:
        """Refuse what cannot be a cost."""
        for name in ("send_cpu_seconds", "receive_cpu_seconds"):
            hold_number(f"transport.{name}", getattr(self, name), 0, 1)


@dataclass(frozen=True, slots=True)
class Profile:
    """One program's input pipeline and training step.

    Attributes:
        program: the script's name.
        batch_size: samples a batch.
        stages: of the pipeline, in their order; costs are per sample, with one core's time where
            nobody else is busy.
        step: seconds of the training for one batch, when batches are there (its inverse is the G of
            DS-Analyzer).
        rate: samples a second as the program ran.
        stalled: share of the time that the training waited for a batch or its copy to a device.
        resources: that the program had.
        step_cores: busy cores of the training process while it trains, without what it receives.
        copy_seconds: of the step, for which copies to a device hold the training's thread up.
        hand_over_seconds: of the training thread, to take a batch that is there.
        spread: batch-making times as shares of their mean, sorted: an empirical distribution.
        others: threads of other programs on these cores that wanted one meanwhile, on average.
        sharing_cpu_seconds: what a sample costs more where a worker makes it, of shared memory and
            handing over, and of its own that it gives back and fills again; the stages have it
            where workers were measured.
        release_seconds: of the training thread, to give back the shared memory of a batch that a
            worker has made; the step has it where workers were measured.
        contention: growth of CPU costs per further busy core (memory, caches, hyperthreads).
        in_turn: the batches go to the workers in turn, as PyTorch deals them; else to who is free.
        storage: what it reads; None: it reads nothing, or that is not known.
        transport: of batches that come from elsewhere.
        causes: share of the time that the training waited for each, or that copies held it up, as
            measured; they sum to ``stalled``.
        model_error: of the model's rate for the resources that the program had, as a share.
        keys: by which parts are found again: ``pipeline``, ``model``, ``machine``.
        notes: what the reader of the profile should know, a sentence each.
        processes: of the training that are like this one; all rates are of one.
        cut: what data workers made of each batch meanwhile, as `limits.cut` calls it; "": nothing,
            or that is not known.
    """

    program: str
    batch_size: int
    stages: tuple[StageCost, ...]
    step: Measured
    rate: Measured
    stalled: float
    resources: Resources
    step_cores: float = 0.0
    hand_over_seconds: float = 0.0
    copy_seconds: float = 0.0
    spread: tuple[float, ...] = (1.0,)
    sharing_cpu_seconds: float = 0.0
    release_seconds: float = 0.0
    contention: float = 0.0
    others: float = 0.0
    in_turn: bool = True
    storage: Storage | None = None
    transport: Transport = field(default_factory=Transport)
    causes: Mapping[str, float] = field(default_factory=dict)
    model_error: float = 0.0
    keys: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    processes: int = 1
    cut: str = ""

    def __post_init__(self) -> None:
        """Refuse what no program can be."""
        hold_whole("batch_size", self.batch_size, 1)
        hold_whole("processes", self.processes, 1, MOST_PROCESSES)
        for name, number, most in (
            ("stages", len(self.stages), MOST_STAGES),
            ("spread", len(self.spread), MOST_QUANTILES),
        ):
            hold_whole(f"number of {name}", number, 1, most)
        hold_number("step.value", self.step.value, LEAST, MOST_SECONDS)
        hold_number("rate.value", self.rate.value, LEAST, MOST_RATE)
        for one in self.spread:
            hold_number("spread", one, 0, MOST_OF_MEAN)
        for cause, share in self.causes.items():
            hold_number(f"causes.{cause}", share, 0, MOST_SHARE)
        for name, least, largest in _FIGURES:
            hold_number(name, getattr(self, name), least, largest)
        if self.copy_seconds and self.copy_seconds >= self.step.value:
            raise ProfileError(
                f"copy_seconds: {self.copy_seconds} must be less than the step, {self.step.value}"
            )

    def with_copies_overlapped(self) -> Profile:
        """As if all copies to a device ran beside the training; what was measured stays."""
        step = self.step
        least = (step.value - self.copy_seconds) / step.value
        return replace(self, step=step.scaled(least), copy_seconds=0.0)

    @property
    def cpu_seconds(self) -> float:
        """Of one sample, all stages."""
        return sum(stage.cpu_seconds for stage in self.stages)

    @property
    def blocked_seconds(self) -> float:
        """Of one sample, all stages."""
        return sum(stage.blocked_seconds for stage in self.stages)

    def to_json(self) -> dict[str, Any]:
        """As a JSON object."""
        content = asdict(self)
        for name in ("step", "rate"):
            content[name] = getattr(self, name).to_json()
        return {"version": VERSION, **content}

    def dumps(self) -> str:
        """As a text that `loads` reads."""
        return json.dumps(self.to_json(), indent=1, allow_nan=False) + "\n"


def loads(text: str) -> Profile:
    """Read a profile.

    Raises:
        ProfileError: it is none; the text names the field and the rule.
    """
    if len(text) > LARGEST_BYTES:
        raise ProfileError(f"a text of {len(text)} characters is no profile")
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as error:  # a number of thousands of digits is the first
        raise ProfileError(
            f"it is no profile, or a part of one ({error}): make it again with penstock profile"
        ) from error
    return from_json(content)


def from_json(content: object) -> Profile:
    """Read a profile from a JSON object; what a later release has added is passed over.

    Raises:
        ProfileError: it is none; the text names the field, the value and the rule.
    """
    if not isinstance(content, dict):
        raise ProfileError("a profile is a JSON object")
    if content.get("version") != VERSION:
        raise ProfileError(
            f"version: {shown(content.get('version'))}; this release reads {VERSION}: profile again"
        )
    values = _known(Profile, content, "the profile")
    try:
        stages = _listed("stages", values["stages"], MOST_STAGES)
        values["stages"] = tuple(_stage(one, f"stages[{at}]") for at, one in enumerate(stages))
        for name in ("step", "rate"):
            values[name] = _make(Measured, values[name], name)
        values["resources"] = _make(Resources, values["resources"], "resources")
        values["program"] = _text("program", values["program"])
    except KeyError as error:
        raise ProfileError(f"the profile has no field {error}: profile again") from error
    if values.get("storage") is not None:
        values["storage"] = _make(Storage, values["storage"], "storage")
    if "transport" in values:
        values["transport"] = _make(Transport, values["transport"], "transport")
    values["spread"] = tuple(_listed("spread", values.get("spread", [1.0]), MOST_QUANTILES))
    values["causes"] = _named("causes", values.get("causes", {}))
    keys = _named("keys", values.get("keys", {}))
    values["keys"] = {name: _text(f"keys.{name}", value) for name, value in keys.items()}
    notes = _listed("notes", values.get("notes", []), MOST_NAMES)
    values["notes"] = tuple(_text("notes", one, LONGEST_NOTE) for one in notes)
    values["cut"] = _text("cut", values.get("cut", ""))
    _flag("in_turn", values.get("in_turn", True))
    return cast("Profile", _make(Profile, values, ""))


def _known(kind: Any, content: object, where: str) -> dict[str, Any]:
    if not isinstance(content, Mapping):
        raise ProfileError(f"{where}: {shown(content)} must be a JSON object")
    return {one.name: content[one.name] for one in fields(kind) if one.name in content}


def _make(kind: Any, content: object, where: str) -> Any:
    """One of the parts; its errors begin with ``where`` it stands."""
    values = _known(kind, content, where)
    needed = (one.name for one in fields(kind) if one.default is one.default_factory is MISSING)
    for name in needed:
        if name not in values:
            raise ProfileError(f"{f'{where}: ' * bool(where)}there is no field {name!r}")
    try:
        return kind(**values)
    except ProfileError as error:
        if not where or str(error).startswith(where):
            raise
        raise ProfileError(f"{where}.{error}") from error


def _stage(content: object, where: str) -> StageCost:
    found: StageCost = _make(StageCost, content, where)
    _text(f"{where}.name", found.name)
    if found.kind not in get_args(Kind):
        kinds = ", ".join(get_args(Kind))
        raise ProfileError(f"{where}.kind: {shown(found.kind)} must be one of {kinds}")
    _flag(f"{where}.movable", found.movable)
    return found


def _listed(name: str, content: object, most: int) -> list[Any] | tuple[Any, ...]:
    if not isinstance(content, list | tuple):
        raise ProfileError(f"{name}: {shown(content)} must be a list")
    hold_whole(f"number of {name}", len(content), 0, most)
    return content


def _named(name: str, content: object) -> dict[str, Any]:
    if not isinstance(content, dict):
        raise ProfileError(f"{name}: {shown(content)} must be a JSON object")
    hold_whole(f"number of {name}", len(content), 0, MOST_NAMES)
    for one in content:
        _text(f"a name in {name}", one)
    return content


def _text(name: str, content: object, longest: int = LONGEST_NAME) -> str:
    """A text for people and databases: neither half characters nor such as move a cursor."""
    if not isinstance(content, str):
        raise ProfileError(f"{name}: {shown(content)} must be a text")
    if len(content) > longest:
        raise ProfileError(f"{name}: a text of {len(content)} characters; at most {longest}")
    if not content.isprintable():
        raise ProfileError(f"{name}: {shown(content)} must be of printable characters")
    return content


def _flag(name: str, content: object) -> None:
    if not isinstance(content, bool):
        raise ProfileError(f"{name}: {shown(content)} must be true or false")
