"""Replays scenarios against the embedded cluster, and judges the outcomes by the listed deviations.

Every scenario gets a fresh server: it starts in milliseconds, and the versions of one scenario are
then moved by nothing but its own requests. With ``PENSTOCK_TEST_KUBECONFIG`` set the scenarios run
against that cluster instead, and nothing may deviate.
"""

from __future__ import annotations

from collections.abc import Sequence

from cluster.tests.golden import external
from cluster.tests.golden.deviations import DEVIATIONS, listed
from cluster.tests.golden.player import Outcome, Player, Target
from cluster.tests.golden.recordings import load
from penstock_cluster.registry import EngineOptions
from penstock_cluster.testing import api_server


def replay(name: str) -> list[Outcome]:
    """The outcome of every step of a scenario."""
    path = external.kubeconfig()
    if path is not None:
        server = external.target(path)
        with external.cleared(server, load(name)):
            return Player(server, load(name)).play()
    with api_server(EngineOptions(rbac=True)) as cluster:

        async def compact() -> None:
            cluster.engine.store.compact_all()

        target = Target(cluster.url, cluster.token, lambda: cluster.run(compact()))
        return Player(target, load(name)).play()


def unlisted(outcome: Outcome) -> list[str]:
    """The differences of a step that no deviation allows."""
    entries = [] if external.kubeconfig() else listed(outcome.scenario, outcome.number)
    allowed = [place for entry in entries for place in entry.at]
    return [
        difference
        for difference in outcome.differences
        if not any(difference.startswith(place) for place in allowed)
    ]


def outdated(outcomes: Sequence[Outcome]) -> list[str]:
    """Deviations listed for these outcomes that are not there."""
    if external.kubeconfig():
        return []
    played = {outcome.number: outcome for outcome in outcomes}
    found = []
    for entry in DEVIATIONS:
        if not outcomes or entry.scenario != outcomes[0].scenario:
            continue
        for step in entry.steps:
            differences = played[step].differences if step in played else ()
            found += [
                f"{entry.scenario} {step}: {place} no longer deviates"
                for place in entry.at
                if not any(difference.startswith(place) for difference in differences)
            ]
    return found
