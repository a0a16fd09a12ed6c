"""The bill of materials: everything that is installed, once, in a form that other tools read."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from importlib.metadata import PathDistribution, distributions
from pathlib import Path
from typing import Any

import pytest

from penstock.base.bill_of_materials import bill_of_materials, main, normalized

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def installed(folder: Path, name: str, *lines: str) -> PathDistribution:
    """A distribution with this metadata."""
    info = folder / f"{name}-1.0.dist-info"
    info.mkdir()
    text = "\n".join(["Metadata-Version: 2.4", f"Name: {name}", "Version: 1.0", *lines])
    (info / "METADATA").write_text(text + "\n")
    return PathDistribution(info)


def bill(*found: PathDistribution) -> dict[str, Any]:
    return bill_of_materials(found, time=NOON, interpreter="3.11.7")


def by_name(made: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {one["name"]: one for one in made["components"]}


def test_of_this_environment_everything_is_in_it() -> None:
    made = bill_of_materials(distributions(), time=NOON, interpreter="3.11.7")
    names = {normalized(one.metadata["Name"]) for one in distributions()} - {"penstock"}
    assert set(by_name(made)) == {*names, "python"}
    assert made["metadata"]["component"]["name"] == "penstock"
    references = [one["bom-ref"] for one in made["components"]]
    references.append(made["metadata"]["component"]["bom-ref"])
    assert len(set(references)) == len(references)
    assert {one["ref"] for one in made["dependencies"]} == set(references)
    for one in made["dependencies"]:
        assert set(one["dependsOn"]) <= set(references)
        assert len(set(one["dependsOn"])) == len(one["dependsOn"])
    [own] = [one for one in made["dependencies"] if one["ref"].startswith("penstock==")]
    assert any(one.startswith("pydantic==") for one in own["dependsOn"])


def test_its_form_is_that_of_cyclonedx(tmp_path: Path) -> None:
    made = bill(installed(tmp_path, "penstock"), installed(tmp_path, "Some.Thing"))
    assert (made["bomFormat"], made["specVersion"], made["version"]) == ("CycloneDX", "1.6", 1)
    assert made["metadata"]["timestamp"] == "2026-01-01T12:00:00Z"
    assert re.fullmatch(r"urn:uuid:[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", made["serialNumber"])
    assert by_name(made)["some-thing"] == {
        "type": "library",
        "bom-ref": "some-thing==1.0",
        "name": "some-thing",
        "version": "1.0",
        "purl": "pkg:pypi/some-thing@1.0",
    }
    assert "purl" not in made["metadata"]["component"], "no index has it"
    assert by_name(made)["python"]["type"] == "platform"


@pytest.mark.parametrize(
    ("lines", "licenses"),
    [
        (["License-Expression: MIT OR Apache-2.0"], [{"expression": "MIT OR Apache-2.0"}]),
        (
            ["Classifier: License :: OSI Approved :: BSD License", "License: see the file"],
            [{"license": {"name": "BSD License"}}],
        ),
        (["License: MIT"], [{"license": {"name": "MIT"}}]),
        ([f"License: {'all of it ' * 20}"], None),
        ([], None),
    ],
)
def test_licenses_are_what_a_distribution_says(
    tmp_path: Path, lines: list[str], licenses: Any
) -> None:
    made = bill(installed(tmp_path, "penstock"), installed(tmp_path, "other", *lines))
    assert by_name(made)["other"].get("licenses") == licenses


def test_requirements_are_those_that_are_installed(tmp_path: Path) -> None:
    needs = [
        "Requires-Dist: B>=1",
        "Requires-Dist: missing",
        'Requires-Dist: c[x]>=2; extra == "more"',
    ]
    made = bill(
        installed(tmp_path, "penstock", *needs),
        installed(tmp_path, "a", *needs),
        installed(tmp_path, "b"),
        installed(tmp_path, "c"),
    )
    known = {one["ref"]: one["dependsOn"] for one in made["dependencies"]}
    assert known["penstock==1.0"] == ["b==1.0", "c==1.0"], "whoever installs it asks for extras"
    assert known["a==1.0"] == ["b==1.0"]


def test_of_two_of_a_name_the_first_counts(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    first = installed(tmp_path / "one", "other", "License: MIT")
    second = installed(tmp_path / "two", "other", "License: BSD")
    made = bill(installed(tmp_path, "penstock"), first, second)
    assert by_name(made)["other"]["licenses"] == [{"license": {"name": "MIT"}}]


def test_without_penstock_there_is_nothing_to_describe(tmp_path: Path) -> None:
    with pytest.raises(LookupError, match="penstock is not installed here"):
        bill(installed(tmp_path, "other"))


def test_the_same_environment_gives_the_same_bytes(capsys: pytest.CaptureFixture[str]) -> None:
    printed = []
    for _ in range(2):
        assert main({"SOURCE_DATE_EPOCH": "0"}) == 0
        printed.append(capsys.readouterr().out)
    assert printed[0] == printed[1]
    assert json.loads(printed[0])["metadata"]["timestamp"] == "1970-01-01T00:00:00Z"
    assert main({"SOURCE_DATE_EPOCH": "noon"}) == 2
    assert "SOURCE_DATE_EPOCH: 'noon'" in capsys.readouterr().err
