"""The Brain's configuration: one YAML or JSON file, typed, in which an unknown key is an error.

Every value has a default that suits a cluster; a demonstration on one machine makes the intervals
shorter. Times are seconds, sizes bytes unless a quantity says otherwise.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import Field, ValidationError
from pydantic_core import ErrorDetails

from penstock.base import quantity
from penstock.base.enums import Stage, Strategy
from penstock.base.fields import PositiveQuantity
from penstock.brain.registry import AlgorithmSettings
from penstock.brain.settings import Settings
from penstock.brain.stages import DEFAULT_POLICIES, Policy
from penstock.brain.symptoms import SymptomSettings

Positive = Annotated[float, Field(gt=0, le=10**9)]


class ConfigurationError(Exception):
    """The configuration cannot be used; one line for each problem: field, value, rule."""


class AdministratorSettings(Settings):
    """When a job is looked at (DLRover, section 4.3)."""

    tick_seconds: Positive = 1.0
    """How often the administrators look at their jobs."""
    enough_steps: Annotated[int, Field(ge=1)] = 100
    """Steps under one plan after which it has been measured."""
    enough_seconds: Positive = 60.0
    """Time under one plan after which it has been measured, however few the steps."""
    interval_seconds: Positive = 60.0
    """How often a measured job is planned again."""
    servers_interval_seconds: Positive = 300.0
    """The same after a plan that changed the parameter servers."""
    reaction_seconds: Positive = 15.0
    """Least time between two plans for what was seen in the samples: a straggler, a hot server."""
    lost_after_seconds: Positive = 900.0
    """A job that has been silent for so long is Lost."""
    lease_seconds: Positive = 9.0
    """For how long one of several Brains holds a job without renewing: so long after the death of a
    Brain, and a few seconds more, the others administer its jobs."""
    concurrency: Annotated[int, Field(ge=1, le=256)] = 3
    """Jobs that are planned at the same time; requests are served beside them."""


class ExecutorSettings(Settings):
    """The processes in which algorithms run."""

    processes: Annotated[int, Field(ge=1, le=64)] = 2
    """How many; a change of the file takes effect while the Brain runs."""
    timeout_seconds: Positive = 10.0
    """Most time for one call of one algorithm."""
    memory_bytes: Annotated[int, Field(ge=128 * 1024**2)] = 1024**3
    """Most memory of one process."""
    calls_per_process: Annotated[int, Field(ge=1)] = 10_000
    """Calls after which a process is replaced, in case a plugin leaks."""


class RetentionSettings(Settings):
    """How long what is kept: this bounds the store."""

    raw_seconds: Annotated[float, Field(ge=1800)] = 2 * 3600.0
    """Samples as they came."""
    minute_seconds: Positive = 7 * 86_400.0
    """Averages over one minute."""
    ten_minute_seconds: Positive = 90 * 86_400.0
    """Averages over ten minutes, and finished jobs with their plans."""
    run_seconds: Positive = 7 * 86_400.0
    """Records of single runs of algorithms."""
    audit_seconds: Positive = 365 * 86_400.0
    """Who changed what."""
    idempotency_seconds: Positive = 86_400.0
    """How long an idempotency key is remembered."""
    sweep_seconds: Positive = 60.0
    """How often roll-ups are made and old rows deleted."""


class LimitSettings(Settings):
    """What no plan may exceed, whatever the job says."""

    pod_cpu: PositiveQuantity = "32"
    """Most CPU of one pod."""
    pod_memory: PositiveQuantity | None = None
    """Most memory of one pod."""
    core_milli_cpu: Annotated[int, Field(ge=10, le=1000)] = 1000
    """What algorithms take for one core: less, where whole cores are too many for the machine."""

    @property
    def pod_milli_cpu(self) -> int:
        """`pod_cpu` in milli-cores."""
        return quantity.parse_milli_cpu(self.pod_cpu)

    @property
    def pod_memory_bytes(self) -> int | None:
        """`pod_memory` in bytes."""
        return None if self.pod_memory is None else quantity.parse_bytes(self.pod_memory)


class PriceSettings(Settings):
    """What an hour costs, in any one currency: all three, as a bill without one of them is none."""

    currency: Annotated[str, Field(min_length=1, max_length=12, pattern=r"^[^\x00-\x20]+$")] = "USD"
    """How amounts are marked."""
    core_hour: Annotated[float, Field(ge=0, le=10**6)]
    """Of one core that a pod requested."""
    gib_hour: Annotated[float, Field(ge=0, le=10**6)]
    """Of one GiB of memory that a pod requested."""
    accelerator_hour: Annotated[float, Field(ge=0, le=10**6)]
    """Of one accelerator that a pod has."""


class ApiToken(Settings):
    """A token that is accepted beside Kubernetes' own; only its hash is kept."""

    name: Annotated[str, Field(min_length=1, max_length=253)]
    """Who uses it: the name in the audit."""
    sha256: Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
    """Hash of the token, as ``penstock brain token`` prints it."""
    access: Literal["read", "write", "admin"] = "read"
    """read; write: also register jobs and override plans; admin: also configure algorithms."""
    namespaces: Annotated[list[str], Field(max_length=256)] | None = None
    """The namespaces whose jobs it may touch; absent: all."""


class BrainSettings(Settings):
    """Everything that a Brain can be told."""

    administrator: AdministratorSettings = AdministratorSettings()
    executor: ExecutorSettings = ExecutorSettings()
    retention: RetentionSettings = RetentionSettings()
    limits: LimitSettings = LimitSettings()
    symptoms: SymptomSettings = SymptomSettings()
    policies: Mapping[Strategy, Mapping[Stage, tuple[str, ...]]] = Field(default_factory=dict)
    """Which algorithms to ask at each stage, in order, where not the usual ones."""
    algorithms: Mapping[str, AlgorithmSettings] = Field(default_factory=dict)
    """Settings of single algorithms."""
    prices: PriceSettings | None = None
    """What is paid for pods; absent: costs are told in seconds only."""
    tokens: Annotated[list[ApiToken], Field(max_length=1000)] = Field(default_factory=list)

    public_url: Annotated[str, Field(pattern=r"^(https?://[^/?#\s@]+)?$", max_length=300)] = ""
    """What browsers call the service, such as https://brain.example.org, where something stands
    before it: the login's cookie is then for HTTPS only."""

    def policy(self, strategy: Strategy) -> Policy:
        """The policy of a strategy: the usual one with the stages named here replaced."""
        own = self.policies.get(strategy, {})
        return Policy(stages={**DEFAULT_POLICIES[strategy].stages, **own})


def load(path: Path | None, overrides: Mapping[str, Any] | None = None) -> BrainSettings:
    """Read the file, lay `overrides` (dotted names) over it, and check the whole.

    Raises:
        ConfigurationError: The configuration cannot be used.
    """
    content: Any = {}
    origin = "options" if path is None else str(path)
    if path is not None:
        try:
            content = yaml.safe_load(path.read_text(encoding="utf-8"))
        except OSError as error:
            raise ConfigurationError(f"{path}: cannot be read: {error.strerror}") from error
        except (yaml.YAMLError, UnicodeDecodeError) as error:
            raise ConfigurationError(f"{path}: is neither YAML nor JSON: {error}") from error
        content = {} if content is None else content
        if not isinstance(content, dict):
            raise ConfigurationError(f"{path}: must be a mapping at the top, not {content!r:.40}")
    for name, value in (overrides or {}).items():
        _set(content, name.split("."), value)
    try:
        return BrainSettings.model_validate(content)
    except ValidationError as error:
        lines = [f"{origin}: {_said(problem)}" for problem in error.errors()]
        raise ConfigurationError("\n".join(lines)) from error


def _said(problem: ErrorDetails) -> str:
    """Field, value and rule; of a field that is missing pydantic gives what is round it."""
    field = ".".join(str(part) for part in problem["loc"]) or "the file"
    if problem["type"] == "missing":
        return f"{field} is missing, and has no default"
    return f"{field} = {problem['input']!r:.60}: {problem['msg']}"


def _set(content: dict[str, Any], names: list[str], value: Any) -> None:
    for name in names[:-1]:
        inner = content.setdefault(name, {})
        if not isinstance(inner, dict):
            return  # the model will say what is wrong with it
        content = inner
    content[names[-1]] = value
