"""What a cluster must hold for the scheduler to work, as YAML: its roles.

The file beside this module is the only copy: the chart, ``penstock scheduler --print-manifests``
and the tests with access control switched on all read it.
"""

from __future__ import annotations

from importlib.resources import files


def render() -> str:
    """All that a cluster needs before the scheduler starts, as YAML documents."""
    return (files(__name__) / "scheduler.yaml").read_text(encoding="utf-8")
