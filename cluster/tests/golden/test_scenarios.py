"""The embedded cluster answers every recorded request as the recorded server did."""

from __future__ import annotations

import pytest

from cluster.tests.golden.external import NoStoreAccessError
from cluster.tests.golden.recordings import load, names
from cluster.tests.golden.replaying import outdated, replay, unlisted


@pytest.mark.parametrize("name", names())
def test_answers_are_as_recorded(name: str) -> None:
    try:
        outcomes = replay(name)
    except NoStoreAccessError as error:
        pytest.skip(str(error))
    assert len(outcomes) == len(load(name).steps)
    report = [
        f"step {outcome.number} ({outcome.about}): {difference}"
        for outcome in outcomes
        for difference in unlisted(outcome)
    ]
    assert report + outdated(outcomes) == []


def test_every_recorded_step_is_replayed() -> None:
    assert len(names()) == 33
    assert sum(len(load(name).steps) for name in names()) == 698
