"""The environment variables of a container: ``env``, ``envFrom``, ``valueFrom`` and ``$(VAR)``.

Pure but for the two look-ups it is given. Order and failures are the kubelet's: ``envFrom`` first,
then ``env`` from top to bottom, each value seeing those above it; a key or object that is missing
and not optional is a :class:`ConfigError`, which shows as CreateContainerConfigError.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from penstock_cluster.kubelet.container.fields import field_value, resource_value

Json = Mapping[str, Any]
LookUp = Callable[[str], Json | None]

_REFERENCE = re.compile(r"\$(?:\$|\(([^()]*)\))")
_NAME = re.compile(r"[-._a-zA-Z][-._a-zA-Z0-9]*")


class ConfigError(Exception):
    """A container's configuration refers to something that is not there."""


@dataclass(frozen=True, slots=True)
class ConfigSources:
    """How to find the objects that a pod's environment refers to, in the pod's namespace."""

    config_map: LookUp
    secret: LookUp


def expand(text: str, variables: Mapping[str, str]) -> str:
    """Replace ``$(NAME)``; ``$$`` is a plain ``$``, an unknown name stays as it is written."""

    def value(match: re.Match[str]) -> str:
        name = match.group(1)
        if name is None:
            return "$"
        return variables.get(name, match.group())

    return _REFERENCE.sub(value, text)


def container_environment(
    pod: Json,
    container: Json,
    given: Mapping[str, str],
    sources: ConfigSources,
    allocatable: Mapping[str, int],
) -> dict[str, str]:
    """All variables of a container, over those ``given`` by its surroundings.

    ``allocatable`` is the node's, which stands in for a limit that is not set. Raises ConfigError.
    """
    variables = dict(given)
    for source in container.get("envFrom") or ():
        variables.update(_whole_object(pod, source, sources))
    for entry in container.get("env") or ():
        value_from = entry.get("valueFrom")
        if value_from is None:
            variables[entry["name"]] = expand(entry.get("value") or "", variables)
            continue
        value = _referred(pod, container, value_from, sources, allocatable)
        if value is not None:
            variables[entry["name"]] = value
    return variables


def _whole_object(pod: Json, source: Json, sources: ConfigSources) -> dict[str, str]:
    prefix = source.get("prefix") or ""
    if reference := source.get("configMapRef"):
        found = sources.config_map(reference["name"])
        kind = "configmap"
    else:
        reference = source["secretRef"]
        found = sources.secret(reference["name"])
        kind = "secret"
    if found is None:
        if reference.get("optional"):
            return {}
        raise ConfigError(f'{kind} "{reference["name"]}" not found')
    values = decoded(found)
    return {
        prefix + key: value.decode(errors="surrogateescape")
        for key, value in values.items()
        if _NAME.fullmatch(prefix + key)
    }


def _referred(
    pod: Json,
    container: Json,
    value_from: Json,
    sources: ConfigSources,
    allocatable: Mapping[str, int],
) -> str | None:
    if reference := value_from.get("fieldRef"):
        return field_value(pod, reference["fieldPath"])
    if reference := value_from.get("resourceFieldRef"):
        return resource_value(pod, container, reference, allocatable)
    if reference := value_from.get("configMapKeyRef"):
        found, kind = sources.config_map(reference["name"]), "ConfigMap"
    else:
        reference = value_from["secretKeyRef"]
        found, kind = sources.secret(reference["name"]), "Secret"
    if found is None:
        if reference.get("optional"):
            return None
        raise ConfigError(f'{kind.lower()} "{reference["name"]}" not found')
    values = decoded(found)
    if reference["key"] not in values:
        if reference.get("optional"):
            return None
        place = f"{pod['metadata']['namespace']}/{reference['name']}"
        raise ConfigError(f"couldn't find key {reference['key']} in {kind} {place}")
    return values[reference["key"]].decode(errors="surrogateescape")


def decoded(stored: Json) -> dict[str, bytes]:
    """The data of a ConfigMap or Secret as bytes."""
    if stored.get("kind") == "Secret":
        return {key: base64.b64decode(text) for key, text in (stored.get("data") or {}).items()}
    texts = {key: text.encode() for key, text in (stored.get("data") or {}).items()}
    binary = stored.get("binaryData") or {}
    return texts | {key: base64.b64decode(text) for key, text in binary.items()}


def thread_settings(cores: int | None) -> dict[str, str]:
    """What numeric libraries should do: start as many threads as the container has cores.

    These cores are also other containers': a thread of OpenMP that waits for the others does not
    spin, as it would by default, and take the core of one of them.

    Args:
        cores: None where the container has no limit.
    """
    names = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMEXPR_NUM_THREADS")
    limits = {} if cores is None else dict.fromkeys(names, str(cores))
    return {**limits, "OMP_WAIT_POLICY": "passive"}
