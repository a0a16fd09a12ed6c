"""A small custom resource for clients to work with: Notes."""

from __future__ import annotations

from typing import Any

GROUP, VERSION, PLURAL = "tests.penstock.dev", "v1", "notes"
API_VERSION = f"{GROUP}/{VERSION}"
NOTES = f"{PLURAL}.{GROUP}"


def crd() -> dict[str, Any]:
    anything = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    spec = {
        "type": "object",
        "properties": {
            "colour": {"type": "string", "default": "white", "maxLength": 16},
            "size": {"type": "integer"},
        },
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": NOTES},
        "spec": {
            "group": GROUP,
            "scope": "Namespaced",
            "names": {"plural": PLURAL, "singular": "note", "kind": "Note", "shortNames": ["nt"]},
            "versions": [
                {
                    "name": VERSION,
                    "served": True,
                    "storage": True,
                    "subresources": {"status": {}},
                    "schema": {
                        "openAPIV3Schema": {
                            "type": "object",
                            "properties": {"spec": spec, "status": anything},
                        }
                    },
                }
            ],
        },
    }


def note(name: str, **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": API_VERSION,
        "kind": "Note",
        "metadata": {"name": name},
        "spec": {"colour": "white", **spec},
    }
