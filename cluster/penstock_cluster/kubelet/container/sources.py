"""The objects that one pod refers to: ConfigMaps, Secrets, claims and its own tokens."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from penstock_cluster.kubelet.container.environment import ConfigSources
from penstock_cluster.kubelet.container.volumes import VolumeError
from penstock_cluster.registry import Api, ApiError, Engine

Json = Mapping[str, Any]

_RENEW_AFTER_SHARE = 0.8


class PodSources:
    """Looks things up in the pod's namespace; caches tokens until they should be renewed."""

    def __init__(self, engine: Engine, api: Api, namespace: str) -> None:
        self._engine = engine
        self._api = api
        self._namespace = namespace
        self._tokens: dict[tuple[str, str, int], tuple[str, datetime]] = {}

    async def config(self, pod: Json, container: Json) -> ConfigSources:
        """Everything that a container's environment may refer to, fetched beforehand."""
        config_maps, secrets = {}, {}
        for kind, name in _references(container):
            if kind == "configmaps":
                config_maps[name] = await self._get(kind, name)
            else:
                secrets[name] = await self._get(kind, name)
        return ConfigSources(config_maps.get, secrets.get)

    async def config_map(self, name: str) -> Json | None:
        return await self._get("configmaps", name)

    async def secret(self, name: str) -> Json | None:
        return await self._get("secrets", name)

    async def claim(self, name: str) -> Json | None:
        return await self._get("persistentvolumeclaims", name)

    async def token(self, pod: Json, service_account: str, audience: str, seconds: int) -> str:
        """A token bound to the pod; the same one until most of its life is over."""
        key = (service_account, audience, seconds)
        now = self._engine.now()
        cached = self._tokens.get(key)
        if cached is not None and now < cached[1]:
            return cached[0]
        metadata = pod["metadata"]
        request = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "spec": {
                "audiences": [audience] if audience else [],
                "expirationSeconds": seconds,
                "boundObjectRef": {
                    "kind": "Pod",
                    "apiVersion": "v1",
                    "name": metadata["name"],
                    "uid": metadata["uid"],
                },
            },
        }
        try:
            answer = await self._api.create(
                "serviceaccounts",
                request,
                self._namespace,
                name=service_account,
                subresource="token",
            )
        except ApiError as error:
            raise VolumeError(f"failed to fetch token: {error.message}") from None
        token = str(answer["status"]["token"])
        expires = datetime.fromisoformat(answer["status"]["expirationTimestamp"])
        self._tokens[key] = (token, now + _RENEW_AFTER_SHARE * (expires - now))
        return token

    async def _get(self, resource: str, name: str) -> Json | None:
        try:
            return await self._api.get(resource, name, self._namespace)
        except ApiError as error:
            if error.is_not_found:
                return None
            raise


def _references(container: Json) -> list[tuple[str, str]]:
    found = []
    for source in container.get("envFrom") or ():
        if reference := source.get("configMapRef"):
            found.append(("configmaps", reference["name"]))
        if reference := source.get("secretRef"):
            found.append(("secrets", reference["name"]))
    for entry in container.get("env") or ():
        value_from = entry.get("valueFrom") or {}
        if reference := value_from.get("configMapKeyRef"):
            found.append(("configmaps", reference["name"]))
        if reference := value_from.get("secretKeyRef"):
            found.append(("secrets", reference["name"]))
    return found
