"""What a cluster must hold for the controller to work, as YAML: roles, policies, priority classes.

The files beside this module are the only copy: the chart, ``penstock controller
--print-manifests`` and the tests with access control switched on all read them. What belongs to the
resources themselves (CRDs, the trainer's role and policies) comes from `penstock.crds.manifests`.

* ``controller.yaml``: the controller's own ClusterRole, and the Role for its Leases.
* ``priorities.yaml``: the priority classes of spare workers and data workers.
"""

from __future__ import annotations

from importlib.resources import files
from typing import Any, Final

import yaml

from penstock.crds.manifests import MANIFESTS

FILES: Final = ("controller.yaml", "priorities.yaml")


def render() -> str:
    """All that a cluster needs before the controller starts, as one stream of YAML documents."""
    folder = files(__name__)
    own = [(folder / name).read_text(encoding="utf-8") for name in FILES]
    return "---\n".join([*(manifest.render() for manifest in MANIFESTS), *own])


def load(name: str) -> list[dict[str, Any]]:
    """The objects of one of `FILES`."""
    text = (files(__name__) / name).read_text(encoding="utf-8")
    return [document for document in yaml.safe_load_all(text) if document]
