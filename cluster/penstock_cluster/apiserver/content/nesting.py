"""Bounds on the shape of what clients send, checked before anything walks it.

A body of 3 MB can hold a million nested lists, which would take the server down. The real server
refuses it as well. What YAML may be is in `penstock_cluster.apiserver.content.yaml_text`.
"""

from __future__ import annotations

from typing import Any

from penstock_cluster.apiserver.content.yaml_text import TOO_DEEP
from penstock_cluster.registry.model.documents import DEPTH_LIMIT


def check_depth(text: bytes, document: Any) -> None:
    """``ValueError`` when the document of a JSON text is nested too deeply."""
    # So few brackets cannot nest too deeply; most bodies end here.
    if text.count(b"{") + text.count(b"[") <= DEPTH_LIMIT:
        return
    level = [document]
    for _ in range(DEPTH_LIMIT):
        below: list[Any] = []
        for item in level:
            if type(item) is dict:
                below.extend(item.values())
            elif type(item) is list:
                below.extend(item)
        level = [item for item in below if type(item) is dict or type(item) is list]
        if not level:
            return
    raise ValueError(TOO_DEEP)
