"""An ElasticJob from the flags of ``penstock submit``: pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, Final

from penstock.base.enums import Optimize, Strategy
from penstock.cli.exits import UsageError
from penstock.crds.group import API_VERSION, ELASTICJOB_KIND

Json = dict[str, Any]
AGENT: Final = ("penstock", "run", "--")


@dataclass(frozen=True, kw_only=True)
class Flags:
    """What a person said of a job without writing YAML."""

    name: str = ""
    image: str = ""
    command: Sequence[str] = ()
    strategy: Strategy = Strategy.ALL_REDUCE
    optimize: Optimize = Optimize.AUTO
    workers: int | None = None
    min_workers: int | None = None
    max_workers: int | None = None
    data_workers: int | None = None
    limits: Sequence[str] = ()
    requests: Sequence[str] = ()
    environment: Sequence[str] = ()
    model: str = ""
    dataset: str = ""

    def given(self) -> list[str]:
        """The options that say something, as they are spelt."""
        return [
            _SPELT.get(each.name, f"--{each.name.replace('_', '-')}")
            for each in fields(self)
            if (value := getattr(self, each.name)) != each.default and value != []
        ]

    def missing(self) -> list[str]:
        """What a job cannot do without."""
        given = self.given()
        return [each for each in ("--name", "--image", _SPELT["command"]) if each not in given]


_SPELT: Final = {
    "command": "-- COMMAND",
    "requests": "--request",
    "limits": "--limit",
    "environment": "--env",
}


def manifest(flags: Flags) -> Json:
    """The job.

    Raises:
        UsageError: A NAME=VALUE that is none.
    """
    container: Json = {"name": "main", "image": flags.image, "command": [*AGENT, *flags.command]}
    if flags.environment:
        pairs = _pairs("--env", flags.environment)
        container["env"] = [{"name": name, "value": value} for name, value in pairs.items()]
    if flags.requests:
        container["resources"] = _requirements(_pairs("--request", flags.requests))
    worker: Json = {}
    for field_name, number in (
        ("replicas", flags.workers),
        ("minReplicas", flags.min_workers),
        ("maxReplicas", flags.max_workers),
    ):
        if number is not None:
            worker[field_name] = number
    worker["template"] = {"spec": {"containers": [container]}}
    roles: Json = {"worker": worker}
    if flags.data_workers is not None:
        roles["dataWorker"] = {"replicas": flags.data_workers}
    spec: Json = {"strategy": flags.strategy.value}
    if flags.optimize is not Optimize.AUTO:
        spec["optimize"] = flags.optimize.value
    if flags.limits:
        spec["resourceLimits"] = _pairs("--limit", flags.limits)
    named = {"model": flags.model, "dataset": flags.dataset}
    if signature := {name: value for name, value in named.items() if value}:
        spec["signature"] = signature
    spec["replicaSpecs"] = roles
    return {
        "apiVersion": API_VERSION,
        "kind": ELASTICJOB_KIND,
        "metadata": {"name": flags.name},
        "spec": spec,
    }


def _requirements(requests: dict[str, str]) -> Json:
    # Accelerators and other extended resources are granted whole, as limits.
    extended = {name: amount for name, amount in requests.items() if "/" in name}
    return {"requests": requests, **({"limits": extended} if extended else {})}


def _pairs(option: str, given: Sequence[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for each in given:
        name, sign, value = each.partition("=")
        if not sign or not name:
            raise UsageError(f"{option} {each}: NAME=VALUE expected")
        if name in found:
            raise UsageError(f"{option} {each}: {name} was given before")
        found[name] = value
    return found
