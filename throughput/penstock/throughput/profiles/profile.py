"""What was measured of one program on one machine, and its form as JSON."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, Final

from penstock.throughput.errors import ProfileError
from penstock.throughput.profiles.measured import Measured
from penstock.throughput.profiles.resources import Resources
from penstock.throughput.profiles.stage import StageCost

VERSION: Final = 1
LARGEST_BYTES: Final = 4 << 20
"""A profile is a few kilobytes; a text that is larger than this is none."""


@dataclass(frozen=True, slots=True)
class Storage:
    """What the program reads.

    Attributes:
        bytes_per_sample: that its dataset reads, from memory or not.
        total_bytes: of all samples; 0: unknown.
        hits: share of the bytes that was in memory when the profile was taken.
        cold_seconds: blocked time of one sample whose bytes are not in memory.
        cold_bytes_per_second: of the storage, with as many readers as the loader has; 0: unknown.
        cold_cpu_seconds: of one sample whose bytes are not in memory: what its read costs more than
            one from memory (pages to find, a request, a switch to others and back); 0: unknown.
    """

    bytes_per_sample: float
    total_bytes: float = 0.0
    hits: float = 1.0
    cold_seconds: float = 0.0
    cold_bytes_per_second: float = 0.0
    cold_cpu_seconds: float = 0.0

    def __post_init__(self) -> None:
        """Refuse what cannot be."""
        for name in (
            "bytes_per_sample",
            "total_bytes",
            "cold_seconds",
            "cold_bytes_per_second",
            "cold_cpu_seconds",
        ):
            if not 0 <= getattr(self, name) < math.inf:
                raise ProfileError(f"storage.{name}: {getattr(self, name)} must be 0 or more")
        if not 0 <= self.hits <= 1:
            raise ProfileError(f"storage.hits: {self.hits} must be between 0 and 1")


@dataclass(frozen=True, slots=True)
class Transport:
    """What it costs to have a batch made elsewhere, in CPU seconds a byte at either end.

    The defaults are those of the data plane over TCP, sealed, as `benchmarks.transport` has them.
    """

    send_cpu_seconds: float = 0.7e-9
    receive_cpu_seconds: float = 0.6e-9


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
            handing over; the stages have it where workers were measured.
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
        if self.batch_size < 1:
            raise ProfileError(f"batch_size: {self.batch_size} must be at least 1")
        if self.processes < 1:
            raise ProfileError(f"processes: {self.processes} must be at least 1")
        if not self.stages:
            raise ProfileError("stages: there must be at least one")
        if self.step.value <= 0:
            raise ProfileError(f"step: {self.step.value} s must be more than 0")
        if not self.spread or min(self.spread) < 0:
            raise ProfileError("spread: at least one quantile, none less than 0")
        if not 0 <= self.stalled <= 1:
            raise ProfileError(f"stalled: {self.stalled} must be between 0 and 1")
        if not abs(self.model_error) < math.inf:
            raise ProfileError(f"model_error: {self.model_error} must be a number")
        for name in (
            "step_cores",
            "hand_over_seconds",
            "copy_seconds",
            "sharing_cpu_seconds",
            "contention",
            "others",
        ):
            if not 0 <= getattr(self, name) < math.inf:
                raise ProfileError(f"{name}: {getattr(self, name)} must be 0 or more")

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
    except (json.JSONDecodeError, RecursionError) as error:
        raise ProfileError(
            f"it is no profile, or a part of one ({error}): make it again with penstock profile"
        ) from error
    return from_json(content)


def from_json(content: object) -> Profile:
    """Read a profile from a JSON object; what a later release has added is passed over.

    Raises:
        ProfileError: it is none.
    """
    if not isinstance(content, dict):
        raise ProfileError("a profile is a JSON object")
    if content.get("version") != VERSION:
        raise ProfileError(
            f"version: {content.get('version')!r}; this release reads {VERSION}: profile again"
        )
    values = _known(Profile, content, "the profile")
    try:
        stages = [_make(StageCost, one, f"stages[{i}]") for i, one in enumerate(values["stages"])]
        values["stages"] = tuple(stages)
        for name in ("step", "rate"):
            values[name] = _make(Measured, values[name], name)
        values["resources"] = _make(Resources, values["resources"], "resources")
        if values.get("storage") is not None:
            values["storage"] = _make(Storage, values["storage"], "storage")
        if "transport" in values:
            values["transport"] = _make(Transport, values["transport"], "transport")
        values["spread"] = tuple(float(one) for one in values.get("spread", (1.0,)))
        for name in ("causes", "keys"):
            if not isinstance(values.get(name, {}), dict):
                raise ProfileError(f"{name}: {str(values[name])[:80]!r} is no JSON object")
        values["cut"] = str(values.get("cut", ""))
        causes = values.get("causes", {})
        values["causes"] = {str(name): float(share) for name, share in causes.items()}
        values["notes"] = tuple(str(one) for one in values.get("notes", ()))
        return Profile(**values)
    except KeyError as error:
        raise ProfileError(f"the profile has no field {error}") from error
    except ProfileError:
        raise
    except (TypeError, ValueError, OverflowError) as error:
        raise ProfileError(f"the profile has a field of the wrong type: {error}") from error


def _known(kind: Any, content: Mapping[str, Any], where: str) -> dict[str, Any]:
    if not isinstance(content, Mapping):
        raise ProfileError(f"{where}: {str(content)[:80]!r} is no JSON object")
    return {one.name: content[one.name] for one in fields(kind) if one.name in content}


def _make(kind: Any, content: Any, where: str) -> Any:
    try:
        return kind(**_known(kind, content, where))
    except TypeError as error:
        raise ProfileError(f"{where}: {error}") from error
