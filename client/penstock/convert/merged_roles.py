"""Roles of other systems that become one role here: all its pods have one template."""

from __future__ import annotations

from collections.abc import Mapping

from penstock.convert.source import Path, Source, leaves


def replica_counts(source: Source, roles: Path) -> dict[str, int]:
    """Replicas of each role: one, where it is there and says nothing."""
    return {
        name: 1 if (said := source.integer((*roles, name, "replicas"))) is None else said
        for name in source.mapping(roles)
    }


def merge_roles(
    source: Source, roles: Path, counts: Mapping[str, int], main: str, said: str
) -> None:
    """Say what became of roles that are one here.

    Args:
        source: who is told.
        roles: where it has them.
        counts: their replicas, by name.
        main: the role whose template is that of all.
        said: what becomes of the numbers.
    """
    same = dict(leaves(source.at((*roles, main, "template"))))
    for name, count in counts.items():
        base = (*roles, name)
        source.change((*base, "replicas"), said)
        if name == main:
            continue
        template = (*base, "template")
        if not count:
            source.drop(template, f"{name} has no replica")
            continue
        source.change(template, f"all workers have the template of {main}")
        for path, value in leaves(source.at(template)):
            if same.get(path) != value:
                source.drop((*template, *path), f"{main} says otherwise")
