"""The weights of a node: whole or not there, within a bound, and never written through a map."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.crds import environment as names
from penstock.data.weight_bundle import Gathering, Weights
from penstock.data.weights.node_folder import NodeFolder, WeightsError, node_folder

SIZE = 100_000


def weights(number: int, size: int = SIZE) -> Weights:
    gathering = Gathering()
    gathering.add(bytes([number]) * size)
    found = gathering.weights()
    assert found is not None
    return found


def file_of(folder: NodeFolder, ending: str = "weights") -> Path:
    (found,) = folder.path.glob(f"*.{ending}")
    return found


@pytest.fixture
def folder(tmp_path: Path) -> NodeFolder:
    return NodeFolder(tmp_path / "weights", 3 * SIZE)


def test_what_is_published_is_found_and_a_write_to_it_stays_in_the_process(
    folder: NodeFolder,
) -> None:
    one = weights(1)
    assert folder.find(one) is None
    assert folder.publish(one)
    mine, other = folder.find(one), folder.find(one)
    assert mine is not None
    assert other is not None
    mine[:4] = b"\xff" * 4
    assert other[:4] == b"\1" * 4
    assert file_of(folder).read_bytes() == b"\1" * SIZE
    assert file_of(folder).stat().st_mode & 0o777 == 0o400


@pytest.mark.parametrize("content", [b"\2" * SIZE, b"\1" * (SIZE - 1), b""])
def test_a_file_that_is_not_what_its_name_says_is_removed(
    folder: NodeFolder, content: bytes
) -> None:
    one = weights(1)
    folder.publish(one)
    path = file_of(folder)
    path.chmod(0o600)
    path.write_bytes(content)
    assert folder.find(one) is None
    assert not path.exists()


def test_what_a_killed_writer_has_left_is_gone_on_with(folder: NodeFolder) -> None:
    script = (
        "import os, signal, sys; from pathlib import Path\n"
        "from tests.data.weights.test_node_folder import weights, NodeFolder, SIZE\n"
        "part = NodeFolder(Path(sys.argv[1]), 3 * SIZE).begin(weights(1))\n"
        "part.write(bytes([1]) * 7000); os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    done = subprocess.run([sys.executable, "-c", script, folder.path], check=False, timeout=60)
    assert done.returncode == -9
    one = weights(1)
    assert folder.find(one) is None
    part = folder.begin(one)
    assert part is not None
    with part:
        assert (part.have, part.resumed) == (7000, True)
        assert folder.begin(one) is None, "one writes at a time"
        beside = folder.begin(one, beside=True)
        assert beside is not None
        with beside:
            assert beside.have == 0
        part.write(bytes([1]) * (SIZE - 7000))
        part.finish()
    assert folder.find(one) is not None
    assert folder.begin(one) is None, "it is there"


def test_wrong_bytes_are_never_there(folder: NodeFolder) -> None:
    one = weights(1)
    part = folder.begin(one)
    assert part is not None
    with part:
        part.write(bytes([2]) * SIZE)
        with pytest.raises(WeightsError, match="not what its digest says"):
            part.finish()
        assert part.have == 0
    assert folder.find(one) is None
    assert file_of(folder, "part").stat().st_size == 0


def test_what_nobody_has_mapped_and_was_used_longest_ago_makes_room(folder: NodeFolder) -> None:
    for number in range(3):
        folder.publish(weights(number))
        os.utime(folder.path / f"{weights(number).digest.hex()}-{SIZE}.weights", (number, number))
    mapped = folder.find(weights(1))
    folder.publish(weights(3))
    assert folder.find(weights(0)) is None
    assert mapped is not None
    os.utime(folder.path / f"{weights(1).digest.hex()}-{SIZE}.weights", (0, 0))
    folder.publish(weights(4))
    assert folder.find(weights(1)) is not None, "somebody has it"
    assert folder.find(weights(2)) is None
    with pytest.raises(WeightsError, match="no room"):
        folder.publish(weights(5, 3 * SIZE))


def test_a_folder_that_others_may_enter_is_refused(tmp_path: Path) -> None:
    (tmp_path / "open").mkdir(mode=0o755)
    with pytest.raises(WeightsError, match="this user alone"):
        NodeFolder(tmp_path / "open")
    (tmp_path / "link").symlink_to(tmp_path)
    with pytest.raises(WeightsError, match="this user alone"):
        NodeFolder(tmp_path / "link")


def test_the_environment_says_where_and_how_much(tmp_path: Path) -> None:
    environ = {names.WEIGHTS_DIR: str(tmp_path / "w"), names.WEIGHTS_BYTES: "1Ki"}
    with pytest.raises(WeightsError, match=names.WEIGHTS_BYTES):
        node_folder(environ).publish(weights(1))
    node_folder({**environ, names.WEIGHTS_BYTES: "much"}).publish(weights(1))  # said, and 16Gi
