"""What may go wrong with a container's start, on demand.

The kubelet asks here before each start; :mod:`penstock_cluster.faults` adds and removes the rules.
Every rule names the pods that it touches and how often or how long; a rule that is used up goes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

Json = Mapping[str, Any]


class StartTrouble(StrEnum):
    """What keeps a container from starting properly."""

    DELAY = "delay"
    IMAGE_PULL = "image-pull"
    CONFIG = "config"
    CRASH = "crash"
    NEVER_READY = "never-ready"


@dataclass(frozen=True, slots=True)
class PodChoice:
    """Which pods: all of those fields that are set must match."""

    namespace: str = ""
    name: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)

    def matches(self, pod: Json) -> bool:
        metadata = pod["metadata"]
        if self.namespace and self.namespace != metadata["namespace"]:
            return False
        if self.name and self.name != metadata["name"]:
            return False
        labels = metadata.get("labels") or {}
        return all(labels.get(key) == value for key, value in self.labels.items())


@dataclass(slots=True)
class StartRule:
    """One trouble for the chosen pods."""

    trouble: StartTrouble
    choice: PodChoice
    seconds: float | None = None
    """Of a delay: how long after the container was first due."""
    times: int | None = None
    """How many starts are touched; None: all."""
    exit_code: int = 1
    message: str = ""
    expires_at: float | None = None


class Disturbances:
    """The rules in force."""

    def __init__(self) -> None:
        self._rules: list[StartRule] = []

    def add(self, rule: StartRule) -> None:
        self._rules.append(rule)

    def clear(self) -> None:
        self._rules.clear()

    def find(self, trouble: StartTrouble, pod: Json, now: float) -> StartRule | None:
        """The first rule of this kind for the pod; rules past their time are dropped."""
        self._rules = [
            rule for rule in self._rules if rule.expires_at is None or rule.expires_at > now
        ]
        for rule in self._rules:
            if rule.trouble is trouble and rule.choice.matches(pod):
                return rule
        return None

    def use(self, rule: StartRule) -> None:
        """Count one use; the rule goes with its last."""
        if rule.times is None:
            return
        rule.times -= 1
        if rule.times <= 0 and rule in self._rules:
            self._rules.remove(rule)
