"""The kubeconfig's file: nobody else's is overwritten, nobody else may read it, none is half."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from penstock_cluster.apiserver.kubeconfig_file import kubeconfig, replace_kubeconfig

OURS = kubeconfig("https://127.0.0.1:8480", "secret", "penstock", b"authority")
OTHERS = """\
apiVersion: v1
kind: Config
clusters:
- {name: production, cluster: {server: https://10.0.0.1:6443}}
users:
- {name: production, user: {client-certificate-data: QQ==}}
contexts:
- {name: production, context: {cluster: production, user: production}}
"""


def _with_another_cluster() -> str:
    document = yaml.safe_load(OURS)
    document["clusters"] += yaml.safe_load(OTHERS)["clusters"]
    return yaml.safe_dump(document)


@pytest.mark.parametrize(
    "text",
    [OTHERS, _with_another_cluster(), "Dear cluster,\n", "a: [", "[]", "clusters: [1]\nusers: [2]"],
)
def test_a_file_of_something_else_is_left_alone(tmp_path: Path, text: str) -> None:
    path = tmp_path / "config"
    path.write_text(text)
    with pytest.raises(FileExistsError, match=r"config: not overwritten.*move this one away"):
        replace_kubeconfig(path, OURS)
    assert path.read_text() == text
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("before", ["", OURS.replace("secret", "older").replace("8480", "1")])
def test_an_earlier_one_is_replaced_and_readable_by_its_owner_only(
    tmp_path: Path, before: str
) -> None:
    path = tmp_path / "config"
    path.write_text(before)
    path.chmod(0o644)
    replace_kubeconfig(path, OURS)
    assert path.read_text() == OURS
    assert path.stat().st_mode & 0o777 == 0o600


def test_one_in_which_kubectl_chose_a_namespace_is_still_ours(tmp_path: Path) -> None:
    path = tmp_path / "config"
    document = yaml.safe_load(OURS)
    document["contexts"][0]["context"]["namespace"] = "team"
    path.write_text(yaml.safe_dump(document))
    replace_kubeconfig(path, OURS)
    assert path.read_text() == OURS


def test_a_link_stays_one(tmp_path: Path) -> None:
    path = tmp_path / "link"
    path.symlink_to(tmp_path / "config")
    replace_kubeconfig(path, OURS)
    assert path.is_symlink()
    assert (tmp_path / "config").read_text() == OURS


@pytest.fixture
def full_disk() -> Iterator[None]:
    """No file may grow: writing fails as it does on a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_full_disk_leaves_the_one_before(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    path = tmp_path / "config"
    older = OURS.replace("secret", "older")
    path.write_text(older)
    request.getfixturevalue("full_disk")
    with pytest.raises(OSError, match="File too large"):
        replace_kubeconfig(path, OURS)
    assert path.read_text() == older
    assert list(tmp_path.iterdir()) == [path]
