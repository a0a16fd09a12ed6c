"""How server-side apply by kubectl takes over what kubectl applied client-side before.

Client-side apply keeps its last configuration in an annotation. When the manager ``kubectl`` then
applies server-side, fields that the annotation holds are no conflict (they are kubectl's own, by
another name), and the annotation follows the new configuration, so that both ways may be mixed.
"""

from __future__ import annotations

import json

import orjson

from penstock_cluster.registry.merging import managed
from penstock_cluster.registry.model import fieldset
from penstock_cluster.registry.model.errors import Json
from penstock_cluster.registry.model.fieldset import FieldSet
from penstock_cluster.registry.model.shape import Shape

ANNOTATION = "kubectl.kubernetes.io/last-applied-configuration"
MANAGER = "kubectl"


def own_fields(shape: Shape, live: Json) -> FieldSet | None:
    """The fields of the last configuration that was applied client-side."""
    text = _last_applied(live)
    if not text:
        return None
    try:
        last = orjson.loads(text)
    except orjson.JSONDecodeError:
        return None
    if type(last) is not dict:
        return None
    return managed.strip(fieldset.owned(shape, last, added=False))


def follow(merged: Json, config: Json) -> Json:
    """``merged`` with the annotation, where it has one, brought up to ``config``."""
    if not _last_applied(merged):
        return merged
    metadata = config["metadata"]
    annotations = {k: v for k, v in (metadata.get("annotations") or {}).items() if k != ANNOTATION}
    plain = {**config, "metadata": {k: v for k, v in metadata.items() if k != "annotations"}}
    if annotations:
        plain["metadata"]["annotations"] = annotations
    text = json.dumps(plain, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    for sign in "<>&":  # as Go's encoder writes them
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    kept = {**merged["metadata"]["annotations"], ANNOTATION: text + "\n"}
    return {**merged, "metadata": {**merged["metadata"], "annotations": kept}}


def _last_applied(document: Json) -> str:
    annotations = document["metadata"].get("annotations") or {}
    text = annotations.get(ANNOTATION, "")
    return text if type(text) is str else ""
