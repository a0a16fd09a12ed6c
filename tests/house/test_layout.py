"""The layout that ADR 0001 decided on is the layout that is here."""

from __future__ import annotations

import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
ROOMS = (
    "api",
    "base",
    "brain",
    "client",
    "controller",
    "crds",
    "kube",
    "local",
    "runtime",
    "scheduler",
    "sim",
    "throughput",
    "wire",
)


def test_penstock_is_a_namespace_without_an_init_module() -> None:
    strays = [room for room in ROOMS if (ROOT / room / "penstock" / "__init__.py").exists()]
    assert strays == []


def test_every_package_is_typed() -> None:
    packages = [
        folder
        for room in ROOMS
        for folder in (ROOT / room / "penstock").iterdir()
        if folder.is_dir() and folder.name != "__pycache__"
    ]
    assert len(packages) >= len(ROOMS)
    assert [str(folder) for folder in packages if not (folder / "py.typed").exists()] == []


def test_the_embedded_cluster_is_beside_the_namespace_and_typed() -> None:
    assert (ROOT / "cluster" / "penstock_cluster" / "py.typed").exists()
    assert not (ROOT / "cluster" / "penstock").exists()
    assert "cluster" not in ROOMS


def test_every_room_is_in_the_wheel_and_in_the_editable_install() -> None:
    hatch = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]
    assert sorted(hatch["dev-mode-dirs"]) == sorted(ROOMS)
    assert sorted(hatch["targets"]["wheel"]["packages"]) == [f"{r}/penstock" for r in ROOMS]
