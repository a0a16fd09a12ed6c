"""The folder of a cluster's pods: held by one, swept at the start, nothing else touched."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock_cluster.kubelet.state.folder import FolderInUseError, held_folder, remove_leftovers

UID = "bc5a52ff-42f8-4f90-9b17-3bd176f14608"
OTHER = "051204ff-42f8-4f90-9b17-3bd176f14608"


def test_two_clusters_do_not_share_a_folder(tmp_path: Path) -> None:
    with (
        held_folder(tmp_path / "pods"),
        pytest.raises(FolderInUseError, match="choose another folder"),
        held_folder(tmp_path / "pods"),
    ):
        raise AssertionError("held twice")
    with held_folder(tmp_path / "pods"):
        pass


def test_only_folders_of_pods_are_swept(tmp_path: Path) -> None:
    kept = tmp_path / f"default_p_{UID}"
    gone = tmp_path / f"default_q_{OTHER}"
    for folder in (kept, gone, tmp_path / "my_own_folder", tmp_path / "claims"):
        (folder / "volumes").mkdir(parents=True)
        (folder / "logs").mkdir()
    remove_leftovers(tmp_path, {UID})
    assert {each.name for each in tmp_path.iterdir()} == {kept.name, "my_own_folder", "claims"}
    assert [each.name for each in kept.iterdir()] == ["logs"]
    assert (tmp_path / "my_own_folder" / "volumes").exists()
