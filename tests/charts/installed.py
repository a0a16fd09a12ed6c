"""The chart, installed by Helm into an embedded cluster that enforces roles and Pod Security.

Nothing here makes pods of Deployments, so the pod that each describes is started by hand, exactly
as the chart has it: its command, its account with the token that is mounted, volumes, probes and
limits. One replica of each runs, without its image.

Every request is asked of the real authorizer, and what it said is kept.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import copy
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import helm_python as helm
import httpx

from penstock.crds.environment import BRAIN_AUDIENCE
from penstock_cluster.cluster import ClusterOptions, EmbeddedCluster
from penstock_cluster.nodes import NodeDeclaration
from penstock_cluster.registry import ApiError
from penstock_cluster.registry.admission.escalation import parts
from penstock_cluster.registry.admission.rbac import Attributes, allows
from penstock_cluster.registry.model.call import User
from tests.charts.rendering import CHART, SYSTEM, Json
from tests.patience import patient

ADMINISTRATOR = "an-administrator"
COMPONENTS = ("brain", "controller", "scheduler")
RBAC = "rbac.authorization.k8s.io"
RELEASE = "penstock"
SHORTEST_SECRET = 16
"""Characters: what is shorter stands in any text by chance."""


@dataclass
class Recorded:
    """What accounts asked for, in the order in which they first did."""

    granted: dict[tuple[str, Attributes], User] = field(default_factory=dict)
    refused: dict[tuple[str, Attributes], User] = field(default_factory=dict)

    def by(self, account: str) -> list[Attributes]:
        """What was granted to a service account, ``NAMESPACE:NAME``."""
        user = f"system:serviceaccount:{account}"
        return [wanted for name, wanted in self.granted if name == user]

    def refused_to(self, account: str) -> list[Attributes]:
        """What was refused to it. Whether it may hand on what it lacks is asked of everybody."""
        user = f"system:serviceaccount:{account}"
        return [
            wanted
            for name, wanted in self.refused
            if name == user and wanted.verb not in ("escalate", "bind")
        ]


class Installed:
    """The cluster with the release in it."""

    def __init__(self, cluster: EmbeddedCluster, folder: Path) -> None:
        self.cluster = cluster
        self.api = cluster.api
        self.folder = folder
        self.recorded = Recorded()
        self.kubeconfig = folder / "kubeconfig"
        self.kubeconfig.write_text(cluster.kubeconfig)
        self._record()

    def _record(self) -> None:
        authorizer = self.cluster.engine.authorizer
        ask = authorizer.allowed

        def allowed(user: User, wanted: Attributes) -> bool:
            answer = ask(user, wanted)
            kept = self.recorded.granted if answer else self.recorded.refused
            kept.setdefault((user.name, wanted), user)
            return answer

        self.ask = ask
        authorizer.allowed = allowed  # type: ignore[method-assign]  # records what is asked

    async def helm(self, action: Callable[[helm.Config], Any]) -> Any:
        """Something that Helm does with the cluster."""

        def work() -> Any:
            with helm.Config(kubeconfig_path=self.kubeconfig, namespace=SYSTEM) as config:
                return action(config)

        return await asyncio.to_thread(work)

    async def enforce_restricted(self, namespace: str) -> None:
        """Refuse pods in a namespace that do not meet the restricted Pod Security Standard."""
        labels = {"pod-security.kubernetes.io/enforce": "restricted"}
        await self.api.patch("namespaces", namespace, {"metadata": {"labels": labels}})

    async def start(self, component: str, name: str = "", **variables: str) -> None:
        """Start the pod that a component's Deployment describes, with more variables if given."""
        account = f"penstock-{component}"
        deployment = await self.api.get("deployments.apps", account, SYSTEM)
        template = deployment["spec"]["template"]
        metadata = {**template["metadata"], "name": name or account}
        spec = {**template["spec"]}
        if variables:
            [container] = spec["containers"]
            added = [{"name": key, "value": value} for key, value in variables.items()]
            spec["containers"] = [{**container, "env": [*container.get("env", ()), *added]}]
        await self.api.create("pods", {"metadata": metadata, "spec": spec}, SYSTEM)

    async def ready(self, component: str) -> Json:
        """The component's pod, once its readiness probe has succeeded."""

        async def look() -> Json | None:
            pod = await self.api.get("pods", f"penstock-{component}", SYSTEM)
            conditions = {one["type"]: one["status"] for one in pod["status"].get("conditions", [])}
            return pod if conditions.get("Ready") == "True" else None

        try:
            found: Json = await until(f"{component} is ready", look, 50)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.log(component)}") from error
        return found

    async def stop(self, component: str) -> None:
        """Delete the component's pod, and wait until it has ended."""
        name = f"penstock-{component}"
        await self.api.delete("pods", name, SYSTEM)

        async def gone() -> bool:
            return await self.find("pods", name, SYSTEM) is None

        await until(f"the {component} ends", gone)

    def now(self) -> float:
        """The cluster's time, in seconds since 1970."""
        return self.cluster.engine.now().timestamp()

    def log(self, component: str) -> str:
        """What a component wrote."""
        found = sorted(self.folder.glob(f"pods/**/logs/{component}/*.log"))
        return "".join(path.read_text(errors="replace")[-6000:] for path in found)

    async def secrets(self) -> set[str]:
        """All that must stand in no log: what Secrets hold, and tokens that are mounted."""
        found = {self.cluster.token}
        for secret in (await self.api.list("secrets")).items:
            for value in (secret.get("data") or {}).values():
                found |= {value, base64.b64decode(value).decode(errors="replace")}
        for path in self.folder.glob("pods/**/volumes/*/token"):
            with contextlib.suppress(OSError):  # of a pod that has gone
                found.add(path.read_text())
        return {one for one in found if len(one) >= SHORTEST_SECRET}

    def logs(self) -> dict[Path, str]:
        """What all pods wrote."""
        return {
            path: path.read_text(errors="replace")
            for path in self.folder.glob("pods/**/logs/**/*.log")
        }

    async def start_all(self) -> None:
        for component in COMPONENTS:
            await self.start(component)
        for component in COMPONENTS:
            await self.ready(component)

    async def brain(self) -> httpx.AsyncClient:
        """The Brain's API, for an administrator; to be closed."""
        pod = await self.ready("brain")
        [container] = pod["spec"]["containers"]
        port = container["ports"][0]
        authority = await self.find("configmaps", "penstock-brain-ca", SYSTEM)
        trust: ssl.SSLContext | bool = True
        if authority is not None:
            trust = ssl.create_default_context(cadata=authority["data"]["ca.crt"])
            trust.check_hostname = False  # it is called by its pod's address
        return httpx.AsyncClient(
            base_url=f"{port['name']}://{pod['status']['podIP']}:{port['containerPort']}",
            headers={"Authorization": f"Bearer {await self.administrators_token()}"},
            trust_env=False,
            timeout=15,
            verify=trust,
        )

    async def administrators_token(self, audience: str = BRAIN_AUDIENCE) -> str:
        """A token of an account that may do everything, good for one audience alone."""
        if await self.find("serviceaccounts", ADMINISTRATOR, SYSTEM) is None:
            await self.create("serviceaccounts", {"metadata": {"name": ADMINISTRATOR}}, SYSTEM)
            binding = {
                "metadata": {"name": ADMINISTRATOR},
                "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": "cluster-admin"},
                "subjects": [
                    {"kind": "ServiceAccount", "namespace": SYSTEM, "name": ADMINISTRATOR}
                ],
            }
            await self.api.create(f"clusterrolebindings.{RBAC}", binding)
        issue = self.cluster.engine.tokens.issue
        token, _ = issue(SYSTEM, ADMINISTRATOR, audiences=(audience,), seconds=3600)
        return token

    async def create(self, resource: str, document: Json, namespace: str = "default") -> Json:
        found: Json = await self.api.create(resource, document, namespace)
        return found

    async def find(self, resource: str, name: str, namespace: str = "default") -> Json | None:
        """An object, or None."""
        try:
            return await self.api.get(resource, name, namespace)
        except ApiError as error:
            if error.code != 404:
                raise
            return None

    async def condition(self, job: str, kind: str) -> Json | None:
        """A job's condition, where it is True."""
        found = await self.find("elasticjobs.penstock.dev", job)
        for one in ((found or {}).get("status") or {}).get("conditions") or ():
            if one["type"] == kind and one["status"] == "True":
                condition: Json = one
                return condition
        return None

    def unused(self, account: str) -> list[tuple[str, Json]]:
        """The single rights of an account's roles that nothing recorded needs.

        Each is taken out of its role for a moment, and the real authorizer is asked again about all
        that was granted and that it covers: a right whose absence refuses nothing is one too many.
        """
        user = User(f"system:serviceaccount:{account}", ("system:authenticated",))
        granted = self.recorded.by(account)
        found = []
        for role in self._roles(user):
            rules = role["rules"]
            singles = [part for rule in rules for part in parts(rule)]
            for index, part in enumerate(singles):
                role["rules"] = [*singles[:index], *singles[index + 1 :]]
                if all(self.ask(user, wanted) for wanted in granted if allows(part, wanted)):
                    found.append((role["metadata"]["name"], part))
            role["rules"] = rules
        return found

    def _roles(self, user: User) -> Iterator[Json]:
        """The chart's roles that an account is bound to, as the store holds them."""
        store = self.cluster.engine.store
        namespace = user.name.split(":")[2]
        for table, of in (("clusterrolebindings", ""), ("rolebindings", namespace)):
            for version in store.table(f"{table}.{RBAC}").in_namespace(of):
                binding = version.object
                if not any(
                    f"system:serviceaccount:{one.get('namespace', namespace)}:{one['name']}"
                    == user.name
                    for one in binding.get("subjects", [])
                ):
                    continue
                kind, name = binding["roleRef"]["kind"], binding["roleRef"]["name"]
                plural, place = ("clusterroles", "") if kind == "ClusterRole" else ("roles", of)
                yield store.table(f"{plural}.{RBAC}").items[place, name].object


async def until(what: str, probe: Callable[[], Awaitable[Any]], seconds: float = 30.0) -> Any:
    """Poll until the probe gives something true, and return it."""
    try:
        async with asyncio.timeout(patient(seconds)):
            while not (found := await probe()):  # noqa: ASYNC110  the server says nothing
                await asyncio.sleep(0.05)
            return found
    except TimeoutError:
        raise AssertionError(f"not within {seconds:.0f} s: {what}") from None


NODES = (
    NodeDeclaration("gpu-1", cpu="32", memory="64Gi", accelerators={"nvidia.com/gpu": 2}),
    NodeDeclaration("cpu-1", cpu="32", memory="64Gi"),
)


def meeting_restricted(job: Json) -> Json:
    """A job whose own pods meet the restricted Pod Security Standard; its trainer does anyway."""
    document: Json = copy.deepcopy(job)
    for role in document["spec"]["replicaSpecs"].values():
        spec = role["template"]["spec"]
        spec["securityContext"] = {
            "runAsNonRoot": True,
            "seccompProfile": {"type": "RuntimeDefault"},
        }
        for container in spec["containers"]:
            container["securityContext"] = {
                "allowPrivilegeEscalation": False,
                "capabilities": {"drop": ["ALL"]},
            }
    return document


@contextlib.asynccontextmanager
async def installed(
    folder: Path,
    values: Json | None = None,
    nodes: Sequence[NodeDeclaration] = NODES,
    *,
    longest_token_seconds: int | None = None,
    chart: Path = CHART,
) -> AsyncIterator[Installed]:
    """A cluster with the chart in it; none of its pods runs yet."""
    options = ClusterOptions(
        nodes=nodes,
        folder=folder / "pods",
        rbac=True,
        longest_token_seconds=longest_token_seconds,
    )
    async with EmbeddedCluster(options) as cluster:
        found = Installed(cluster, folder)
        await found.helm(
            lambda config: config.install(chart, RELEASE, values, create_namespace=True)
        )
        await found.enforce_restricted(SYSTEM)
        yield found
