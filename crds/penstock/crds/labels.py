"""Labels, annotations and scheduling gates that Penstock puts on objects.

Nothing is ever parsed out of an object's name: what a pod is, its labels say.
"""

from __future__ import annotations

from typing import Final

from penstock.crds.group import GROUP

JOB: Final = f"{GROUP}/job"
JOB_UID: Final = f"{GROUP}/job-uid"
ROLE: Final = f"{GROUP}/role"
RANK: Final = f"{GROUP}/rank"
INCARNATION: Final = f"{GROUP}/incarnation"
SHARE_GROUP: Final = f"{GROUP}/share-group"
"""Of trainers, and of what their share group has: the group's name."""

MANAGED_BY: Final = "app.kubernetes.io/managed-by"
MANAGED_BY_VALUE: Final = "penstock"

PLACEMENT_GATE: Final = f"{GROUP}/placement"
POD_DELETION_COST: Final = "controller.kubernetes.io/pod-deletion-cost"

MAIN_CONTAINER: Final = f"{GROUP}/main-container"
"""Annotation of a pod: the name of the container that trains."""

PLAN: Final = f"{GROUP}/plan"
"""Annotation of a Scale: the id of the Brain's plan that it carries out."""
