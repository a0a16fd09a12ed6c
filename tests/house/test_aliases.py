"""Public names that have moved are still where people import them from, for one release."""

from __future__ import annotations

import importlib

import pytest


@pytest.mark.parametrize(
    ("old", "new", "names"),
    [
        ("penstock.api.schemas", "penstock.wire", ["Plan", "JobRegistration", "SampleBatch"]),
        ("penstock.crds.enums", "penstock.base.enums", ["Role", "Stage", "TRAINER_ROLE"]),
        ("penstock.crds.quantity", "penstock.base.quantity", ["parse_bytes", "format_milli_cpu"]),
        ("penstock.crds.scale", "penstock.base.targets", ["RoleTarget", "RankTarget"]),
        ("penstock.brain.measurement", "penstock.brain.model.measurement", ["settled"]),
        ("penstock.brain.planning", "penstock.base.enums", ["Trigger", "EventKind"]),
        ("penstock.local.cluster", "penstock_cluster.cluster", ["EmbeddedCluster"]),
        ("penstock.local.nodes", "penstock_cluster.nodes", ["NodeDeclaration", "read_nodes_file"]),
    ],
)
def test_an_old_name_is_the_new_one(old: str, new: str, names: list[str]) -> None:
    before, now = importlib.import_module(old), importlib.import_module(new)
    assert [getattr(before, name) for name in names] == [getattr(now, name) for name in names]
