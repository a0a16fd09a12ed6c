"""The loss of a model that was stopped on its way beside that of one that was not."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.exactly_once import Life, difference
from benchmarks.exactly_once_programs.log import Log, Samples

torch = pytest.importorskip("torch")


def test_the_loss_of_a_life_is_that_of_its_model_over_all_samples(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EXACTLY_ONCE_LIFE", "0")
    line = torch.nn.Linear(2, 1)
    torch.nn.init.ones_(line.weight)
    torch.nn.init.zeros_(line.bias)
    Log(tmp_path).ended(line, Samples(77))  # all values of the noise equally often
    life = Life.read(tmp_path, 0)
    assert life.ended
    assert life.loss == pytest.approx(sum((n / 5 - 1) ** 2 for n in range(11)) / 11)


def test_differences_are_relative_and_unknown_of_what_has_not_ended() -> None:
    assert difference(1.01, 1.0) == difference(0.99, 1.0) == pytest.approx(0.01)
    assert difference(None, 1.0) is None
    assert difference(1.0, None) is None
