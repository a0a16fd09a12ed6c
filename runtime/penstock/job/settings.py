"""What a trainer, an agent and a session read from their environment, checked in one place."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from penstock.base import ports
from penstock.base.enums import OnHang, Role
from penstock.crds import environment as names
from penstock.job.identities import PodIdentity

MOST_CHECK_SHARE: Final = 0.1


class SettingsError(Exception):
    """An environment variable or option that cannot be used; names it, its value and the rule."""


def pod_identity(environ: Mapping[str, str] = os.environ) -> PodIdentity:
    """The pod's identity; outside a cluster everything has a default.

    Raises:
        SettingsError: a number is none, or the role is unknown.
    """
    return PodIdentity(
        job=environ.get(names.JOB_NAME, "job"),
        namespace=environ.get(names.JOB_NAMESPACE, "default"),
        uid=environ.get(names.JOB_UID, ""),
        role=environ.get(names.ROLE, Role.WORKER.value),
        rank=_count(environ, names.RANK),
        incarnation=_count(environ, names.INCARNATION),
        pod=environ.get(names.POD_NAME, ""),
        ip=environ.get(names.POD_IP, "127.0.0.1"),
        node=environ.get(names.NODE_NAME, ""),
        token=environ.get(names.JOB_TOKEN, ""),
        share_token=environ.get(names.SHARE_TOKEN, ""),
    )


def trainer_address(environ: Mapping[str, str] = os.environ) -> str | None:
    """HOST:PORT of the job's trainer; None outside a job.

    Raises:
        SettingsError: it has another form.
    """
    address = environ.get(names.TRAINER_ADDRESS, "")
    return checked_address(names.TRAINER_ADDRESS, address) if address else None


def checked_address(name: str, address: str) -> str:
    """An address that was given under a name.

    Raises:
        SettingsError: It is not HOST:PORT.
    """
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 65536:
        raise SettingsError(f"{name}: {address!r}; expected HOST:PORT")
    return address


_BOUNDS: Final[dict[str, tuple[float, float]]] = {
    "port": (0, 65535),
    "workers": (1, 16384),
    "servers": (1, 4096),
    "min_workers": (1, 16384),
    "slots_per_step": (1, 1 << 16),
    "lease_seconds": (1, 3600),
    "hang_seconds": (1, 7 * 86400),
    "on_hang_after_seconds": (1, 86400),
    "grace_seconds": (0, 86400),
}
_OPTIONS: Final = {"slots_per_step": "--slots"}


def check_bounds(**options: float | None) -> None:
    """Refuse a number that no job can mean. None passes: it was not given.

    Raises:
        SettingsError: names the option, its value and the bounds.
    """
    for name, value in options.items():
        low, high = _BOUNDS[name]
        if value is not None and not low <= value <= high:  # not a number is in no bounds either
            option = _OPTIONS.get(name, f"--{name.replace('_', '-')}")
            raise SettingsError(f"{option}: {value}; it must be at least {low} and at most {high}")


@dataclass(frozen=True)
class TrainerSettings:
    """How one trainer runs.

    What the job says about itself is in `penstock.trainer.cluster.job_view`.

    Raises:
        SettingsError: a number is out of bounds.
    """

    identity: PodIdentity
    host: str = "127.0.0.1"
    port: int = ports.TRAINER
    state_dir: Path | None = None
    brain_url: str | None = None
    brain_authority: str | None = None  # certificates in PEM; None: whom the image trusts
    brain_token_file: Path | None = None
    kubernetes_token_file: Path | None = None
    workers: int | None = None  # outside a cluster: how many to wait for; None: whoever joins
    servers: int | None = None  # the same of parameter servers
    min_workers: int = 1
    slots_per_step: int | None = None
    lease_seconds: float | None = None
    hang_seconds: float | None = None
    on_hang: OnHang | None = None  # outside a cluster: what failurePolicy.onHang says in a job
    on_hang_after_seconds: float | None = None  # the same of onHangAfterSeconds
    skip_bad: bool = False  # outside a cluster: what input.skipBad says in a job
    independent: bool = False  # outside a cluster: what independentWorkers says in a job
    static_shares: bool = False  # divide every step evenly, for comparison

    def __post_init__(self) -> None:
        check_bounds(
            port=self.port,
            workers=self.workers,
            servers=self.servers,
            min_workers=self.min_workers,
            slots_per_step=self.slots_per_step,
            lease_seconds=self.lease_seconds,
            hang_seconds=self.hang_seconds,
            on_hang_after_seconds=self.on_hang_after_seconds,
        )


def trainer_settings(environ: Mapping[str, str] = os.environ) -> TrainerSettings:
    """The trainer's settings as far as the environment gives them.

    Raises:
        SettingsError: a value cannot be used.
    """
    inside = names.POD_IP in environ
    return TrainerSettings(
        identity=pod_identity(environ),
        host=environ.get(names.POD_IP, "127.0.0.1") if inside else "127.0.0.1",
        state_dir=_path(environ, names.STATE_DIR),
        brain_url=environ.get(names.BRAIN_URL) or None,
        brain_authority=environ.get(names.BRAIN_CA) or None,
        brain_token_file=_path(environ, names.BRAIN_TOKEN_FILE),
        kubernetes_token_file=_path(environ, names.KUBERNETES_TOKEN_FILE),
    )


def checkpoint_dir(environ: Mapping[str, str] = os.environ) -> Path | None:
    """Where a training script keeps its checkpoints, if the job says so."""
    return _path(environ, names.CHECKPOINT_DIR)


def check_share(environ: Mapping[str, str] = os.environ) -> float | None:
    """The share of the time for checks of machines between steps; None: there are none.

    Raises:
        SettingsError: it is no number, or out of bounds.
    """
    said = environ.get(names.NODE_CHECK_SHARE, "")
    if not said:
        return None
    try:
        share = float(said)
    except ValueError:
        share = 0.0
    if not 0 < share <= MOST_CHECK_SHARE:  # not a number is in no bounds either
        raise SettingsError(
            f"{names.NODE_CHECK_SHARE}: {said!r}; it must be a number above 0 and at most "
            f"{MOST_CHECK_SHARE}, or absent for no checks"
        )
    return share


def replica_pods(environ: Mapping[str, str] = os.environ) -> int:
    """Of how many pods a replica group is.

    Raises:
        SettingsError: it is no number.
    """
    return max(1, _count(environ, names.REPLICA_PODS))


def step_log(environ: Mapping[str, str] = os.environ) -> Path | None:
    """The folder in which a session logs its committed steps, if anybody wants to know."""
    return _path(environ, names.STEP_LOG)


def _path(environ: Mapping[str, str], name: str) -> Path | None:
    value = environ.get(name, "")
    return Path(value) if value else None


def _count(environ: Mapping[str, str], name: str) -> int:
    value = environ.get(name, "0")
    if not value.isdecimal():
        raise SettingsError(f"{name}: {value!r}; expected a decimal number of at least 0")
    return int(value)
