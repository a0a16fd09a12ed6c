"""One rule for which kubeconfig is read."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.base.kubeconfig import named, named_or_home


def test_an_option_wins_over_the_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", "/one:/two")
    assert named(Path("/given")) == named_or_home(Path("/given")) == "/given"
    assert named() == named_or_home() == "/one:/two"


@pytest.mark.parametrize("value", [None, ""])
def test_the_home_folder_is_last(monkeypatch: pytest.MonkeyPatch, value: str | None) -> None:
    monkeypatch.setenv("HOME", "/home/ada")
    monkeypatch.delenv("KUBECONFIG", raising=False)
    if value is not None:
        monkeypatch.setenv("KUBECONFIG", value)
    assert named() is None
    assert named_or_home() == "/home/ada/.kube/config"
