"""The doctor's checks: each a pure function of the `Facts` of one look. `CHECKS` is their order."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from penstock.cli.doctor.checks.cluster import (
    components_rights,
    definitions,
    guards,
    nodes,
    versions,
    your_rights,
)
from penstock.cli.doctor.checks.components import (
    brain,
    clocks,
    components,
    leases,
    metrics,
    storage,
)
from penstock.cli.doctor.checks.jobs import gates, jobs
from penstock.cli.doctor.model.facts import Facts
from penstock.cli.doctor.model.finding import Finding

CHECKS: Final[tuple[Callable[[Facts], Iterator[Finding]], ...]] = (
    versions,
    definitions,
    guards,
    components,
    components_rights,
    your_rights,
    leases,
    brain,
    clocks,
    nodes,
    storage,
    metrics,
    gates,
    jobs,
)


def examine(facts: Facts) -> list[Finding]:
    """What every check found, in order."""
    return [finding for check in CHECKS for finding in check(facts)]
