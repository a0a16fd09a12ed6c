"""What checks say alike: cures, and lists that stay short."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

APPLY_CRDS: Final = "penstock crds | kubectl apply --server-side --force-conflicts -f -"
UPGRADE: Final = "helm upgrade penstock charts/penstock"
START: Final = "kubectl -n penstock-system get pods; `penstock up --external` runs it from here"


def some(names: Iterable[str]) -> str:
    """A few of the names, and how many more there are."""
    listed = list(names)
    more = f" and {len(listed) - 4} more" if len(listed) > 4 else ""
    return ", ".join(listed[:4]) + more


def short(user: str) -> str:
    """A user's name as part of an object's."""
    return re.sub(r"[^a-z0-9]+", "-", user.lower()).strip("-")[:40] or "user"


def install(component: str) -> str:
    """The command that brings a component its rights and definitions."""
    if component == "brain":
        return f"`{UPGRADE}`"
    return f"penstock {component} --print-manifests | kubectl apply --server-side -f -"
