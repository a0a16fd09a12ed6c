"""``kubernetes.aio``, unmodified: typed and dynamic API, watches, leases and elections."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import pytest
from kubernetes.aio import client, config, dynamic, watch
from kubernetes.aio.client.exceptions import ApiException
from kubernetes.aio.leaderelection import electionconfig, leaderelection
from kubernetes.aio.leaderelection.resourcelock.leaselock import LeaseLock

from cluster.tests.clients.notes import API_VERSION, GROUP, PLURAL, VERSION, crd, note
from penstock_cluster.apiserver import ServeOptions
from penstock_cluster.testing import RunningCluster, api_server


@pytest.fixture(scope="module")
def cluster() -> Iterator[RunningCluster]:
    with api_server(serving=ServeOptions(tls=True)) as running:
        running.apply(crd())
        yield running


@asynccontextmanager
async def connected(cluster: RunningCluster) -> AsyncIterator[client.ApiClient]:
    settings = client.Configuration()
    await config.load_kube_config(str(cluster.kubeconfig_path), client_configuration=settings)
    async with client.ApiClient(settings) as api:
        yield api
    # aiohttp ends TLS connections in the background; they need a moment of the loop.
    await asyncio.sleep(0.25)


def test_objects_are_written_read_and_refused(cluster: RunningCluster) -> None:
    async def work() -> None:
        async with connected(cluster) as api:
            core = client.CoreV1Api(api)
            body = client.V1ConfigMap(metadata=client.V1ObjectMeta(name="aio"), data={"a": "1"})
            created = await core.create_namespaced_config_map("default", body)
            assert created.metadata.uid
            with pytest.raises(ApiException) as caught:
                await core.create_namespaced_config_map("default", body)
            assert caught.value.status == 409
            found = await core.list_namespaced_config_map(
                "default", field_selector="metadata.name=aio"
            )
            assert [item.data for item in found.items] == [{"a": "1"}]
            await core.delete_namespaced_config_map("aio", "default")

    asyncio.run(work())


def test_a_watch_delivers_every_change_in_order(cluster: RunningCluster) -> None:
    async def work() -> list[tuple[str, str, int]]:
        seen: list[tuple[str, str, int]] = []
        async with connected(cluster) as api:
            custom = client.CustomObjectsApi(api)
            place = (GROUP, VERSION, "default", PLURAL)
            listed = await custom.list_namespaced_custom_object(*place)

            async def follow() -> None:
                async with watch.Watch() as watching:
                    async for event in watching.stream(
                        custom.list_namespaced_custom_object,
                        *place,
                        resource_version=listed["metadata"]["resourceVersion"],
                        timeout_seconds=20,
                    ):
                        item = event["object"]
                        name, size = item["metadata"]["name"], item["spec"].get("size", 0)
                        seen.append((event["type"], name, size))
                        if event["type"] == "DELETED":
                            return

            following = asyncio.create_task(follow())
            await custom.create_namespaced_custom_object(*place, note("counted", size=0))
            for size in range(1, 20):
                patch = {"spec": {"size": size}}
                await custom.patch_namespaced_custom_object(
                    *place, "counted", patch, _content_type="application/merge-patch+json"
                )
            await custom.delete_namespaced_custom_object(*place, "counted")
            await asyncio.wait_for(following, 20)
        return seen

    modified = [("MODIFIED", "counted", size) for size in range(1, 20)]
    expected = [("ADDED", "counted", 0), *modified, ("DELETED", "counted", 19)]
    assert asyncio.run(work()) == expected


def test_the_dynamic_client_finds_custom_resources(cluster: RunningCluster) -> None:
    async def work() -> None:
        async with connected(cluster) as api:
            found = await dynamic.DynamicClient(api)
            notes = await found.resources.get(api_version=API_VERSION, kind="Note")
            await notes.create(body=note("dynamic", colour="red"), namespace="default")
            got = await notes.get(name="dynamic", namespace="default")
            assert got.spec.colour == "red"
            await notes.delete(name="dynamic", namespace="default")

    asyncio.run(work())


def test_a_lease_is_held_by_one_and_passes_on_when_it_is_not_renewed(
    cluster: RunningCluster,
) -> None:
    async def work() -> list[str]:
        led: list[str] = []
        leads = {"a": asyncio.Event(), "b": asyncio.Event()}

        async def candidate(api: client.ApiClient, name: str) -> None:
            async def started() -> None:
                led.append(name)
                leads[name].set()

            async def stopped() -> None:
                led.append(f"{name} stopped")

            settings = electionconfig.Config(
                LeaseLock("aio-lock", "default", name, api),
                lease_duration=3,
                renew_deadline=2,
                retry_period=1,
                onstarted_leading=started,
                onstopped_leading=stopped,
            )
            await leaderelection.LeaderElection(settings).run()

        async with connected(cluster) as api, asyncio.timeout(30):
            first = asyncio.create_task(candidate(api, "a"))
            await leads["a"].wait()
            second = asyncio.create_task(candidate(api, "b"))
            await asyncio.sleep(1.5)
            assert led == ["a"]
            first.cancel()  # it dies without a word
            await leads["b"].wait()
            second.cancel()
            await asyncio.gather(first, second, return_exceptions=True)
        return led

    # The lock of kubernetes 37 cannot make its Lease (its own API refuses an argument it passes),
    # whatever the server; it takes over an empty one.
    empty = {"metadata": {"name": "aio-lock"}, "spec": {}}
    cluster.create("leases.coordination.k8s.io", empty, "default")
    assert asyncio.run(work()) == ["a", "b"]
    lease = cluster.get("leases.coordination.k8s.io", "aio-lock", "default")
    assert lease["spec"]["holderIdentity"] == "b"
