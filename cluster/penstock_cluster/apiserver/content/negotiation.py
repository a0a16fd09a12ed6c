"""The form of a reply, from the Accept header."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from penstock_cluster.registry.model import errors

JSON = "application/json"
YAML = "application/yaml"
PROTOBUF = "application/vnd.kubernetes.protobuf"


@dataclass(frozen=True, slots=True)
class Form:
    """How to write a reply."""

    #: json or yaml
    encoding: str = "json"
    #: Empty: the object; else Table, PartialObjectMetadata, PartialObjectMetadataList,
    #: APIGroupDiscoveryList.
    kind: str = ""
    version: str = "v1"

    @property
    def content_type(self) -> str:
        return YAML if self.encoding == "yaml" else JSON


@lru_cache(maxsize=512)
def negotiate(accept: str) -> Form:
    """The first form in ``accept`` that can be written; :class:`ApiError` 406 when none can."""
    if not accept:
        return Form()
    only_protobuf = False
    for part in accept.split(","):
        media, *parameters = [item.strip() for item in part.split(";")]
        given = dict(item.split("=", 1) for item in parameters if "=" in item)
        kind, group = given.get("as", ""), given.get("g", "")
        if media == PROTOBUF:
            only_protobuf = True
            continue
        if media in ("*/*", "application/*", JSON):
            if not kind:
                return Form()
            if group == "meta.k8s.io" and given.get("v") in ("v1", "v1beta1"):
                return Form("json", kind, given["v"])
            if group == "apidiscovery.k8s.io" and given.get("v") in ("v2", "v2beta1"):
                return Form("json", kind, given["v"])
        elif media == YAML and not kind:
            return Form("yaml")
    error = errors.not_acceptable((JSON, YAML, PROTOBUF))
    if only_protobuf:
        error.media_type = PROTOBUF
    raise error
