"""What a parameter server reads from its options and its pod, checked in one place."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from penstock.base.quantity import parse_bytes
from penstock.crds import environment as names
from penstock.job.settings import (
    SettingsError,
    check_bounds,
    checked_address,
    pod_identity,
    trainer_address,
)

GRACE_SECONDS: Final = 25.0


@dataclass(frozen=True)
class ServerSettings:
    """How one server runs."""

    trainer: str  # HOST:PORT
    token: str
    rank: int = 0
    incarnation: int = 0
    host: str = "127.0.0.1"
    node: str = ""
    pod: str = ""
    ready_host: str | None = None  # where its readiness shows; None: nowhere
    memory_limit_bytes: int | None = None
    grace_seconds: float = GRACE_SECONDS


def server_settings(
    trainer: str | None = None,
    host: str | None = None,
    memory: str | None = None,
    grace_seconds: float = GRACE_SECONDS,
    environ: Mapping[str, str] = os.environ,
) -> ServerSettings:
    """The settings of a server: its options, and where they are not given its pod's environment.

    Raises:
        SettingsError: a value cannot be used, or there is no trainer.
    """
    check_bounds(grace_seconds=grace_seconds)
    address = trainer_address(environ) if trainer is None else checked_address("--trainer", trainer)
    if address is None:
        raise SettingsError(
            f"--trainer: none given, and {names.TRAINER_ADDRESS} is not set: a parameter server "
            "has to be told whose it is"
        )
    try:
        limit = None if memory is None else parse_bytes(memory)
    except ValueError as error:
        raise SettingsError(f"--memory: {error}") from error
    if limit is not None and limit <= 0:
        raise SettingsError(f"--memory: {memory}; it must be more than 0")
    identity = pod_identity(environ)
    return ServerSettings(
        trainer=address,
        token=identity.token,
        rank=identity.rank,
        incarnation=identity.incarnation,
        host=host or identity.ip,
        node=identity.node,
        pod=identity.pod,
        ready_host=environ.get(names.POD_IP),
        memory_limit_bytes=limit,
        grace_seconds=grace_seconds,
    )
