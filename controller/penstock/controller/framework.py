"""kopf as far as the controller uses it: a watch of ElasticJobs and of Scales, and nothing else.

Only ``on.event`` handlers, which neither add finalizers nor write annotations, and which do nothing
but put what they are shown into the store. kopf reports no deletion that happened while its watch
was broken, so the controller also compares complete lists now and then (`Operator.resync`).
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Final

import kopf
from kubernetes.aio.client import Configuration

from penstock.base.shards import ALL_JOBS, Share
from penstock.controller.store import Store
from penstock.crds.group import ELASTICJOB_PLURAL, GROUP, SCALE_PLURAL, VERSION
from penstock.kube.connection import bearer_token

logger = logging.getLogger(__name__)

REFUSED_PAUSE_SECONDS: Final = 2.0
"""How long after a token was refused it is tried again, or the one in its place."""


def make_registry(
    store: Store,
    configuration: Configuration,
    listed: Callable[[], None],
    share: Share = ALL_JOBS,
) -> kopf.OperatorRegistry:
    """Handlers that feed a store.

    Args:
        store: where events go.
        configuration: the address and credentials of the API server.
        listed: called for every object of a list with which kopf begins a watch anew.
        share: of whose jobs events are handled.
    """
    registry = kopf.OperatorRegistry()

    async def on_job(event: Any, **_: Any) -> None:
        found = event["object"]
        if event["type"] == "DELETED":
            metadata = found["metadata"]
            store.drop_job((metadata["namespace"], metadata["name"]), metadata["uid"])
        else:
            store.put_job(found)
        if event["type"] is None:
            listed()

    async def on_scale(event: Any, **_: Any) -> None:
        found = event["object"]
        if event["type"] == "DELETED":
            metadata = found["metadata"]
            job = ((found.get("spec") or {}).get("jobRef") or {}).get("name", "")
            store.drop_scale((metadata["namespace"], job), metadata["name"], metadata["uid"])
        else:
            store.put_scale(found)
        if event["type"] is None:
            listed()

    # Of a list every object is handled, since each says that there was a list.
    def our_job(type: str | None, namespace: str | None, name: str | None, **_: Any) -> bool:  # noqa: A002  kopf's name
        return type is None or share.owns(namespace or "", name or "")

    def our_scale(type: str | None, namespace: str | None, spec: Any, **_: Any) -> bool:  # noqa: A002  kopf's name
        job = (spec.get("jobRef") or {}).get("name", "")
        return type is None or share.owns(namespace or "", job)

    credentials = Credentials(configuration)

    async def on_login(**_: Any) -> kopf.ConnectionInfo:
        return await credentials.renew()

    events = partial(kopf.on.event, GROUP, VERSION, registry=registry)
    events(ELASTICJOB_PLURAL, when=our_job)(on_job)
    events(SCALE_PLURAL, when=our_scale)(on_scale)
    kopf.on.login(registry=registry)(on_login)
    return registry


class Credentials:
    """What kopf is given to log in with, for as long as the API server takes none.

    A token may be refused some time before the one that replaces it is there, or by a server that
    cannot check it just now. kopf takes no credentials again that were refused once: it gives up
    its watches for ever. So what it is given is always another one, after a pause if the token is
    the same.
    """

    def __init__(self, configuration: Configuration) -> None:
        self._configuration = configuration
        self._given: kopf.ConnectionInfo | None = None

    async def renew(self) -> kopf.ConnectionInfo:
        """The credentials of the moment, different from those before."""
        found, given = await login(self._configuration), self._given
        if given is not None and found.token == given.token:
            logger.warning(
                "the API server refused our credentials, and there are no others: trying again "
                "in %g s",
                REFUSED_PAUSE_SECONDS,
            )
            await asyncio.sleep(REFUSED_PAUSE_SECONDS)
            found = await login(self._configuration)
        # Of one set of credentials the priority means nothing.
        times = 0 if given is None else given.priority + 1
        self._given = dataclasses.replace(found, priority=times)
        return self._given


async def login(configuration: Configuration) -> kopf.ConnectionInfo:
    """The credentials of the moment: kopf asks at the start and when the server refused them."""
    return kopf.ConnectionInfo(
        server=configuration.host,
        ca_path=configuration.ssl_ca_cert,
        insecure=not configuration.verify_ssl,
        token=await bearer_token(configuration) or None,
        certificate_path=configuration.cert_file,
        private_key_path=configuration.key_file,
        proxy_url=configuration.proxy,
    )


class _NoDiffs(kopf.DiffBaseStorage):
    """Keeps nothing to compare an object with.

    kopf copies every object that it shows to a handler, to find what has changed of it. Handlers of
    plain events are not told; the copies were a fifth of what the controller did in a rush of jobs.
    """

    def build(
        self, *, body: kopf.Body, extra_fields: Iterable[kopf.FieldSpec] | None = None
    ) -> kopf.BodyEssence:
        return kopf.BodyEssence()

    def fetch(self, *, body: kopf.Body) -> kopf.BodyEssence | None:
        return None

    def store(self, *, body: kopf.Body, patch: kopf.Patch, essence: kopf.BodyEssence) -> None:
        """Nothing is stored: only handlers of changes would read it."""


def make_settings() -> kopf.OperatorSettings:
    """kopf without peering, events, finalizers, diffs and its watch of namespaces and CRDs."""
    settings = kopf.OperatorSettings()
    settings.persistence.diffbase_storage = _NoDiffs()
    settings.peering.standalone = True
    settings.posting.enabled = False
    settings.scanning.disabled = True
    settings.watching.server_timeout = 240
    settings.watching.client_timeout = 300
    settings.watching.connect_timeout = 10
    settings.watching.chunk_size = 500
    settings.queueing.idle_timeout = 1
    settings.queueing.exit_timeout = 0.5
    settings.process.ultimate_exiting_timeout = None
    return settings


async def watch(
    registry: kopf.OperatorRegistry,
    namespace: str | None,
    stop: asyncio.Event,
    ready: asyncio.Event,
) -> None:
    """Watch until told to stop."""
    logging.getLogger("kopf").setLevel(logging.WARNING)
    await kopf.operator(
        registry=registry,
        settings=make_settings(),
        standalone=True,
        clusterwide=namespace is None,
        namespaces=[] if namespace is None else [namespace],
        stop_flag=stop,
        ready_flag=ready,
    )
