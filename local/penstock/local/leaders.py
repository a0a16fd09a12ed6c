"""Who leads in a cluster already: `penstock up --external` starts no control plane beside it.

The Leases of controller and scheduler are looked for in every namespace, since each release chose
where its own lie. Whether a holder lives is seen by its renewing: no clock is trusted, and a Lease
that a dead process left behind holds nobody up for longer than it lasts.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from penstock.base.shards import lease_names
from penstock.crds.group import SYSTEM_NAMESPACE
from penstock.local.control_plane.supervisor import StartError

CONTROLLER: Final = "controller"
SCHEDULER: Final = "scheduler"
LONGEST_SECONDS: Final = 30.0
"""Most time to wait for a sign of life, whatever a Lease says of its own length."""

_POLL_SECONDS: Final = 0.5
_REQUEST_SECONDS: Final = 15.0
_SPARE_SECONDS: Final = 1.0
_FORBIDDEN: Final = 403


@dataclass(frozen=True, slots=True)
class Held:
    """A Lease that has a holder."""

    component: str
    namespace: str
    name: str
    holder: str
    renewed: str
    seconds: float
    """How long it lasts without being renewed."""

    @property
    def key(self) -> tuple[str, str, str]:
        """What stays the same while one holder keeps it."""
        return self.namespace, self.name, self.holder


async def refuse_beside_another(kubeconfig: Path) -> None:
    """Return if nobody leads in the cluster; raises StartError where somebody does."""
    living = await asyncio.to_thread(_first_that_lives, kubeconfig)
    if living is not None:
        raise StartError(
            f"a {living.component} already leads in this cluster: {living.holder} (Lease "
            f"{living.namespace}/{living.name}, renewed just now); two would fight over every "
            f"job: stop that one first, with `penstock down` where it was started or `helm "
            f"uninstall penstock --namespace {living.namespace}`"
        )


def _first_that_lives(kubeconfig: Path) -> Held | None:
    """The first holder that renews its Lease, or None once none can be alive any more."""
    from kubernetes import client, config
    from kubernetes.client.exceptions import ApiException
    from urllib3.exceptions import HTTPError

    try:
        # The library is untyped here.
        with config.new_client_from_config(str(kubeconfig)) as connection:  # type: ignore[no-untyped-call]
            leases: Any = client.CoordinationV1Api(connection)
            began = time.monotonic()
            first = {held.key: held for held in _held(leases, _names())}
            waiting = dict(first)
            while waiting:
                time.sleep(_POLL_SECONDS)
                past = time.monotonic() - began
                names = {(one.component, one.name) for one in waiting.values()}
                now = {held.key: held for held in _held(leases, sorted(names))}
                for key, before in list(waiting.items()):
                    found = now.get(key)
                    if found is not None and found.renewed != before.renewed:
                        return found
                    lasts = min(before.seconds, LONGEST_SECONDS) + _SPARE_SECONDS
                    if found is None or past > lasts:
                        del waiting[key]
    except (ApiException, HTTPError, OSError, config.ConfigException) as error:
        raise StartError(f"cannot see who leads in the cluster of {kubeconfig}: {error}") from error
    return None


def _names() -> list[tuple[str, str]]:
    """Every Lease that a component may hold: of the controller, one for each shard."""
    return [(CONTROLLER, name) for name in lease_names()] + [(SCHEDULER, "penstock-scheduler")]


def _held(leases: Any, names: Iterable[tuple[str, str]]) -> Iterable[Held]:
    for component, name in names:
        for lease in _named(leases, name):
            spec = lease.spec
            if spec is not None and spec.holder_identity:
                yield Held(
                    component,
                    lease.metadata.namespace,
                    name,
                    spec.holder_identity,
                    str(spec.renew_time),
                    float(spec.lease_duration_seconds or LONGEST_SECONDS),
                )


def _named(leases: Any, name: str) -> list[Any]:
    """The Leases of a name, in all namespaces or, for who may not see those, where they lie now."""
    from kubernetes.client.exceptions import ApiException

    query = {"field_selector": f"metadata.name={name}", "_request_timeout": _REQUEST_SECONDS}
    try:
        found: list[Any] = leases.list_lease_for_all_namespaces(**query).items
    except ApiException as error:
        if error.status != _FORBIDDEN:
            raise
        found = leases.list_namespaced_lease(SYSTEM_NAMESPACE, **query).items
    return found
