"""What the pages say exists: YAML that the models accept, commands, and what links lead to."""

from __future__ import annotations

import shlex
from importlib.metadata import entry_points
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import yaml

from penstock.cli.main import OWN
from penstock.crds.check import faults_in
from tests.docs.pages import ROOT, Block, blocks, links, pages

KNOWN_HOSTS = {
    "filesystem-spec.readthedocs.io",
    "keepachangelog.com",
    "kind.sigs.k8s.io",
    "kueue.sigs.k8s.io",
}
"""Other people's sites; tests ask nobody outside, so that a page of theirs may be gone."""


def of_ours(block: Block) -> list[dict[str, object]]:
    return [
        one
        for one in yaml.safe_load_all(block.text)
        if isinstance(one, dict) and str(one.get("apiVersion", "")).startswith("penstock.dev/")
    ]


@pytest.mark.parametrize("block", blocks("yaml"), ids=str)
def test_yaml_is_what_the_resources_accept(block: Block) -> None:
    for one in of_ours(block):
        assert faults_in(one) == []


def test_there_are_jobs_and_scales_to_look_at() -> None:
    found = [one["kind"] for block in blocks("yaml") for one in of_ours(block)]
    assert found.count("ElasticJob") > 5
    assert "Scale" in found


def test_the_quick_start_shows_the_job_that_it_applies() -> None:
    [shown] = [block for block in blocks("yaml") if block.page == ROOT / "docs" / "quickstart.md"]
    applied = (ROOT / "examples" / "digits" / "job.yaml").read_text(encoding="utf-8")
    assert yaml.safe_load(shown.text) == yaml.safe_load(applied)


@pytest.mark.parametrize("block", blocks("console"), ids=str)
def test_commands_exist(block: Block) -> None:
    known = {one.name for one in entry_points(group="penstock.commands")} | set(OWN)
    for line in block.text.replace("\\\n", " ").splitlines():
        if not line.startswith("$ "):
            continue
        words = shlex.split(line[2:], comments=True)
        while words and "=" in words[0]:
            words.pop(0)
        if words[:1] == ["penstock"]:
            assert words[1] in known or words[1].startswith("--"), line
        if words[:2] == ["python", "-m"] and words[2].split(".")[0] == "benchmarks":
            assert (ROOT / (words[2].replace(".", "/") + ".py")).is_file(), line


@pytest.mark.parametrize("page", pages(), ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    for target in links(page):
        parts = urlsplit(target)
        if parts.scheme:
            assert parts.scheme == "https", target
            assert parts.hostname in KNOWN_HOSTS, f"{target}: look at it, then add its host"
        elif parts.path:
            assert (page.parent / parts.path).exists(), f"{target} in {page.name}"
