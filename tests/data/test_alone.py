"""A loader whose batches nobody but the program makes goes PyTorch's way, at no cost."""

from __future__ import annotations

from typing import Any

import pytest
from torch.utils.data import DataLoader

from penstock.crds import environment as names
from penstock.data import interception
from penstock.data.hooked import DRY_RUN_FOLDER, NO_DATA_WORKERS
from penstock.data.torch_loading import torch_loader


class Loader(DataLoader[Any]):
    """One that is intercepted in this test alone."""

    def __iter__(self) -> Any:
        return iter(["PyTorch's"])


@pytest.fixture
def intercepted(monkeypatch: pytest.MonkeyPatch) -> type[Loader]:
    monkeypatch.setattr(interception, "_complaints", interception.Complaints())
    monkeypatch.setattr(torch_loader, "begin", lambda loader, plain: iter(["Penstock's"]))
    monkeypatch.delitem(interception.sys.modules, interception._FUNCTIONS, raising=False)
    monkeypatch.setenv(NO_DATA_WORKERS, "1")
    monkeypatch.setattr(Loader, "__iter__", Loader.__iter__)
    monkeypatch.setattr(Loader, "__init_subclass__", Loader.__init_subclass__)
    interception.install(Loader)
    return Loader


def test_the_program_alone_is_left_alone_and_told_so_once(
    intercepted: type[Loader], caplog: pytest.LogCaptureFixture
) -> None:
    loader = intercepted([1, 2])
    assert [list(loader), list(loader)] == [["PyTorch's"]] * 2
    assert caplog.text.count("nobody but the program itself makes its batches") == 1
    assert list(intercepted([1, 2], num_workers=1)) == ["Penstock's"]


@pytest.mark.parametrize(
    "name", [names.CACHE_SOCKET, names.SAVE_BATCHES, DRY_RUN_FOLDER, NO_DATA_WORKERS]
)
def test_who_asks_for_more_than_that_has_it(
    intercepted: type[Loader], monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv(name, "" if name == NO_DATA_WORKERS else "somewhere")
    assert not interception._is_alone(intercepted([1, 2]))


def test_functions_that_are_declared_go_with_penstocks_loader(
    intercepted: type[Loader], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(interception.sys.modules, interception._FUNCTIONS, interception)
    assert list(intercepted([1, 2])) == ["Penstock's"]


def test_a_loader_of_penstock_is_penstocks(intercepted: type[Loader]) -> None:
    assert not interception._is_alone(torch_loader.DataLoader([1, 2]))
