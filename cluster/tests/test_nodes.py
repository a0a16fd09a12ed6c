"""Nodes as data: what a file may say, and what it is told when it may not."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock_cluster.nodes import (
    NodeDeclaration,
    NodeDeclarationError,
    read_nodes_file,
    this_machine,
)
from penstock_cluster.requests import parse_amounts

FILE = """
nodes:
  - name: gpu-1
    cpu: "16"
    memory: 64Gi
    accelerators: {nvidia.com/gpu: 4}
    labels: {zone: a}
    taints: [{key: gpu, value: "yes", effect: NoSchedule}]
  - {name: cpu, count: 3, cpu: 32, memory: 128Gi}
"""


def read(tmp_path: Path, text: str) -> list[NodeDeclaration]:
    file = tmp_path / "nodes.yaml"
    file.write_text(text)
    return read_nodes_file(file)


def test_a_file(tmp_path: Path) -> None:
    nodes = read(tmp_path, FILE)
    assert [node.name for node in nodes] == ["gpu-1", "cpu-1", "cpu-2", "cpu-3"]
    found = nodes[0].as_object("127.0.0.1", "2030-01-01T00:00:00Z")
    assert found["metadata"]["labels"]["zone"] == "a"
    assert found["metadata"]["labels"]["kubernetes.io/hostname"] == "gpu-1"
    assert found["spec"]["taints"] == [{"key": "gpu", "value": "yes", "effect": "NoSchedule"}]
    amounts = parse_amounts(found["status"]["allocatable"])
    assert amounts["cpu"] == 16000
    assert amounts["nvidia.com/gpu"] == 4
    ready = [each for each in found["status"]["conditions"] if each["type"] == "Ready"]
    assert ready[0]["status"] == "True"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("nodes: 3", "a list under 'nodes'"),
        ("nodes: []", "at least one node"),
        ("nodes: [7]", r"nodes\[0\]: a map is expected"),
        ("nodes: [{cpu: 4}]", r"nodes\[0\].name: a name is required"),
        ("nodes: [{name: A_b}]", r"nodes\[0\].name: 'A_b'"),
        ("nodes: [{name: a, cores: 4}]", r"nodes\[0\].cores: unknown field"),
        ("nodes: [{name: a, cpu: four}]", r"nodes\[0\].cpu: 'four'"),
        ("nodes: [{name: a, memory: 0}]", "memory: 0: must be more than 0"),
        ("nodes: [{name: a}, {name: a}]", "'a' is declared twice"),
        ("nodes: [{name: a, count: 0}]", "count: 0"),
        ("nodes: [{name: a, taints: [{key: k, effect: Never}]}]", "taints.effect: 'Never'"),
        ("nodes: [{name: a, accelerators: {gpu: 1}}]", r"accelerators\[gpu\]"),
        ("nodes: [{name: a, accelerators: {x.y/gpu: many}}]", "accelerators"),
        ("nodes: [", "not YAML"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, text: str, told: str) -> None:
    with pytest.raises(NodeDeclarationError, match=told) as caught:
        read(tmp_path, text)
    assert "nodes.yaml" in str(caught.value)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(NodeDeclarationError, match="No such file"):
        read_nodes_file(tmp_path / "none.yaml")


def test_this_machine() -> None:
    amounts = parse_amounts(this_machine().as_object("127.0.0.1", "t")["status"]["capacity"])
    assert amounts["cpu"] >= 1000
    assert amounts["memory"] > 1 << 28
